"""Every problem in one report, with the file, the value and the fix."""

import os
import re

import numpy as np
import pytest
from mmengine.dataset import ConcatDataset
from PIL import Image

from mmseg_margin.errors import DataSetError
from mmseg_margin.functional import OffsetSettings
from mmseg_margin.stats import (
    StatsCache,
    check_labels,
    check_validation_labels,
)
from tests.stats.builders import (
    CLASSES,
    SIZE,
    model_config,
    open_set,
    report_on,
    spoil_labels,
    write_label_file,
    write_png,
    write_set,
)

SHAPE = SIZE[::-1]


def check_says(text, *parts):
    for part in parts:
        assert part in text


def test_a_good_set(root):
    result = report_on(root)
    assert result.errors == result.warnings == []


def test_all_bad_files_in_one_report(tmp_path):
    root = write_set(tmp_path, 12)
    spoil_labels(root)
    bomb = write_png(np.zeros((1, 1), np.uint8), (60000, 60000))
    (root / 'ann' / '0005.png').write_bytes(bomb)
    write_label_file(root, 6, np.zeros((*SHAPE, 3), np.uint8))
    write_label_file(root, 7, np.zeros((8, 8), np.uint8))
    (root / 'img' / '0008.png').write_bytes(b'')
    dataset = open_set(root)
    (root / 'img' / '0009.png').unlink()
    report = report_on(dataset)
    assert '8 problem(s), 0 warning(s)' in str(report)
    for headline, names in {
        'missing label files (1 file(s))': ['ann/0001.png'],
        'missing images (1 file(s))': ['img/0009.png'],
        'unreadable label files (3 file(s))': [
            'ann/0000.png: image file is truncated',
            'ann/0002.png: the file is empty',
            'ann/0003.png: not an image file',
        ],
        'unreadable images (1 file(s))': ['img/0008.png: the file is empty'],
        'more pixels than Pillow accepts': ['ann/0005.png', '3600000000'],
        'without one class index': ['ann/0006.png: 3 channels'],
        'outside the classes: 200 in 1 file(s)': ['ann/0004.png: 200'],
        'size differs': ['img/0007.png: image 48x32, label 8x8'],
    }.items():
        (problem,) = (x for x in report.errors if headline in x)
        check_says(problem, *names, 'likely fix: ')


def test_only_the_first_ten_files_are_named(tmp_path):
    root = write_set(tmp_path, 30, values=(0, 1, 2, 3, 4))
    text = str(report_on(root))
    check_says(text, '4 in 30 file(s)', '0009.png', '... and 20 more')
    assert '0010.png' not in text


@pytest.mark.parametrize(
    ('values', 'ignore_index', 'fix'),
    [
        ((0, 1, 2, 3, 4), 255, 'set ignore_index=4 in every head or map it'),
        ((1, 2, 3, 4), 255, 'from 1 to 4, so set reduce_zero_label=True'),
        (range(60), 255, 'look like a picture or an interpolated label'),
        ((0, 1, 77), 255, 'map these values to classes or to the ignore'),
        ((0, 255), 255, 'map 255 to 1 in the files'),
        ((0, 1, 2, 3, 255), 11, r'set ignore_index=255 \(it is 11\)'),
    ],
)
def test_likely_fix(tmp_path, values, ignore_index, fix):
    root = write_set(tmp_path, values=values)
    (error,) = report_on(root, (4, ignore_index)).errors
    assert re.search(fix, error)


def test_needless_reduce_zero_label(tmp_path):
    root = write_set(tmp_path, values=(0, 1, 2, 3))
    result = report_on(open_set(root, reduce_zero_label=True))
    assert result.errors == []
    check_says(*result.warnings, 'without a pixel: car', 'turn it off')


def test_loader_that_contradicts_its_data_set(root):
    pipeline = [{'type': 'LoadAnnotations', 'reduce_zero_label': True}]
    check_says(
        *report_on(open_set(root, pipeline=pipeline)).errors,
        'the loading transform failed (6 file(s))',
        'the `reduce_zero_label` is True',
    )


def test_masks_are_counted_over_all_files(tmp_path):
    root = write_set(tmp_path, 12, values=(0, 255))
    write_label_file(root, 0, np.zeros(SHAPE, np.uint8))
    check_says(
        *report_on(root).errors,
        'every label is either 0 or 255, a mask rather than class indices (12',
        '... and 2 more',
    )
    write_label_file(root, 1, np.ones(SHAPE, np.uint8))
    assert 'a mask' not in str(report_on(root))


def test_lossy_labels_are_named(root):
    for path in (root / 'ann').iterdir():
        with Image.open(path) as image:
            image.save(path, 'JPEG')
    first, second = report_on(root).errors
    check_says(first, 'in JPEG, a lossy format', '(6 file(s))')
    assert 'likely fix: JPEG is lossy, see above' in second


@pytest.mark.parametrize(
    ('value', 'dtype', 'message'),
    [
        (-1, np.int32, 'outside the classes: -1 in 1 file(s)'),
        (-1, np.float32, 'outside the classes: -1 in 1 file(s)'),
        (0.5, np.float32, '0003.png: values that are not whole numbers'),
        (np.nan, np.float32, '0003.png: values that are not whole numbers'),
        (np.inf, np.float32, '0003.png: values that are not whole numbers'),
    ],
)
def test_numbers_that_are_not_labels(root, value, dtype, message):
    """LoadAnnotations casts them to something in 0 to 255 in silence."""
    pixels = np.zeros(SHAPE, dtype)
    pixels[0, 0] = value
    Image.fromarray(pixels).save(root / 'ann' / '0003.png', 'TIFF')
    (error,) = report_on(root).errors
    assert message in error


def test_labels_one_pixel_wide(root):
    write_label_file(root, 1, np.zeros((SHAPE[0], 1), np.uint8))
    Image.new('RGB', (1, SHAPE[0])).save(root / 'img' / '0001.png')
    texts = 'one pixel wide or high', 'ann/0001.png: 1x32'
    check_says(*report_on(root).errors, *texts)


def test_heads(root):
    result = report_on(root, (19, 255), (4, 11))
    first, second = result.errors
    name = 'auxiliary_head.0'
    check_says(first, f'{name} has num_classes=19', f'classes=4 in {name}')
    assert f'{name}: 255, auxiliary_head.1: 11' in second
    check_says(*result.warnings, 'every seg_pad_val')


def test_ignore_index_of_heads_and_data_sets(tmp_path):
    root = write_set(tmp_path, values=(0, 1, 2, 3, 11))
    parts = [open_set(root), open_set(root, ignore_index=11)]
    result = report_on(ConcatDataset(parts), (4, 11))
    assert result.errors == []
    assert 'declares ignore_index=11, 255' in result.warnings[0]


def test_absent_and_rare_classes(tmp_path):
    root = write_set(tmp_path, 4, values=(0, 1))
    pixels = np.zeros(SHAPE, np.uint8)
    pixels[0, 0] = 2
    write_label_file(root, 0, pixels)
    result = check_labels(open_set(root), model_config(), rare_share=1e-3)
    assert result.errors == []
    absent, rare = result.warnings
    check_says(absent, 'without a pixel: car', 'out of the list of classes.')
    assert 'very rare classes (share of pixels): tree (0.00016)' in rare


@pytest.mark.parametrize('policy', ['error', 'zero'])
def test_absent_classes_of_a_loss_with_offsets(tmp_path, policy):
    root = write_set(tmp_path, values=(0, 1, 2))
    offsets = OffsetSettings(absent_class=policy)
    report = check_labels(open_set(root), model_config(), offsets=offsets)
    (text,) = report.errors if policy == 'error' else report.warnings
    assert 'without a pixel: car' in text
    assert ("absent_class='zero'" in text) == (policy == 'error')
    assert len(report.errors + report.warnings) == 1


@pytest.mark.parametrize(
    ('settings', 'is_error', 'is_warning'),
    [
        ({}, True, False),
        ({'tau': 10.0}, False, True),
        ({'tau': 0.1}, False, False),
        ({'largest_offset': 31.0}, False, True),
        ({'largest_offset': 0.4}, False, False),
    ],
)
def test_offsets_beyond_the_scores(tmp_path, settings, is_error, is_warning):
    """A problem if nobody has chosen them, else a warning."""
    root = write_set(tmp_path, values=(0, 1, 2))
    pixels = np.zeros(SHAPE, np.uint8)
    pixels[0, 0] = 3
    write_label_file(root, 0, pixels)
    offsets = OffsetSettings(**settings)
    report = check_labels(open_set(root), model_config(), offsets=offsets)
    found = [
        [text for text in texts if 'largest_offset=0.4' in text]
        for texts in (report.errors, report.warnings)
    ]
    assert [len(texts) for texts in found] == [is_error, is_warning]
    for text in found[0] + found[1]:
        check_says(text, 'class 3 (car)', 'far beyond the scores')


def test_one_class_has_no_offsets(tmp_path):
    dataset = open_set(write_set(tmp_path, values=(0,)), ['bg', 'fg'])
    offsets = OffsetSettings(absent_class='zero')
    report = check_labels(dataset, model_config(), offsets=offsets)
    check_says(*report.errors, 'class 0 (bg) holds every labelled pixel')


@pytest.mark.parametrize('ignore_index', [255, 0, 9])
def test_masks_get_one_advice(tmp_path, ignore_index):
    dataset = open_set(write_set(tmp_path, values=(0, 255)), ['bg', 'fg'])
    report = check_labels(dataset, model_config((2, ignore_index)))
    check_says(report.errors[-1], 'map 255 to 1 in the files')
    assert 'list of classes' not in str(report)
    assert 'set ignore_index' not in str(report)


def test_validation_sets_without_labels_are_skipped(root):
    no_path = open_set(root)
    no_path.data_list = [{'img_path': 'a.png'}]
    no_path.serialize_data = False
    load_image = {'type': 'LoadImageFromFile'}
    no_loader = open_set(root, pipeline=[load_image])
    for dataset in (no_path, no_loader, [1, 2]):
        assert check_validation_labels(dataset, model_config()) is None


def test_everything_ignored(tmp_path):
    root = write_set(tmp_path, values=(255,))
    check_says(*report_on(root).errors, 'no pixel carries a class')
    for path in (root / 'ann').iterdir():
        path.write_bytes(b'')
    check_says(*report_on(root).errors, 'unreadable label files (6 file(s))')


def test_empty_data_set(tmp_path):
    write_set(tmp_path, 1)
    (tmp_path / 'img' / '0000.png').unlink()
    with pytest.raises(DataSetError, match='BaseSegDataset has no samples'):
        report_on(open_set(tmp_path, serialize_data=False))


def test_data_set_without_files():
    class Numbers(list):
        metainfo = {'classes': CLASSES}

    with pytest.raises(ValueError, match=r'Numbers has no get_data_info\(\)'):
        check_labels(Numbers([1, 2]), {})


@pytest.mark.skipif(os.geteuid() != 0, reason='needs root, to be another user')
def test_read_only_data_and_no_cache_folder(root, log):
    """As a user who may write nowhere, and not read everything."""
    dataset, model = open_set(root), model_config((4, 255))
    check_labels(dataset, model)  # imports what this user may not read
    (root / 'ann' / '0001.png').chmod(0)
    for folder in root.parents:
        # pytest's own folders are closed to others, however many there are.
        folder.chmod(folder.stat().st_mode | 0o111)
    before = sorted(root.rglob('*'))
    os.seteuid(65534)
    try:
        report = check_labels(dataset, model, StatsCache(root / 'cache'))
        StatsCache(root / 'cache').store(report.stats)
    finally:
        os.seteuid(0)
    check_says(*report.errors, '0001.png: Permission denied')
    assert 'are not kept in' in log()
    assert sorted(root.rglob('*')) == before


def test_image_rotated_by_exif(root):
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new('RGB', SHAPE).save(root / 'img' / '0000.png', exif=exif)
    assert report_on(root).errors == []


def test_images_of_other_formats_are_not_checked(tmp_path):
    root = write_set(tmp_path, 1)
    (root / 'img' / '0000.png').rename(root / 'img' / '0000.tif')
    (root / 'img' / '0000.tif').write_bytes(b'of a kind Pillow cannot read')
    dataset = open_set(root, img_suffix='.tif')
    assert report_on(dataset).errors == []
    (root / 'img' / '0000.tif').write_bytes(b'')
    assert 'img/0000.tif: the file is empty' in str(report_on(dataset))
