"""The distributions are complete and fit for a package index."""

import re
import tarfile
import zipfile
from email import message_from_string
from email.message import Message
from pathlib import Path

import pytest

from tests.commands import output_of_python

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope='module')
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a wheel, built from a source distribution."""
    for package in ('build', 'twine'):
        pytest.importorskip(package, reason=f'needs {package}')
    folder = tmp_path_factory.mktemp('dist')
    build = ['-m', 'build', '--no-isolation', '--outdir', folder, ROOT]
    output_of_python(folder, *build)
    return folder


def metadata(distributions: Path) -> Message:
    with zipfile.ZipFile(next(distributions.glob('*.whl'))) as wheel:
        name = next(x for x in wheel.namelist() if x.endswith('/METADATA'))
        return message_from_string(wheel.read(name).decode())


def test_twine_accepts_both(distributions):
    files = sorted(distributions.iterdir())
    assert [file.suffix for file in files] == ['.whl', '.gz']
    said = output_of_python(ROOT, '-m', 'twine', 'check', '--strict', *files)
    assert said.count('PASSED') == 2


def test_metadata_are_complete(distributions):
    found = metadata(distributions)
    for field in ('Summary', 'Keywords', 'Requires-Python', 'License'):
        assert found[field], field
    urls = ' '.join(found.get_all('Project-URL'))
    for name in ('Documentation', 'Changelog', 'Issues'):
        assert f'{name}, https://' in urls
    required = [x for x in found.get_all('Requires-Dist') if ';' not in x]
    assert sorted(re.split('[<>=]', x)[0] for x in required) == [
        'numpy',
        'torch',
    ]


def test_the_long_description_has_no_relative_link(distributions):
    links = re.findall(r'\]\(([^)]+)\)', metadata(distributions).get_payload())
    assert links
    assert [x for x in links if not x.startswith(('https://', '#'))] == []


def test_recipes_and_tools_are_in_the_wheel(distributions):
    with zipfile.ZipFile(next(distributions.glob('*.whl'))) as wheel:
        names = set(wheel.namelist())
    for folder in ('configs', 'tools'):
        for path in (ROOT / folder).rglob('*.py'):
            assert f'mmseg_margin/.mim/{path.relative_to(ROOT)}' in names
    assert 'mmseg_margin/.mim/model-index.yml' in names
    assert 'mmseg_margin/py.typed' in names


def test_the_source_distribution_has_the_licence(distributions):
    with tarfile.open(next(distributions.glob('*.tar.gz'))) as archive:
        names = {name.partition('/')[2] for name in archive.getnames()}
    assert {'LICENSE', 'README.md', 'CITATION.cff', 'CHANGELOG.md'} <= names
