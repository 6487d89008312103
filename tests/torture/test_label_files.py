"""Hostile label files: counted correctly or reported by name.

``MMSEG_MARGIN_FUZZ=10000`` makes a longer test of it.
"""

import io
import os
import resource
import shutil
from collections import Counter

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from mmseg_margin.stats.annotations import list_annotations
from mmseg_margin.stats.label_files import LOADING_ERRORS
from mmseg_margin.stats.problems import FILES_SHOWN, Problem
from mmseg_margin.stats.scan import LabelRange, scan
from tests.stats.builders import open_set
from tests.torture.hostile_labels import LabelFile, label_files

NUM_FILES = int(os.environ.get('MMSEG_MARGIN_FUZZ', '400'))
FILES_PER_SCAN = min(8, FILES_SHOWN)  # so that the findings name them all
NOT_COUNTED = (
    Problem.MISSING_LABEL,
    Problem.UNREADABLE_LABEL,
    Problem.TOO_LARGE,
    Problem.NOT_AN_INDEX_MAP,
    Problem.LOADING_FAILED,
)
MOST_MEMORY = 3 << 30


def count_with_pillow(content: bytes) -> np.ndarray | None:
    """The histogram by Pillow alone, (256,); None if it refuses."""
    try:
        with Image.open(io.BytesIO(content)) as image:
            if image.format == 'EPS':
                return None
            pixels = np.array(image)
    except LOADING_ERRORS:
        return None
    if pixels.ndim != 2:
        return None
    if pixels.dtype.kind == 'f' or pixels.min() < 0:
        # Values that do not fit into a byte are reported, but not counted.
        pixels = pixels[(pixels >= 0) & (pixels < 256)]
    with np.errstate(invalid='ignore'):
        return np.bincount(pixels.astype(np.uint8).ravel(), minlength=256)


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    """A data set of as many images as are scanned together."""
    root = tmp_path_factory.mktemp('hostile')
    (root / 'img').mkdir()
    for index in range(FILES_PER_SCAN):
        Image.new('L', (1, 1)).save(root / 'img' / f'{index:04d}.png')
    return root


@pytest.mark.filterwarnings('ignore')
def test_counted_correctly_or_reported_by_name(folder, record_property):
    tried: Counter = Counter()
    dataset = open_set(folder, pipeline=[{'type': 'LoadAnnotations'}])
    samples = list_annotations(dataset)

    @given(st.lists(label_files(), min_size=8, max_size=FILES_PER_SCAN))
    @settings(
        max_examples=-(-NUM_FILES // FILES_PER_SCAN),
        database=None,
        derandomize='MMSEG_MARGIN_FUZZ' not in os.environ,
        suppress_health_check=list(HealthCheck),
    )
    def check(files: list[LabelFile]) -> None:
        shutil.rmtree(folder / 'ann', ignore_errors=True)
        (folder / 'ann').mkdir()
        expected = np.zeros(256, np.int64)
        for index, file in enumerate(files):
            (folder / 'ann' / f'{index:04d}.png').write_bytes(file.content)
        result = scan(samples, LabelRange(None), num_threads=2)
        named = '\n'.join(
            text
            for kind in NOT_COUNTED
            if kind in result.problems
            for _, text in result.problems[kind].first
        )
        for index, file in enumerate(files):
            by_pillow = count_with_pillow(file.content)
            is_named = f'/ann/{index:04d}.png' in named
            if file.pixels is not None:
                assert not is_named
                by_pillow = np.bincount(file.pixels.ravel(), minlength=256)
            tried['reported by name' if is_named else 'counted correctly'] += 1
            if not is_named:
                assert by_pillow is not None
                expected += by_pillow
        np.testing.assert_array_equal(result.sums[3], expected)

    check()
    assert tried.total() >= NUM_FILES
    assert min(tried.values()) > NUM_FILES / 10
    memory = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert memory < MOST_MEMORY
    for what, number in tried.items():
        record_property(f'label files {what}', number)
    record_property('MiB of memory at most', memory >> 20)
