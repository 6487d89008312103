"""EndoVis 2017 from the challenge's folders to the paper's splits."""

import numpy as np
import pytest
from PIL import Image

from mmseg_margin.datasets import PART_COLOURS
from tests.commands import output_of
from tests.layouts import make_endovis_challenge
from tools.converters.endovis import merge_part_masks, split_of_frame

SPLITS = ('train', 'val', 'test')


def test_sequential_split_of_the_paper():
    splits = [split_of_frame(frame) for frame in range(225)]
    # Eight videos: 1,200, 200 and 400 images.
    assert [8 * splits.count(name) for name in SPLITS] == [1200, 200, 400]
    assert splits == sorted(splits, key=SPLITS.index)
    with pytest.raises(ValueError, match='frame 225'):
        split_of_frame(225)


def test_the_labels_hold_the_parts_of_every_instrument(tmp_path, capsys):
    source, target = tmp_path / 'in', tmp_path / 'out'
    tool = 'converters/endovis', source, target
    assert 'left_frames' in output_of(capsys, *tool, code=1)
    make_endovis_challenge(source, frames=(0, 149, 150, 174, 175, 224))
    output_of(capsys, *tool)
    for kind in ('images', 'labels'):
        found = [len([*(target / kind / x).iterdir()]) for x in SPLITS]
        assert found == [6, 6, 6]
    # The second mask covers the lower right of each frame.
    for video, lower_right in ((1, 4), (7, 1)):
        name = f'instrument_dataset_{video}'
        masks = sorted(source.glob(f'{name}/ground_truth/*/frame149.png'))
        parts = np.asarray(Image.open(masks[0]))
        image = Image.open(target / f'labels/train/{name}_frame149.png')
        colours = np.reshape(image.getpalette()[:15], (5, 3))
        assert [*map(tuple, colours)] == [*PART_COLOURS.values()]
        label = np.asarray(image)
        np.testing.assert_array_equal(label[:, :32], parts[:, :32] // 10)
        assert set(np.unique(label[16:, 32:])) == {lower_right}


def test_overlap_and_unknown_values():
    first = np.array([[0, 10, 10, 30, 7]], np.uint8)
    second = np.array([[20, 10, 40, 20, 10]], np.uint8)
    expected = [[2, 1, 4, 3, 255]]
    assert merge_part_masks([first, second]).tolist() == expected
    assert merge_part_masks([second, first]).tolist() == expected
