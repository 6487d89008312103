"""Decoding against mmcv's, and loading against the real pipeline."""

import tempfile

import mmcv
import numpy as np
import pytest
from mmseg.datasets.transforms import LoadAnnotations
from mmseg.registry import TRANSFORMS
from PIL import Image

from mmseg_margin.stats.label_files import (
    NotAnIndexMapError,
    count_values,
    decode,
)
from tests.stats.builders import (
    check_scan,
    encode,
    encode_palette,
    open_set,
    write_label_file,
    write_png,
)

RNG = np.random.default_rng(0)


def noise(height=21, width=31, high=256, dtype=np.uint8) -> np.ndarray:
    return RNG.integers(0, high, (height, width)).astype(dtype)


LABELS = {
    'grey': encode(noise()),
    'single pixel': encode(noise(1, 1)),
    'one row': encode(noise(1, 50)),
    'palette': encode_palette(noise(), 8),
    'palette of 4 bits': encode_palette(noise(), 4),
    'palette of 2 bits': encode_palette(noise(), 2),
    'palette of 1 bit': encode_palette(noise(), 1),
    'black and white': encode(noise(9, 11, 2) > 0),
    '16 bits': encode(noise(high=2**16, dtype=np.uint16)),
    '16 bits, small': encode(noise(high=200, dtype=np.uint16)),
    'TIFF of 32 bits': encode(noise(high=2**31, dtype=np.int32), 'TIFF'),
    'BMP': encode(noise(), 'BMP'),
    'JPEG': encode(noise(), 'JPEG'),
    'interlaced': write_png(noise(), interlaced=True),
    'rows missing': write_png(noise(), (31, 40)),
    'transparent palette': encode_palette(noise(), 8, transparency=3),
}


@pytest.mark.parametrize('name', LABELS)
def test_histogram_is_that_of_load_annotations(name):
    content = LABELS[name]
    array = mmcv.imfrombytes(content, flag='unchanged', backend='pillow')
    expected = np.bincount(array.astype(np.uint8).ravel(), minlength=256)
    decoded = decode(content)
    np.testing.assert_array_equal(decoded.stored, expected)
    assert decoded.size == array.shape[::-1]
    assert decoded.wrapped == bool(array.max() > 255)
    assert decoded.lossy == (name == 'JPEG')
    assert decoded.outside == ()


def tiff(values, dtype):
    return encode(np.array([values, values], dtype), 'TIFF')


@pytest.mark.parametrize(
    ('dtype', 'values', 'outside'),
    [
        (np.float32, [0, 2, 255], ()),
        (np.int32, [-1, 0, 3], (-1,)),
        (np.int32, [-(2**31), -3, 3], (-(2**31), -3)),
        (np.float32, [-1, 0, 300], (-1, 300)),
    ],
)
def test_values_that_no_byte_can_hold(dtype, values, outside):
    decoded = decode(tiff(values, dtype))
    assert decoded.outside == outside
    counted = np.repeat(np.arange(256), decoded.stored).tolist()
    assert counted == sorted(2 * [x for x in values if x not in outside])


@pytest.mark.parametrize('mode', ['RGB', 'RGBA', 'LA'])
def test_colours_are_no_class_indices(mode):
    with pytest.raises(NotAnIndexMapError, match='channels, not one'):
        decode(encode(np.asarray(Image.new(mode, (8, 8)))))


@pytest.mark.parametrize('shape', [(0,), (7,), (5, 6), (3, 5, 7)])
@pytest.mark.parametrize('dtype', [np.uint8, np.int16, np.int64, np.float32])
def test_arrays_of_any_shape_and_type(shape, dtype):
    values = RNG.integers(0, 256, shape).astype(dtype)[..., ::2]
    expected = np.bincount(values.astype(int).ravel(), minlength=256)
    np.testing.assert_array_equal(count_values(values).stored, expected)


@TRANSFORMS.register_module()
class LoadAnnotationsPlusOne(LoadAnnotations):
    """A subclass of a user, which does something else to pixels."""

    def _load_seg_map(self, results):
        super()._load_seg_map(results)
        labels = results['gt_seg_map'].astype(np.int64)
        results['gt_seg_map'] = (labels + 1) % 4


@TRANSFORMS.register_module()
class LoadColours(LoadAnnotations):
    """Three-channel labels: the class is the sum of the channels."""

    def _load_seg_map(self, results):
        self.imdecode_backend = 'cv2'
        super()._load_seg_map(results)
        results['gt_seg_map'] = results['gt_seg_map'].sum(-1) % 4


@pytest.mark.parametrize(
    ('transform', 'suffix'),
    [
        ({'type': 'LoadAnnotationsPlusOne'}, '.png'),
        ({'type': 'LoadColours'}, '.png'),
        ({'type': 'LoadAnnotations', 'imdecode_backend': 'cv2'}, '.png'),
        (
            {'type': 'LoadBiomedicalAnnotation', 'decode_backend': 'numpy'},
            '.npy',
        ),
    ],
)
def test_other_loading_transforms_are_run(root, transform, suffix):
    for index in range(6):
        if transform['type'] == 'LoadColours':
            colours = np.full((32, 48, 3), index // 2, dtype=np.uint8)
            write_label_file(root, index, colours)
        volume = np.full((5, 6, 7), index % 3, dtype=np.int16)
        np.save(root / 'ann' / f'{index:04d}.npy', volume)
    pipeline = [{'type': 'LoadImageFromFile'}, transform]
    dataset = open_set(root, pipeline=pipeline, seg_map_suffix=suffix)
    check_scan(dataset)


def test_no_temporary_folder_is_needed(root, monkeypatch):
    def fail(*args, **kwargs):
        raise FileNotFoundError('No usable temporary directory found')

    for name in ('gettempdir', 'mkstemp', 'mkdtemp', 'TemporaryDirectory'):
        monkeypatch.setattr(tempfile, name, fail)
    check_scan(open_set(root))
