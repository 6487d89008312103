"""Every problem in one report, with the file, the value and the fix."""

import re

import numpy as np
import pytest
from mmengine.dataset import ConcatDataset
from PIL import Image

from mmseg_margin.stats import Head, LabelRange, collect_stats, inspect
from mmseg_margin.stats.collect import DataSetError
from tests.stats.builders import (
    CLASSES,
    SIZE,
    bomb_png,
    open_set,
    write_label_file,
    write_set,
)

SHAPE = SIZE[::-1]
HEADS = [Head('decode_head', 4, 255), Head('auxiliary_head', 4, 255)]


def report(dataset, heads=HEADS, ignore_index=255, **kwargs):
    collected = collect_stats(dataset, LabelRange(None, ignore_index))
    return inspect(collected, dataset, heads, **kwargs)


def paragraph(report_text, headline):
    """The lines of one problem."""
    start = report_text.index(headline)
    return report_text[start : report_text.index('likely fix', start) + 300]


def test_a_good_set(tmp_path):
    result = report(open_set(write_set(tmp_path)))
    assert result.errors == []
    assert result.warnings == []


def test_all_bad_files_in_one_report(tmp_path):
    root = write_set(tmp_path, 12)
    ann = root / 'ann'
    whole = (ann / '0000.png').read_bytes()
    (ann / '0000.png').write_bytes(whole[: len(whole) // 2])
    (ann / '0001.png').unlink()
    (ann / '0002.png').write_bytes(b'')
    (ann / '0003.png').write_bytes(bytes(500))
    write_label_file(root, 4, np.full(SHAPE, 200, np.uint8))
    (ann / '0005.png').write_bytes(bomb_png(60000))
    write_label_file(root, 6, np.zeros((*SHAPE, 3), np.uint8))
    write_label_file(root, 7, np.zeros((8, 8), np.uint8))
    (root / 'img' / '0008.png').write_bytes(b'')
    dataset = open_set(root)
    (root / 'img' / '0009.png').unlink()
    text = str(report(dataset))
    assert '8 problem(s), 0 warning(s)' in text
    for headline, names in {
        'missing label files (1 file(s))': ['ann/0001.png'],
        'missing images (1 file(s))': ['img/0009.png'],
        'unreadable label files (3 file(s))': [
            'ann/0000.png: image file is truncated',
            'ann/0002.png: the file is empty',
            'ann/0003.png: not an image file',
        ],
        'unreadable images (1 file(s))': ['img/0008.png: not an image file'],
        'more pixels than Pillow accepts': ['ann/0005.png', '3600000000'],
        'colours instead of class indices': ['ann/0006.png: 3 channels'],
        'outside the classes: 200 in 1 file(s)': ['ann/0004.png: 200'],
        'size differs': ['img/0007.png: image 48x32, label 8x8'],
    }.items():
        part = paragraph(text, headline)
        for name in names:
            assert name in part


def test_only_the_first_ten_files_are_named(tmp_path):
    root = write_set(tmp_path, 30, values=(0, 1, 2, 3, 4))
    text = str(report(open_set(root)))
    assert '4 in 30 file(s)' in text
    assert '0009.png' in text
    assert '0010.png' not in text
    assert '... and 20 more' in text


@pytest.mark.parametrize(
    ('values', 'kwargs', 'fix'),
    [
        ((0, 1, 2, 3, 4), {}, 'set ignore_index=4 in every head or map it'),
        ((1, 2, 3, 4), {}, 'from 1 to 4, so set reduce_zero_label=True'),
        (range(60), {}, 'look like a picture or an interpolated label'),
        ((0, 1, 77), {}, 'map these values to classes or to the ignore'),
        ((0, 255), {}, 'map 255 to 1 in the files'),
        (
            (0, 1, 2, 3, 255),
            {'ignore_index': 11},
            r'set ignore_index=255 \(it is 11\)',
        ),
    ],
)
def test_likely_fix(tmp_path, values, kwargs, fix):
    dataset = open_set(write_set(tmp_path, values=values))
    result = report(dataset, heads=(), **kwargs)
    assert len(result.errors) == 1
    assert re.search(fix, result.errors[0])


def test_reduce_zero_label_set_for_nothing(tmp_path):
    root = write_set(tmp_path, values=(0, 1, 2, 3))
    result = report(open_set(root, reduce_zero_label=True))
    assert result.errors == []
    assert len(result.warnings) == 1
    assert 'without a pixel: car' in result.warnings[0]
    assert 'turn it off' in result.warnings[0]


def test_loader_that_contradicts_its_data_set(tmp_path):
    pipeline = [{'type': 'LoadAnnotations', 'reduce_zero_label': True}]
    text = str(report(open_set(write_set(tmp_path), pipeline=pipeline)))
    assert 'the loading transform failed (6 file(s))' in text
    assert 'the `reduce_zero_label` is True' in text


def test_heads(tmp_path):
    dataset = open_set(write_set(tmp_path))
    heads = [Head('decode_head', 19, 255), Head('auxiliary_head', 4, 11)]
    result = report(dataset, heads)
    assert len(result.errors) == 2
    assert 'decode_head has num_classes=19' in result.errors[0]
    assert 'set num_classes=4 in decode_head' in result.errors[0]
    assert 'decode_head: 255, auxiliary_head: 11' in result.errors[1]
    assert len(result.warnings) == 1
    assert 'every seg_pad_val' in result.warnings[0]


def test_ignore_index_of_heads_and_data_sets(tmp_path):
    root = write_set(tmp_path, values=(0, 1, 2, 3, 11))
    parts = [open_set(root), open_set(root, ignore_index=11)]
    heads = [Head('decode_head', 4, 11)]
    result = report(ConcatDataset(parts), heads, ignore_index=11)
    assert result.errors == []
    assert 'declares ignore_index=11, 255' in result.warnings[0]


def test_absent_and_rare_classes(tmp_path):
    root = write_set(tmp_path, 4, values=(0, 1))
    pixels = np.zeros(SHAPE, np.uint8)
    pixels[0, 0] = 2
    write_label_file(root, 0, pixels)
    result = report(open_set(root), rare_share=1e-3)
    assert result.errors == []
    assert 'classes without a pixel: car' in result.warnings[0]
    assert 'very rare classes' in result.warnings[1]
    assert 'tree (0.00016)' in result.warnings[1]


def test_everything_ignored(tmp_path):
    result = report(open_set(write_set(tmp_path, values=(255,))))
    assert 'no pixel carries a class' in result.errors[0]


def test_empty_data_set(tmp_path):
    write_set(tmp_path, 1)
    (tmp_path / 'img' / '0000.png').unlink()
    with pytest.raises(DataSetError, match='BaseSegDataset has no samples'):
        report(open_set(tmp_path, serialize_data=False))


def test_data_set_that_cannot_be_walked():
    class Numbers(list):
        metainfo = {'classes': CLASSES}

    with pytest.raises(ValueError, match=r'Numbers has no get_data_info\(\)'):
        collect_stats(Numbers([1, 2]), LabelRange(None))


def test_image_that_lies_on_its_side(tmp_path):
    root = write_set(tmp_path, 1)
    width, height = SIZE
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new('RGB', (height, width)).save(root / 'img/0000.png', exif=exif)
    assert report(open_set(root), rare_share=0).errors == []


def test_images_of_other_formats_are_not_judged(tmp_path):
    root = write_set(tmp_path, 1)
    (root / 'img' / '0000.png').rename(root / 'img' / '0000.tif')
    (root / 'img' / '0000.tif').write_bytes(b'of a kind Pillow cannot read')
    assert report(open_set(root, img_suffix='.tif')).errors == []
