"""Hostile label files: counted correctly or reported by name.

``MMSEG_MARGIN_FUZZ=10000`` makes a longer test of it.
"""

import io
import os
import shutil
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mmengine.registry import init_default_scope
from PIL import Image

from mmseg_margin.stats.label_files import LOADING_ERRORS, Problem
from mmseg_margin.stats.scan import list_annotations, read_labels
from tests.stats.builders import encode, encode_palette, open_set, write_png
from tests.stats.test_check import PROGRAM

NUM_FILES = int(os.environ.get('MMSEG_MARGIN_FUZZ', '400'))
FILES_PER_SCAN = 8
COUNTED = (Problem.LOSSY, Problem.SIZE, Problem.THIN, Problem.WRAPPED)
MAX_MUTATIONS = 4
SIDES = st.integers(1, 40)

# Those that keep every pixel as it is.
LOSSLESS: tuple[Callable[[np.ndarray], bytes], ...] = (
    encode,
    lambda x: encode_palette(x, 8),
    lambda x: encode(x.astype(np.uint16)),
    lambda x: encode(x, 'BMP'),
    lambda x: encode(x, 'TIFF', compression='tiff_lzw'),
    lambda x: encode(x.astype(np.int32), 'TIFF'),
)
OTHERS: tuple[Callable[[np.ndarray], bytes], ...] = (
    lambda x: encode_palette(x, 4),
    lambda x: encode(x > 99),
    lambda x: encode(x.astype(np.float32) / 7, 'TIFF'),
    lambda x: encode(np.stack([x, x, x], axis=2)),
    lambda x: encode(x, 'JPEG'),
    lambda x: b'',
    lambda x: x.tobytes(),
    lambda x: PROGRAM,
    lambda x: write_png(x, (60000, 60000)),
    lambda x: write_png(x, (1, 1)),  # more pixels than declared
)


# Of the content, a place in it and a byte.
MUTATIONS: tuple[Callable[[bytes, int, int], bytes], ...] = (
    lambda x, where, value: x[:where] + bytes([value]) + x[where + 1 :],
    lambda x, where, value: x[:where],
    lambda x, where, value: x[:where] + x[where : where + value] + x[where:],
    lambda x, where, value: x[:where] + x[where + value :],
    lambda x, where, value: x + bytes([value]) * where,
)


@st.composite
def label_files(draw: st.DrawFn) -> tuple[bytes, np.ndarray | None]:
    """Any format, in most cases damaged in up to four places.

    With its pixels if nothing was done to them.
    """
    seed, height, width = draw(st.integers(0, 2**32)), draw(SIDES), draw(SIDES)
    rng = np.random.default_rng(seed)
    high = draw(st.sampled_from([2, 5, 256]))
    pixels = rng.integers(0, high, (height, width)).astype(np.uint8)
    write = draw(st.sampled_from([*LOSSLESS, *LOSSLESS, *OTHERS]))
    content = write(pixels)
    number = draw(st.integers(0, MAX_MUTATIONS))
    for _ in range(number):
        if content:
            mutate = draw(st.sampled_from(MUTATIONS))
            where = draw(st.integers(0, 2**20)) % len(content)
            content = mutate(content, where, draw(st.integers(0, 255)))
    return content, pixels if write in LOSSLESS and not number else None


def count_with_pillow(content: bytes) -> np.ndarray | None:
    """The histogram by Pillow alone, (256,); None if it refuses."""
    try:
        with Image.open(io.BytesIO(content)) as image:
            pixels = np.array(image)
    except LOADING_ERRORS:
        return None
    with np.errstate(invalid='ignore'):
        return np.bincount(pixels.astype(np.uint8).ravel(), minlength=256)


@pytest.mark.filterwarnings('ignore')
def test_counted_correctly_or_reported_by_name(tmp_path):
    init_default_scope('mmseg')
    tried: Counter = Counter()
    labels = tmp_path / 'ann'
    (tmp_path / 'img').mkdir()
    paths = [labels / f'{index:04d}.png' for index in range(FILES_PER_SCAN)]
    for path in paths:
        Image.new('L', (1, 1)).save(tmp_path / 'img' / path.name)
    dataset = open_set(tmp_path, pipeline=[{'type': 'LoadAnnotations'}])
    every, none = np.ones(256, bool), np.zeros(256, bool)

    @given(st.lists(label_files(), min_size=8, max_size=FILES_PER_SCAN))
    @settings(
        max_examples=-(-NUM_FILES // FILES_PER_SCAN),
        database=None,
        derandomize='MMSEG_MARGIN_FUZZ' not in os.environ,
        suppress_health_check=list(HealthCheck),
    )
    def check(files: list[tuple[bytes, np.ndarray | None]]) -> None:
        shutil.rmtree(labels, ignore_errors=True)
        labels.mkdir()
        for path, (content, _) in zip(paths, files, strict=True):
            path.write_bytes(content)
        samples = list_annotations(dataset)
        sums, findings = read_labels(samples, every, none, num_threads=2)
        named = '\n'.join(x.text for x in findings if x.problem not in COUNTED)
        expected = np.zeros(256, np.int64)
        for path, (content, pixels) in zip(paths, files, strict=True):
            is_named = f'/ann/{path.name}' in named
            tried[is_named] += 1
            if pixels is not None:
                assert not is_named
                expected += np.bincount(pixels.ravel(), minlength=256)
            elif not is_named:
                by_pillow = count_with_pillow(content)
                assert by_pillow is not None
                expected += by_pillow
        np.testing.assert_array_equal(sums[3], expected)

    check()
    assert tried.total() >= NUM_FILES
    assert min(tried.values()) > NUM_FILES / 10
