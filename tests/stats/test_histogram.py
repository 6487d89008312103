"""Decoding against mmcv's, which ``LoadAnnotations`` uses."""

import io

import mmcv
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from mmseg_margin.stats.histogram import (
    NotAnIndexMapError,
    decode,
    histogram,
)
from tests.stats.builders import bomb_png, write_png

RNG = np.random.default_rng(0)


def encode(image: Image.Image, fmt: str = 'PNG', **kwargs) -> bytes:
    file = io.BytesIO()
    image.save(file, fmt, **kwargs)
    return file.getvalue()


def grey(height: int, width: int, high: int = 256) -> np.ndarray:
    return RNG.integers(0, high, (height, width)).astype(np.uint8)


def palette(pixels: np.ndarray, bits: int) -> bytes:
    image = Image.fromarray(pixels)
    image.putpalette([7 * i % 256 for i in range(3 * 2**bits)])
    return encode(image, bits=bits)


LABELS = {
    'grey': encode(Image.fromarray(grey(33, 47))),
    'single pixel': encode(Image.fromarray(grey(1, 1))),
    'one row': encode(Image.fromarray(grey(1, 50))),
    'palette': palette(grey(33, 47), 8),
    'palette of 4 bits': palette(grey(33, 47, 16), 4),
    'palette of 2 bits': palette(grey(33, 47, 4), 2),
    'palette of 1 bit': palette(grey(33, 47, 2), 1),
    'black and white': encode(Image.fromarray(grey(9, 11, 2) > 0)),
    '16 bits': encode(
        Image.fromarray(RNG.integers(0, 2**16, (20, 30)).astype(np.uint16))
    ),
    '16 bits, small': encode(
        Image.fromarray(RNG.integers(0, 200, (20, 30)).astype(np.uint16))
    ),
    'TIFF of 32 bits': encode(
        Image.fromarray(RNG.integers(0, 2**31, (20, 30)).astype(np.int32)),
        'TIFF',
    ),
    'BMP': encode(Image.fromarray(grey(21, 31)), 'BMP'),
    'JPEG': encode(Image.fromarray(grey(21, 31)), 'JPEG'),
    'interlaced': write_png(grey(21, 31), interlaced=True),
    'rows missing': write_png(grey(21, 31), (31, 40)),
    'transparent palette': encode(
        Image.fromarray(grey(21, 31)).convert('P'), transparency=3
    ),
}


@pytest.mark.parametrize('name', LABELS)
def test_histogram_is_that_of_load_annotations(name):
    content = LABELS[name]
    array = mmcv.imfrombytes(content, flag='unchanged', backend='pillow')
    expected = np.bincount(array.astype(np.uint8).ravel(), minlength=256)
    decoded = decode(content)
    np.testing.assert_array_equal(decoded.histogram, expected)
    assert decoded.size == array.shape[::-1]
    assert decoded.wrapped == bool(array.max() > 255)
    assert decoded.lossy == (name == 'JPEG')
    assert decoded.outside == ()


def tiff(values, dtype):
    return encode(Image.fromarray(np.array([values, values], dtype)), 'TIFF')


def test_whole_numbers_of_any_type_are_labels():
    decoded = decode(tiff([0, 2, 255], np.float32))
    assert decoded.histogram[[0, 2, 255]].tolist() == [2, 2, 2]
    assert decoded.outside == ()


@pytest.mark.parametrize(
    ('dtype', 'values', 'outside'),
    [
        (np.int32, [-1, 0, 3], (-1,)),
        (np.int32, [-(2**31), -3, 3], (-(2**31), -3)),
        (np.float32, [-1, 0, 300], (-1, 300)),
    ],
)
def test_values_that_no_byte_can_hold(dtype, values, outside):
    decoded = decode(tiff(values, dtype))
    assert decoded.outside == outside
    assert decoded.histogram.sum() == 2 * (3 - len(outside))


@pytest.mark.parametrize('value', [0.5, np.nan, np.inf])
def test_real_numbers_are_no_class_indices(value):
    with pytest.raises(NotAnIndexMapError, match='not whole numbers'):
        decode(tiff([0, 1, value], np.float32))


@pytest.mark.parametrize('mode', ['RGB', 'RGBA', 'LA'])
def test_colours_are_no_class_indices(mode):
    with pytest.raises(NotAnIndexMapError, match='channels instead of one'):
        decode(encode(Image.new(mode, (8, 8))))


def test_a_decompression_bomb_is_not_decoded():
    with pytest.raises(Image.DecompressionBombError, match='3600000000'):
        decode(bomb_png(60000))


@given(
    st.integers(0, 2_100_000),
    st.sampled_from([1, 2, 3, 8, 20, 64, 3000, 10**6]),
    st.integers(1, 256),
    st.integers(0, 2**32),
)
@settings(max_examples=25, deadline=None)
def test_histogram_of_runs(size, longest_run, num_values, seed):
    rng = np.random.default_rng(seed)
    runs = rng.integers(1, longest_run + 1, size // max(longest_run // 4, 1))
    values = rng.integers(0, num_values, len(runs)).astype(np.uint8)
    values = np.repeat(values, runs)[:size]
    expected = np.bincount(values, minlength=256)
    np.testing.assert_array_equal(histogram(values), expected)
