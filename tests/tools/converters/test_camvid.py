"""CamVid from SegNet's folders."""

import numpy as np
from PIL import Image

from mmseg_margin.datasets import CamVidDataset
from tests.commands import output_of
from tests.layouts import make_camvid_segnet

TOOL = 'converters/camvid'
LOADING = [dict(type='LoadImageFromFile'), dict(type='mmseg.LoadAnnotations')]


def test_only_void_changes_and_becomes_255(tmp_path, capsys):
    source, target = tmp_path / 'segnet', tmp_path / 'camvid'
    assert 'trainannot' in output_of(capsys, TOOL, source, target, code=1)
    make_camvid_segnet(source, n=3)
    output_of(capsys, TOOL, source, target)
    for split in ('train', 'val', 'test'):
        dataset = CamVidDataset(
            data_root=str(target),
            data_prefix=dict(img_path=split, seg_map_path=f'{split}annot'),
            pipeline=LOADING,
        )
        originals = sorted((source / f'{split}annot').iterdir())
        for sample, path in zip(dataset, originals, strict=True):
            original = np.array(Image.open(path))
            assert (original == 11).any()
            original[original == 11] = 255
            np.testing.assert_array_equal(sample['gt_seg_map'], original)
    Image.new('RGB', (64, 32), (128, 0, 0)).save(path)
    assert 'coloured' in output_of(capsys, TOOL, source, target, code=1)
