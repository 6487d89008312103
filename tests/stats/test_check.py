"""Every problem in one report, with the file, the value and the fix."""

import os
import re

import numpy as np
import pytest
from mmengine.dataset import ConcatDataset
from mmseg.registry import TRANSFORMS
from PIL import Image

from mmseg_margin.errors import DataSetError
from mmseg_margin.functional import OffsetSettings
from mmseg_margin.stats import check_labels
from tests.stats.builders import (
    CLASSES,
    PIPELINE,
    SIZE,
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


def check_report(report, errors, warnings=()):
    """Each text is found by its pattern, and there are no others."""
    both = (report.errors, errors), (report.warnings, warnings)
    for found, expected in both:
        assert len(found) == len(expected), found
        for text, pattern in zip(found, expected, strict=True):
            assert re.search(pattern, text, re.DOTALL), text


def test_all_bad_files_in_one_report(tmp_path):
    root = write_set(tmp_path, 30, values=(0, 1, 2, 3))
    spoil_labels(root)
    bomb = write_png(np.zeros((1, 1), np.uint8), (60000, 60000))
    (root / 'ann' / '0005.png').write_bytes(bomb)
    write_label_file(root, 6, np.zeros((*SHAPE, 3), np.uint8))
    write_label_file(root, 7, np.zeros((8, 8), np.uint8))
    (root / 'img' / '0008.png').write_bytes(b'')
    for index in range(10, 30):
        write_label_file(root, index, np.full(SHAPE, 77, np.uint8))
    dataset = open_set(root)
    (root / 'img' / '0009.png').unlink()
    report = report_on(dataset)
    assert '6 problem(s), 0 warning(s)' in str(report)
    for headline, names in {
        'missing labels or images (2 ': ['ann/0001.png', 'img/0009.png'],
        'unreadable labels or images (4 ': [
            'ann/0000.png: image file is truncated',
            'ann/0002.png: the file is empty',
            'ann/0003.png: not an image file',
            'img/0008.png: the file is empty',
        ],
        'more pixels than Pillow accepts': ['ann/0005.png', '3600000000'],
        'without one class index': ['ann/0006.png: 3 channels'],
        'outside the classes: 77, 200 (21 ': [
            'ann/0004.png: 200',
            'ann/0018.png: 77\n    ... and 11 more',
        ],
        'another size': ['img/0007.png: image 48x32, label 8x8'],
    }.items():
        (problem,) = (x for x in report.errors if headline in x)
        for part in (*names, 'likely fix: '):
            assert part in problem


@pytest.mark.parametrize(
    ('values', 'ignore_index', 'fix'),
    [
        (ALL, 255, None),
        ((0, 1, 2, 3, 4), 255, 'ignore_index=4.*num_classes=5'),
        ((1, 2, 3, 4), 255, 'begin at 1.*reduce_zero_label=True'),
        ((0, 1, 77), 255, ': 77 .*LoadMappedAnnotations'),
        (ALL, 11, 'correct ignore_index'),
        ((0, 255), 255, r'a mask .*LoadMappedAnnotations.*\{255: 1\}'),
        ((0, 255), 9, r'a mask .*LoadMappedAnnotations.*\{255: 1\}'),
        ((255,), 255, 'no pixel carries a class'),
    ],
)
def test_likely_fix(tmp_path, values, ignore_index, fix):
    report = report_on(write_set(tmp_path, values=values), (4, ignore_index))
    errors = [fix] if fix else []
    check_report(report, errors, ['seg_pad_val'] * (ignore_index != 255))


def convert_to_jpeg(root):
    pixels = np.zeros(SHAPE, np.uint8)
    Image.fromarray(pixels).save(root / 'ann' / '0001.png', 'JPEG')


def make_thin(root):
    write_label_file(root, 1, np.zeros((SHAPE[0], 1), np.uint8))
    Image.new('RGB', (1, SHAPE[0])).save(root / 'img' / '0001.png')


def rotate_by_exif(root):
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new('RGB', SHAPE).save(root / 'img' / '0000.png', exif=exif)


def write_number(value):
    """LoadAnnotations casts it to something in 0 to 255 in silence."""

    def edit(root):
        pixels = np.zeros(SHAPE, np.float32)
        pixels[0, 0] = value
        Image.fromarray(pixels).save(root / 'ann' / '0003.png', 'TIFF')

    return edit


FRACTION = '0003.png: values that are not whole numbers'


@pytest.mark.parametrize(
    ('edit', 'errors'),
    [
        (convert_to_jpeg, ['JPEG.*ann/0001.png']),
        (make_thin, ['one pixel wide or high.*ann/0001.png']),
        (rotate_by_exif, []),
        (write_number(0.5), [FRACTION]),
        (write_number(np.nan), [FRACTION]),
    ],
)
def test_labels_and_images_that_are_read(root, edit, errors):
    edit(root)
    check_report(report_on(root), errors)


def test_minus_one_is_ignored_as_by_load_annotations(root):
    write_label_file(root, 3, np.zeros(SHAPE, np.uint8))
    before = report_on(root).stats.ignored
    write_number(-1)(root)
    report = report_on(root)
    assert report.stats.ignored == before + 1
    check_report(report, [], ['modulo 256'])


STRANGE = {
    'pipe': (os.mkfifo, 'not a regular file'),
    'folder': (os.mkdir, 'not a regular file'),
    'device': (lambda x: x.symlink_to('/dev/zero'), 'not a regular file'),
    'dangling link': (lambda x: x.symlink_to('nowhere'), 'No such file'),
    'program': (lambda x: x.write_bytes(PROGRAM), 'a PostScript program'),
}


@pytest.mark.parametrize('kind', STRANGE)
def test_files_that_would_block_or_fill_the_memory(root, kind):
    dataset = open_set(root)
    make, message = STRANGE[kind]
    path = root / 'ann' / '0003.png'
    path.unlink()
    make(path)
    (error,) = report_on(dataset).errors
    assert f'{path}: {message}' in error
    assert error.startswith('missing') == (kind == 'dangling link')


def test_heads(root):
    differ = ['auxiliary_head.0 has num_classes=19.*set num_classes=4']
    differ.append('auxiliary_head.0: 255, auxiliary_head.1: 11')
    check_report(report_on(root, (19, 255), (4, 11)), differ)
    write_set(root, values=(0, 1, 2, 3, 11))
    parts = [open_set(root), open_set(root, ignore_index=11)]
    report = report_on(ConcatDataset(parts), (4, 11))
    check_report(report, [], ['data set 0: 255, data set 1: 11'])


ABSENT = 'without a pixel: car'
LARGE = r'class 3 \(car\).*far beyond the scores.*largest_offset=0\.4'
RARE = r'very rare classes \(share of pixels\): car'


@pytest.mark.parametrize(
    ('label', 'settings', 'errors', 'warnings'),
    [
        (0, None, [], [ABSENT]),
        (0, {}, [], [ABSENT]),
        (0, {'absent_class': 'error'}, ["car.*absent_class='zero'"], [ABSENT]),
        (3, None, [], [RARE]),
        # Offsets beyond the scores are an error if nobody has chosen them.
        (3, {}, [LARGE], [RARE]),
        (3, {'tau': 10.0}, [], [RARE, LARGE]),
        (3, {'largest_offset': 0.4}, [], [RARE]),
    ],
)
def test_absent_and_rare_classes(tmp_path, label, settings, errors, warnings):
    root = write_set(tmp_path, 7, values=(0, 1, 2))
    pixels = np.zeros(SHAPE, np.uint8)
    pixels[0, 0] = label
    write_label_file(root, 0, pixels)
    offsets = None if settings is None else OffsetSettings(**settings)
    check_report(report_on(root, offsets=offsets), errors, warnings)


def test_validation_sets_without_labels_are_skipped(root):
    no_path = open_set(root)
    no_path.data_list = [{'img_path': str(root / 'img' / '0000.png')}]
    no_path.serialize_data = False
    no_loader = open_set(root, pipeline=[{'type': 'LoadImageFromFile'}])
    for dataset in (no_path, no_loader, [1, 2]):
        assert not str(report_on(root, validation=dataset))
    check_report(report_on(no_loader), ['without a label.*LoadAnnotations'])


@TRANSFORMS.register_module()
class RemapLabels:
    """A transform of a user."""

    def __call__(self, results):
        return results


def test_transforms_after_the_loading_are_named(root):
    later = [{'type': 'RandomFlip', 'prob': 0.5}, {'type': 'RemapLabels'}]
    packed = [*later, {'type': 'PackSegInputs'}, {'type': 'RemapLabels'}]
    dataset = open_set(root, pipeline=[*PIPELINE, *packed])
    check_report(report_on(dataset), [], [r': RemapLabels\n.*LoadMapped'])


def test_data_sets_without_files(tmp_path):
    class Numbers(list):
        metainfo = {'classes': CLASSES}

    with pytest.raises(DataSetError, match='Numbers'):
        check_labels(Numbers([1, 2]), {})
    write_set(tmp_path, 1)
    (tmp_path / 'img' / '0000.png').unlink()
    with pytest.raises(DataSetError, match='no samples'):
        report_on(open_set(tmp_path, serialize_data=False))
