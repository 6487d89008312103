"""Transforms are looked up as in a config of MMSegmentation."""

from pathlib import Path

import pytest
from mmengine.registry import init_default_scope

from mmseg_margin.stats import StatsCache
from tests.stats.builders import write_set


@pytest.fixture(autouse=True)
def _mmseg_scope() -> None:
    init_default_scope('mmseg')


@pytest.fixture
def root(tmp_path) -> Path:
    """A data set of six images."""
    return write_set(tmp_path / 'data')


@pytest.fixture
def cache(tmp_path) -> StatsCache:
    return StatsCache(tmp_path / 'cache')
