"""CamVid from SegNet's folders."""

from pathlib import Path

import numpy as np
from PIL import Image

from mmseg_margin.datasets import CamVidDataset
from tests.commands import output_of
from tests.layouts import make_camvid_segnet

TOOL = 'converters/camvid'
LOADING = [dict(type='LoadImageFromFile'), dict(type='mmseg.LoadAnnotations')]


def test_only_void_changes_and_becomes_255(tmp_path, capsys):
    source = make_camvid_segnet(tmp_path / 'segnet', n=3)
    target = tmp_path / 'camvid'
    output = output_of(capsys, TOOL, source, target)
    assert 'train 3, val 3, test 3' in output
    for split in ('train', 'val', 'test'):
        dataset = CamVidDataset(
            data_root=str(target),
            data_prefix=dict(img_path=split, seg_map_path=f'{split}annot'),
            pipeline=LOADING,
        )
        for sample in dataset:
            name = Path(sample['seg_map_path']).name
            original = np.array(Image.open(source / f'{split}annot' / name))
            assert (original == 11).any()
            original[original == 11] = 255
            np.testing.assert_array_equal(sample['gt_seg_map'], original)


def test_errors_name_the_wrong_folders(tmp_path, capsys):
    source = tmp_path / 'segnet'

    def error_message():
        return output_of(capsys, TOOL, source, tmp_path / 'out', code=1)

    assert 'trainannot' in error_message()
    make_camvid_segnet(source, n=1)
    coloured = source / 'valannot' / '0001TP_000000.png'
    Image.new('RGB', (64, 32), (128, 0, 0)).save(coloured)
    assert 'LabeledApproved_full' in error_message()
    coloured.unlink()
    (source / 'test' / '0001TP_000000.png').unlink()
    assert 'has no image' in error_message()
