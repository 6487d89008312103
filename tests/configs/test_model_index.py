"""The model index and the documents agree with the recipes."""

import re
from collections import Counter

import pytest
import yaml

from tests.configs.reduced import CONFIGS, ROOT

IMPORTS = yaml.safe_load((ROOT / 'model-index.yml').read_text())['Import']
METAFILES = {
    name: yaml.safe_load((ROOT / name).read_text()) for name in IMPORTS
}
MODELS = [
    (name, model)
    for name, metafile in METAFILES.items()
    for model in metafile['Models']
]
FOLDERS = {'ade20k', 'camvid', 'cityscapes', 'light', 'mapillary'}
FOLDERS |= {'paper', 'voc12aug'}


def test_every_folder_and_config_is_listed_once():
    """In its folder and its collection."""
    folders = {path.parent for path in CONFIGS}
    assert {folder.name for folder in folders} >= FOLDERS
    listed = [(ROOT / name).parent for name in IMPORTS]
    assert Counter(listed) == Counter(folders)
    listed = Counter(ROOT / model['Config'] for _, model in MODELS)
    assert listed == Counter(CONFIGS)
    for name, model in MODELS:
        path = ROOT / model['Config']
        assert model['Name'] == path.stem
        assert path.parent == (ROOT / name).parent
        collections = [c['Name'] for c in METAFILES[name]['Collections']]
        assert model['In Collection'] in collections


@pytest.mark.parametrize('name', ['reproduce', 'datasets'])
def test_documents_name_files_that_exist(name):
    text = (ROOT / 'docs' / f'{name}.md').read_text()
    paths = set(re.findall(r'(?:configs|(?<![\w/])tools)/[\w./-]+\.py', text))
    assert paths
    assert not [path for path in paths if not (ROOT / path).is_file()]
