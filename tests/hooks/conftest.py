"""A small data set and what is in it."""

import pytest
from mmengine.registry import init_default_scope

from mmseg_margin.stats.label_files import Annotation
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
    load = Annotation.load

    def load_and_note(annotation):
        read.append(annotation.label_path)
        return load(annotation)

    monkeypatch.setattr(Annotation, 'load', load_and_note)
    return read
