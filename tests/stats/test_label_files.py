"""Decoding against mmcv's, and loading against the real pipeline."""

import mmcv
import numpy as np
import pytest
from mmseg.datasets.transforms import LoadAnnotations
from mmseg.registry import TRANSFORMS

from mmseg_margin.stats import collect_stats
from mmseg_margin.stats.label_files import (
    Problem,
    count_values,
    decode,
)
from tests.stats.builders import (
    PIPELINE,
    Streets,
    check_scan,
    encode,
    encode_palette,
    open_set,
    write_png,
    write_set,
)

RNG = np.random.default_rng(0)


def noise(height=21, width=31, high=256, dtype=np.uint8) -> np.ndarray:
    return RNG.integers(0, high, (height, width)).astype(dtype)


def tiff(values, dtype):
    return encode(np.array([values, values], dtype), 'TIFF')


LABELS = {
    'grey': encode(noise()),
    'one row': encode(noise(1, 50)),
    'palette': encode_palette(noise(), 8),
    'palette of 1 bit': encode_palette(noise(), 1),
    'black and white': encode(noise(9, 11, 2) > 0),
    '16 bits': encode(noise(high=2**16, dtype=np.uint16)),
    'TIFF far below 0': tiff([-(2**31), -3, -1], np.int32),
    'TIFF of floats': tiff([0, 2, 255], np.float32),
    'TIFF of floats with -1': tiff([-1, 0, 3], np.float32),
    'JPEG': encode(noise(), 'JPEG'),
    'rows missing': write_png(noise(), (31, 40)),
}


@pytest.mark.parametrize('name', LABELS)
def test_histogram_is_that_of_load_annotations(tmp_path, name):
    path = tmp_path / 'label'
    path.write_bytes(LABELS[name])
    info = {'seg_map_path': str(path), 'reduce_zero_label': False}
    delivered = LoadAnnotations()({**info, 'seg_fields': []})['gt_seg_map']
    decoded = decode(LABELS[name])
    expected = np.bincount(delivered.ravel(), minlength=256)
    np.testing.assert_array_equal(decoded.stored, expected)
    assert decoded.outside == ()
    array = mmcv.imfrombytes(LABELS[name], 'unchanged', backend='pillow')
    assert decoded.size == array.shape[::-1]
    is_wrapped = array.min() < 0 or array.max() > 255
    assert (Problem.WRAPPED in decoded.problems) == is_wrapped
    assert (Problem.LOSSY in decoded.problems) == (name == 'JPEG')
    assert (Problem.THIN in decoded.problems) == (1 in array.shape)


def test_arrays_of_any_shape_and_type():
    values = RNG.integers(0, 256, (3, 5, 7)).astype(np.float32)
    values.flat[0] = -1
    expected = np.bincount(values.astype(int).ravel()[1:], minlength=256)
    label = count_values(values)
    np.testing.assert_array_equal(label.stored, expected)
    assert label.outside == (-1,)


@TRANSFORMS.register_module()
class LoadAnnotationsPlusOne(LoadAnnotations):
    """A subclass of a user, which does something else to pixels."""

    def _load_seg_map(self, results):
        super()._load_seg_map(results)
        labels = results['gt_seg_map'].astype(np.int64)
        results['gt_seg_map'] = (labels + 1) % 4


NUMPY = {'decode_backend': 'numpy'}


@pytest.mark.parametrize(
    ('transform', 'suffix'),
    [
        ({'type': 'LoadAnnotationsPlusOne'}, '.png'),
        ({'type': 'LoadAnnotations', 'imdecode_backend': 'cv2'}, '.png'),
        ({'type': 'LoadBiomedicalAnnotation', **NUMPY}, '.npy'),
    ],
)
def test_other_loading_transforms_are_run(root, transform, suffix):
    for index in range(6):
        volume = np.full((5, 6, 7), index % 3, dtype=np.int16)
        np.save(root / 'ann' / f'{index:04d}.npy', volume)
    pipeline = [PIPELINE[0], transform]
    check_scan(open_set(root, pipeline=pipeline, seg_map_suffix=suffix))


@pytest.mark.parametrize('reduce', [False, True])
@pytest.mark.parametrize('classes', [None, ('car', 'road')])
def test_a_mapping_is_applied_to_the_histogram(
    tmp_path, monkeypatch, reduce, classes
):
    """Not to the pixels, and before the mappings of the data set."""
    root = write_set(tmp_path, values=(0, 7, 255))
    mapped = {'type': 'LoadMappedAnnotations', 'mapping': {255: 1, 7: 2}}
    settings = {'kind': Streets, 'reduce_zero_label': reduce}
    dataset = open_set(root, classes, [PIPELINE[0], mapped], **settings)
    right = check_scan(dataset).stats
    # The transform is not called with any of the files.
    load = LoadAnnotations._load_seg_map

    def load_another(self, results):
        assert str(root) not in results['seg_map_path']
        load(self, results)

    monkeypatch.setattr(LoadAnnotations, '_load_seg_map', load_another)
    assert collect_stats(dataset).stats == right
