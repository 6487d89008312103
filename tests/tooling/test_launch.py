"""Folders that contain no image that the data set looks for."""

import pytest
from mmengine.config import Config

from mmseg_margin.tooling.launch import check_folders
from tests import layouts


def config(root, **settings):
    dataset = dict(
        type='BaseSegDataset',
        data_root=str(root),
        data_prefix=dict(img_path='img', seg_map_path='ann'),
        **settings,
    )
    return Config(dict(train_dataloader=dict(dataset=dataset)))


def test_images_of_another_format_are_named(tmp_path):
    layouts.write_image(tmp_path / 'img' / 'a.png', (8, 8), 0)
    layouts.write_image(tmp_path / 'ann' / 'a.png', (8, 8), 0)
    check_folders(config(tmp_path, img_suffix='.png'), ('train',))
    with pytest.raises(
        FileNotFoundError, match=r'ends with \.jpg.*img_suffix'
    ):
        check_folders(config(tmp_path), ('train',))
