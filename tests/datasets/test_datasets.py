"""The registered data sets, and those defined by a config only."""

from pathlib import Path

import numpy as np
import pytest
from mmengine.config import Config
from mmseg.registry import DATASETS, TRANSFORMS

from mmseg_margin.datasets import CamVidDataset
from mmseg_margin.errors import SettingError
from tests.layouts import write_image, write_label

ROOT = Path(__file__).parents[2]
REAL = ROOT.parent / 'shared' / 'data'
LOADING = [dict(type='LoadImageFromFile'), dict(type='mmseg.LoadAnnotations')]
real_data = pytest.mark.skipif(not REAL.is_dir(), reason=f'no {REAL}')


@pytest.mark.parametrize('suffix', ['.png', '.jpg'])
def test_camvid_detects_the_suffix_of_its_images(tmp_path, suffix):
    write_image(tmp_path / f'train/a{suffix}', (8, 8), seed=0)
    write_label(tmp_path / 'trainannot/a.png', np.full((8, 8), 10, np.uint8))
    dataset = CamVidDataset(
        data_root=str(tmp_path),
        data_prefix=dict(img_path='train', seg_map_path='trainannot'),
        pipeline=LOADING,
    )
    assert len(dataset) == 1
    assert (dataset[0]['gt_seg_map'] == 10).all()


@real_data
@pytest.mark.parametrize(
    ('name', 'train', 'val', 'classes'),
    [
        ('camvid_112x144', 367, 101, 11),
        ('steel_128x128', 1300, 300, 4),
        ('clothing_144x112', 704, 100, 59),
    ],
)
def test_configs_read_the_real_data_sets(
    monkeypatch, name, train, val, classes
):
    monkeypatch.setenv('MMSEG_MARGIN_DATA', str(REAL))
    cfg = Config.fromfile(ROOT / f'configs/_base_/datasets/{name}.py')
    for loader, number in (
        (cfg.train_dataloader, train),
        (cfg.test_dataloader, val),
    ):
        dataset = DATASETS.build(dict(loader.dataset, pipeline=LOADING))
        assert len(dataset) == number
        labels = dataset[number // 2]['gt_seg_map']
        assert set(np.unique(labels)) <= {*range(classes), 255}
        assert len(dataset.metainfo['classes']) == classes


def load(path, mapping, **info):
    """A label with the loading transform of a config."""
    transform = TRANSFORMS.build(
        {'type': 'mmseg.LoadMappedAnnotations', 'mapping': mapping}
    )
    info = {'reduce_zero_label': False, **info, 'seg_fields': []}
    results = transform({'seg_map_path': str(path), **info})
    assert results['seg_fields'] == ['gt_seg_map']
    assert results['gt_seg_map'].dtype == np.uint8
    return results['gt_seg_map'].ravel().tolist()


def test_labels_are_mapped_before_everything_else(tmp_path):
    path = tmp_path / 'label.png'
    write_label(path, np.array([[0, 1, 2], [7, 254, 255]], np.uint8))
    mapping = {255: 1, 7: 0}
    assert load(path, mapping) == [0, 1, 2, 0, 254, 1]
    assert load(path, {'255': 1, '7': 0}) == [0, 1, 2, 0, 254, 1]
    reduced = load(path, mapping, reduce_zero_label=True)
    assert reduced == [255, 0, 1, 255, 253, 0]
    swapped = load(path, mapping, label_map={0: 1, 1: 0, 2: 255})
    assert swapped == [1, 0, 255, 1, 254, 0]
    with pytest.raises(SettingError, match='mapping'):
        load(path, {-1: 255})
