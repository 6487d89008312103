"""Configs by path and by package, and folders without images."""

import pytest
from mmengine.config import Config

from mmseg_margin.errors import MarginError
from mmseg_margin.tooling.launch import check_folders, load_config
from tests import layouts

UPSTREAM = 'deeplabv3plus_r50-d8_4xb2-80k_cityscapes-512x1024.py'
OURS = 'deeplabv3plus_efficientnet-lite0_ce_1xb4-600_camvid-112x144.py'


@pytest.mark.parametrize(
    ('config', 'num_classes'),
    [
        (f'mmseg::deeplabv3plus/{UPSTREAM}', 19),
        (f'mmseg_margin::light/{OURS}', 11),
    ],
)
def test_configs_of_installed_packages(tmp_path, config, num_classes):
    """The same as a config that inherits from them."""
    path = tmp_path / 'mine.py'
    path.write_text(f"_base_ = '{config}'\n")
    inherited = Config.fromfile(path)
    found = load_config(config, {'train_cfg.max_iters': 3})
    assert found.model.decode_head.num_classes == num_classes
    assert found.model.keys() == inherited.model.keys() - {'_scope_'}
    assert found.train_cfg.max_iters == 3


@pytest.mark.parametrize(
    ('config', 'text', 'options', 'key_word'),
    [
        ('config.py', None, {}, 'does not exist'),
        ('mmseg::fcn/nowhere.py', None, {}, 'nowhere.py does not exist'),
        ('mmsg::fcn/any.py', None, {}, 'Did you mean mmseg'),
        ('config.py', 'a = = 1', {}, 'cannot be read'),
        ('config.py', "_base_ = 'nowhere.py'", {}, 'nowhere.py'),
        ('config.py', 'a = [1]', {'a.7': 2}, '--cfg-options'),
    ],
)
def test_configs_that_cannot_be_read(
    tmp_path, monkeypatch, config, text, options, key_word
):
    monkeypatch.chdir(tmp_path)
    if text is not None:
        (tmp_path / config).write_text(text)
    with pytest.raises(MarginError, match=key_word):
        load_config(config, options)


@pytest.mark.parametrize(
    ('settings', 'key_word'),
    [
        ({}, 'img_suffix'),
        ({'img_suffix': '.png', 'ann_file': 'a.txt'}, 'ann_file'),
        ({'data_root': 'nowhere'}, 'nowhere does not exist'),
        ({'data_prefix': {'img_path': 'empty'}}, 'is empty'),
    ],
)
def test_folders_without_the_images(tmp_path, monkeypatch, settings, key_word):
    layouts.write_image(tmp_path / 'img' / 'a.png', (8, 8), 0)
    (tmp_path / 'empty').mkdir()
    dataset = {
        'type': 'BaseSegDataset',
        'data_root': str(tmp_path),
        'data_prefix': {'img_path': 'img'},
    }

    def check(**settings):
        loader = {'dataset': dataset | settings}
        check_folders(Config({'train_dataloader': loader}), ('train', 'val'))

    check(img_suffix='.png')
    # In an empty folder too, where a data set without a root is looked for.
    monkeypatch.chdir(tmp_path / 'empty')
    images = {'img_path': str(tmp_path / 'img')}
    check(img_suffix='.png', data_root=None, data_prefix=images)
    with pytest.raises(FileNotFoundError, match=key_word):
        check(**settings)
