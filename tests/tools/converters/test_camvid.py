"""CamVid from SegNet's folders."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mmseg_margin.datasets import CamVidDataset
from tests.layouts import make_camvid_segnet
from tools.converters.camvid import convert_camvid

LOADING = [dict(type='LoadImageFromFile'), dict(type='mmseg.LoadAnnotations')]


def load(root: Path, split: str) -> CamVidDataset:
    return CamVidDataset(
        data_root=str(root),
        data_prefix=dict(img_path=split, seg_map_path=f'{split}annot'),
        pipeline=LOADING,
    )


def test_conversion_makes_void_255_and_nothing_else(tmp_path):
    source = make_camvid_segnet(tmp_path / 'segnet', n=3)
    written = convert_camvid(source, tmp_path / 'camvid')
    assert written == {'train': 3, 'val': 3, 'test': 3}
    for split in written:
        for sample in load(tmp_path / 'camvid', split):
            name = Path(sample['seg_map_path']).name
            original = np.array(Image.open(source / f'{split}annot' / name))
            assert (original == 11).any()
            original[original == 11] = 255
            np.testing.assert_array_equal(sample['gt_seg_map'], original)


def test_conversion_twice_gives_the_same(tmp_path):
    source = make_camvid_segnet(tmp_path / 'segnet', n=1)
    convert_camvid(source, tmp_path / 'once')
    convert_camvid(tmp_path / 'once', tmp_path / 'twice')
    label = 'trainannot/0001TP_000000.png'
    first = (tmp_path / 'once' / label).read_bytes()
    assert (tmp_path / 'twice' / label).read_bytes() == first


def test_wrong_folders_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match='trainannot'):
        convert_camvid(tmp_path, tmp_path / 'out')
    source = make_camvid_segnet(tmp_path / 'segnet', n=1)
    coloured = source / 'valannot' / '0001TP_000000.png'
    Image.new('RGB', (64, 32), (128, 0, 0)).save(coloured)
    with pytest.raises(ValueError, match='LabeledApproved_full'):
        convert_camvid(source, tmp_path / 'out')
    coloured.unlink()
    (source / 'test' / '0001TP_000000.png').unlink()
    with pytest.raises(FileNotFoundError, match='has no image'):
        convert_camvid(source, tmp_path / 'out')
