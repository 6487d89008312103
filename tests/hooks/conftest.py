"""A small data set and what is in it."""

import pytest
from mmengine.registry import init_default_scope

from tests.stats.builders import count_pixel_by_pixel, open_set, write_set


@pytest.fixture
def root(tmp_path):
    """Five images with four classes and ignored pixels."""
    return write_set(tmp_path / 'data', 5)


@pytest.fixture
def counts(root):
    """What the hook has to find there."""
    init_default_scope('mmseg')
    return count_pixel_by_pixel([open_set(root)], 4)[0]
