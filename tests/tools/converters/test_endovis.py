"""EndoVis 2017 from the challenge's folders to the paper's splits."""

import numpy as np
import pytest
from PIL import Image

from mmseg_margin.datasets import PART_COLOURS, EndoVisPartsDataset
from tests.commands import output_of
from tests.layouts import make_endovis_challenge
from tools.converters.endovis import (
    convert_endovis,
    merge_part_masks,
    split_of_frame,
)

FRAMES = (0, 149, 150, 174, 175, 224)
SPLITS = ('train', 'val', 'test')
LOADING = [dict(type='LoadImageFromFile'), dict(type='mmseg.LoadAnnotations')]


@pytest.fixture(scope='module')
def challenge(tmp_path_factory):
    folder = tmp_path_factory.mktemp('challenge')
    return make_endovis_challenge(folder, frames=FRAMES)


@pytest.fixture(scope='module')
def converted(challenge, tmp_path_factory):
    target = tmp_path_factory.mktemp('endovis2017')
    written = convert_endovis(challenge, target)
    assert written == {'train': 6, 'val': 6, 'test': 6}
    return target


def test_sequential_split_of_the_paper():
    splits = [split_of_frame(frame) for frame in range(225)]
    # Eight videos: 1,200, 200 and 400 images.
    assert [8 * splits.count(name) for name in SPLITS] == [1200, 200, 400]
    assert splits == sorted(splits, key=SPLITS.index)
    with pytest.raises(ValueError, match='frame 225'):
        split_of_frame(225)


def test_data_set_reads_the_converted_files(converted):
    for split in SPLITS:
        dataset = EndoVisPartsDataset(
            data_root=str(converted),
            data_prefix=dict(
                img_path=f'images/{split}', seg_map_path=f'labels/{split}'
            ),
            pipeline=LOADING,
        )
        assert len(dataset) == 6
        for sample in dataset:
            label = sample['gt_seg_map']
            assert label.shape == sample['img'].shape[:2]
            assert set(np.unique(label)) <= {0, 1, 2, 3, 4}
            with Image.open(sample['seg_map_path']) as image:
                assert image.mode == 'P'
                colours = np.reshape(image.getpalette()[:15], (5, 3))
            assert [*map(tuple, colours)] == [*PART_COLOURS.values()]


def test_labels_are_the_parts_of_every_instrument(challenge, converted):
    name = 'frame149.png'
    for video, right_half in ((1, 4), (7, 1)):
        folder = f'instrument_dataset_{video}'
        masks = sorted(challenge.glob(f'{folder}/ground_truth/*/{name}'))
        parts = np.asarray(Image.open(masks[0]))
        path = converted / f'labels/train/{folder}_{name}'
        label = np.asarray(Image.open(path))
        np.testing.assert_array_equal(label[:, :32], parts[:, :32] // 10)
        assert set(np.unique(label[16:, 32:])) == {right_half}
        assert not label[:16, 32:].any()


def test_overlap_and_unknown_values():
    first = np.array([[0, 10, 10, 30, 7]], np.uint8)
    second = np.array([[20, 10, 40, 20, 10]], np.uint8)
    expected = [[2, 1, 4, 3, 255]]
    assert merge_part_masks([first, second]).tolist() == expected
    assert merge_part_masks([second, first]).tolist() == expected


def test_command_line(tmp_path, capsys):
    source, target = tmp_path / 'in', tmp_path / 'out'
    output = output_of(capsys, 'converters/endovis', source, target, code=1)
    assert 'left_frames' in output
    make_endovis_challenge(source, frames=(0,))
    output = output_of(capsys, 'converters/endovis', source, target)
    assert 'train 3, val 0, test 0' in output
    mask = next(source.glob('*/ground_truth/*/frame000.png'))
    mask.unlink()
    with pytest.raises(FileNotFoundError, match=mask.parent.name):
        convert_endovis(source, target)
