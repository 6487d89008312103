"""A small data set and what is in it."""

import pytest
from mmengine.registry import init_default_scope

from mmseg_margin.stats import scan
from tests.stats.builders import count_pixel_by_pixel, open_set, write_set


@pytest.fixture(autouse=True)
def _mmseg_scope():
    init_default_scope('mmseg')


@pytest.fixture
def root(tmp_path):
    """Five images with four classes and ignored pixels."""
    return write_set(tmp_path / 'data', 5)


@pytest.fixture
def counts(root):
    """What the hook has to find there."""
    return count_pixel_by_pixel([open_set(root)], 4)[0]


@pytest.fixture
def labels_read(monkeypatch):
    """The labels that were scanned."""
    read = []
    scan_label = scan._scan_label

    def scan_and_note(annotation, *args):
        read.append(annotation.label_path)
        scan_label(annotation, *args)

    monkeypatch.setattr(scan, '_scan_label', scan_and_note)
    return read
