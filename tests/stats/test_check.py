"""Every problem in one report, with the file, the value and the fix."""

import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from mmengine.dataset import ConcatDataset
from mmseg.registry import TRANSFORMS
from PIL import Image

from mmseg_margin.errors import DataSetError
from mmseg_margin.functional import OffsetSettings
from mmseg_margin.stats import CheckOptions, check_labels
from tests.stats.builders import (
    CLASSES,
    PIPELINE,
    SIZE,
    check_scan,
    model_config,
    open_set,
    report_on,
    spoil_labels,
    write_label_file,
    write_png,
    write_set,
)

SHAPE = SIZE[::-1]
ALL = (0, 1, 2, 3, 255)
PROGRAM = (
    b'%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n'
    b'(executed) (w) file closefile\n%%EOF\n'
)


def check_says(text, *parts):
    for part in parts:
        assert part in text


def check_report(report, errors, warnings=()):
    """Each text is found by its pattern, and there are no others."""
    both = (report.errors, errors), (report.warnings, warnings)
    for found, expected in both:
        assert len(found) == len(expected), found
        for text, pattern in zip(found, expected, strict=True):
            assert re.search(pattern, text, re.DOTALL), text


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
    text = str(report_on(write_set(tmp_path, 30, values=(0, 1, 2, 3, 4))))
    check_says(text, '4 in 30 file(s)', '0009.png', '... and 20 more')
    assert '0010.png' not in text


@pytest.mark.parametrize(
    ('values', 'ignore_index', 'fix'),
    [
        (ALL, 255, None),
        ((0, 1, 2, 3, 4), 255, 'set ignore_index=4 in every head'),
        ((1, 2, 3, 4), 255, 'from 1 to 4, so set reduce_zero_label=True'),
        (range(60), 255, 'look like a picture or an interpolated label'),
        ((0, 1, 77), 255, 'map these values to classes or to the ignore'),
        ((0, 255), 255, r'LoadMappedAnnotations.*\{255: 1\}'),
        (ALL, 11, r'set ignore_index=255 \(it is 11\)'),
        ((255,), 255, 'no pixel carries a class'),
    ],
)
def test_likely_fix(tmp_path, values, ignore_index, fix):
    report = report_on(write_set(tmp_path, values=values), (4, ignore_index))
    errors = [fix] if fix else []
    check_report(report, errors, ['seg_pad_val'] * (ignore_index == 11))


@pytest.mark.parametrize('ignore_index', [255, 0, 9])
def test_masks_get_one_advice(tmp_path, ignore_index):
    root = write_set(tmp_path, 12, values=(0, 255))
    write_label_file(root, 0, np.zeros(SHAPE, np.uint8))
    dataset, model = open_set(root, ['bg', 'fg']), (2, ignore_index)
    report = report_on(dataset, model)
    said = 'a mask rather than class indices (12', '... and 2 more'
    check_says(report.errors[-1], *said, 'mapping={255: 1})')
    assert 'list of classes' not in str(report)
    assert 'set ignore_index' not in str(report)
    write_label_file(root, 1, np.ones(SHAPE, np.uint8))
    assert 'a mask' not in str(report_on(dataset, model))


def convert_to_jpeg(root):
    for path in (root / 'ann').iterdir():
        with Image.open(path) as image:
            image.save(path, 'JPEG')


def make_thin(root):
    write_label_file(root, 1, np.zeros((SHAPE[0], 1), np.uint8))
    Image.new('RGB', (1, SHAPE[0])).save(root / 'img' / '0001.png')


def rotate_by_exif(root):
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new('RGB', SHAPE).save(root / 'img' / '0000.png', exif=exif)


def empty_labels(root):
    for path in (root / 'ann').iterdir():
        path.write_bytes(b'')


def write_number(value, dtype=np.float32):
    """LoadAnnotations casts it to something in 0 to 255 in silence."""

    def edit(root):
        pixels = np.zeros(SHAPE, dtype)
        pixels[0, 0] = value
        Image.fromarray(pixels).save(root / 'ann' / '0003.png', 'TIFF')

    return edit


JPEG = r'in JPEG, a lossy format.*\(6 file', 'likely fix: JPEG is lossy, see'
FRACTION = '0003.png: values that are not whole numbers'


@pytest.mark.parametrize(
    ('edit', 'errors'),
    [
        (convert_to_jpeg, JPEG),
        (make_thin, ['one pixel wide or high.*ann/0001.png']),
        (rotate_by_exif, []),
        (empty_labels, [r'unreadable label files \(6 file']),
        (write_number(0.5), [FRACTION]),
        (write_number(np.nan), [FRACTION]),
        (write_number(np.inf), [FRACTION]),
    ],
)
def test_labels_and_images_that_are_read(root, edit, errors):
    edit(root)
    check_report(report_on(root), errors)


@pytest.mark.parametrize('dtype', [np.int32, np.float32])
def test_minus_one_is_ignored_as_by_load_annotations(root, dtype):
    ignored = report_on(root).stats.ignored
    write_label_file(root, 3, np.zeros(SHAPE, np.uint8))
    before = report_on(root).stats.ignored
    write_number(-1, dtype)(root)
    report = report_on(root)
    assert ignored > before == report.stats.ignored - 1
    check_report(report, [], ['modulo 256'])


def loop(path):
    other = path.with_name('other.png')
    other.symlink_to(path)
    path.symlink_to(other)


def large(path):
    """Two terabytes that take no room."""
    path.touch()
    os.truncate(path, 2 << 40)


BOTH = {
    'pipe': (os.mkfifo, ': not a regular file'),
    'folder': (os.mkdir, ': not a regular file'),
    'device': (lambda x: x.symlink_to('/dev/zero'), ': not a regular file'),
    'loop': (loop, ': Too many levels of symbolic links'),
    'dangling link': (lambda x: x.symlink_to(x.parent / 'nowhere'), '\n'),
}
STRANGE = {
    **{('img', kind): case for kind, case in BOTH.items()},
    **{('ann', kind): case for kind, case in BOTH.items()},
    ('ann', 'large'): (large, ': 2199023255552 bytes, more than'),
    ('ann', 'program'): (
        lambda x: x.write_bytes(PROGRAM),
        ': a PostScript program, which is not run',
    ),
}


@pytest.mark.parametrize(('folder', 'kind'), STRANGE)
def test_files_that_would_block_or_fill_the_memory(root, folder, kind):
    dataset = open_set(root)
    path = root / folder / '0003.png'
    path.unlink()
    make, message = STRANGE[folder, kind]
    make(path)
    (error,) = report_on(dataset).errors
    assert f'{folder}/0003.png{message}' in error
    assert error.startswith('missing') == (kind == 'dangling link')


def test_links(root, tmp_path):
    """Data sets are often made of links to where the data are."""
    elsewhere = tmp_path / 'elsewhere'
    shutil.move(root / 'ann', elsewhere)
    (root / 'ann').mkdir()
    for path in elsewhere.iterdir():
        (root / 'ann' / path.name).symlink_to(path)
    check_scan(open_set(root))


def test_images_of_other_formats_are_not_checked(tmp_path):
    root = write_set(tmp_path, 1)
    image = (root / 'img' / '0000.png').rename(root / 'img' / '0000.tif')
    image.write_bytes(b'of a kind Pillow cannot read')
    dataset = open_set(root, img_suffix='.tif')
    assert report_on(dataset).errors == []
    image.write_bytes(b'')
    assert 'img/0000.tif: the file is empty' in str(report_on(dataset))


def test_settings_of_the_data_set_and_its_loader(tmp_path):
    root = write_set(tmp_path, values=(0, 1, 2, 3))
    needless = report_on(open_set(root, reduce_zero_label=True))
    check_report(
        needless, [], ['without a pixel: car.*turn off reduce_zero_label']
    )
    pipeline = [{'type': 'LoadAnnotations', 'reduce_zero_label': True}]
    (error,) = report_on(open_set(root, pipeline=pipeline)).errors
    failed = 'the loading transform failed (6 file(s))'
    check_says(error, failed, 'the `reduce_zero_label` is True')


def test_heads(root):
    differ = ['auxiliary_head.0 has num_classes=19.*num_classes=4 in auxil']
    differ.append('auxiliary_head.0: 255, auxiliary_head.1: 11')
    report = report_on(root, (19, 255), (4, 11))
    check_report(report, differ, ['every seg_pad_val'])


def test_ignore_index_of_heads_and_data_sets(tmp_path):
    root = write_set(tmp_path, values=(0, 1, 2, 3, 11))
    parts = [open_set(root), open_set(root, ignore_index=11)]
    report = report_on(ConcatDataset(parts), (4, 11))
    check_report(report, [], ['declares ignore_index=11, 255'])


def rare_class(root: Path, values, label):
    """A set of these classes, and one pixel of another."""
    write_set(root, 4, values)
    pixels = np.zeros(SHAPE, np.uint8)
    pixels[0, 0] = label
    write_label_file(root, 0, pixels)
    return open_set(root)


def test_absent_and_rare_classes(tmp_path):
    dataset = rare_class(tmp_path, (0, 1), 2)
    absent = r'without a pixel: car.*out of the list of classes\.'
    rare = r'very rare classes \(share of pixels\): tree \(0.00016\)'
    options = CheckOptions(rare_share=1e-3)
    report = check_labels(dataset, model_config(), options=options)
    check_report(report, [], [absent, rare])


ABSENT = 'without a pixel: car'
LARGE = r'class 3 \(car\).*far beyond the scores.*largest_offset=0\.4'


@pytest.mark.parametrize(
    ('label', 'settings', 'error', 'warning'),
    [
        (0, {}, None, ABSENT),
        (0, {'absent_class': 'error'}, f"{ABSENT}.*absent_class='zero'", None),
        # Offsets beyond the scores are an error if nobody has chosen them.
        (3, {}, LARGE, None),
        (3, {'tau': 10.0}, None, LARGE),
        (3, {'tau': 0.1}, None, None),
        (3, {'largest_offset': 31.0}, None, LARGE),
        (3, {'largest_offset': 0.4}, None, None),
    ],
)
def test_classes_of_a_loss_with_offsets(
    tmp_path, label, settings, error, warning
):
    report = check_labels(
        rare_class(tmp_path, (0, 1, 2), label),
        model_config(),
        options=CheckOptions(rare_share=0, offsets=OffsetSettings(**settings)),
    )
    check_report(report, *([x] if x else [] for x in (error, warning)))


def test_one_class_has_no_offsets(tmp_path):
    dataset = open_set(write_set(tmp_path, values=(0,)), ['bg', 'fg'])
    options = CheckOptions(offsets=OffsetSettings())
    report = check_labels(dataset, model_config(), options=options)
    assert 'class 0 (bg) holds every labelled pixel' in report.errors[0]


def test_validation_sets_without_labels_are_skipped(root):
    no_path = open_set(root)
    no_path.data_list = [{'img_path': 'a.png'}]
    no_path.serialize_data = False
    no_loader = open_set(root, pipeline=[{'type': 'LoadImageFromFile'}])
    for dataset in (no_path, no_loader, [1, 2]):
        report = check_labels(
            open_set(root), model_config(), validation=dataset
        )
        assert str(report) == ''
    check_report(report_on(no_loader), ['without a label.*LoadAnnotations'])


@TRANSFORMS.register_module()
class RemapLabels:
    """A transform of a user."""

    def __call__(self, results):
        return results


def test_transforms_after_the_loading_are_named(root):
    later = [{'type': 'RandomFlip', 'prob': 0.5}, {'type': 'RemapLabels'}]
    packed = [*later, {'type': 'PackSegInputs'}, {'type': 'RemapLabels'}]
    for loader in ('LoadAnnotations', 'LoadAnnotationsPlusOne'):
        pipeline = [PIPELINE[0], {'type': loader}]
        assert str(report_on(open_set(root, pipeline=pipeline))) == ''
        dataset = open_set(root, pipeline=[*pipeline, *packed])
        check_report(report_on(dataset), [], [r': RemapLabels\n.*LoadMapped'])


def test_data_sets_without_files(tmp_path):
    class Numbers(list):
        metainfo = {'classes': CLASSES}

    with pytest.raises(ValueError, match='Numbers'):
        check_labels(Numbers([1, 2]), {})
    write_set(tmp_path, 1)
    (tmp_path / 'img' / '0000.png').unlink()
    with pytest.raises(DataSetError, match='no samples'):
        report_on(open_set(tmp_path, serialize_data=False))
