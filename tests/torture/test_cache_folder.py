"""A cache folder that others write to: nothing forged is used or lost.

``MMSEG_MARGIN_FLIPS=1000`` makes a longer test of it.
"""

import os
import random
from dataclasses import replace

import pytest

from mmseg_margin.stats import Provenance, StatsCache
from tests.stats.test_class_stats import STATS as STATS_OF_STREETS

FLIPS = int(os.environ.get('MMSEG_MARGIN_FLIPS', '100'))
KEY = 'ab' * 32
STATS = replace(STATS_OF_STREETS, provenance=Provenance(fingerprint=KEY))


@pytest.fixture
def cache(tmp_path):
    cache = StatsCache(tmp_path / 'cache')
    cache.store(STATS)
    return cache


def test_no_flipped_bit_is_accepted(cache, record_property):
    path = cache.path_of(KEY)
    content = path.read_bytes()
    bits = range(8 * len(content))
    for bit in random.Random(0).choices(bits, k=FLIPS):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        assert cache.load(KEY) is None
    path.write_bytes(content)
    assert cache.load(KEY) == STATS
    record_property('flipped bits in the cache', FLIPS)


PLANTED = {
    'link': lambda path: path.symlink_to(path.parents[1] / 'stranger'),
    'dangling link': lambda path: path.symlink_to(path.parents[1] / 'nowhere'),
    'pipe': os.mkfifo,
    'folder': os.mkdir,
}


@pytest.mark.parametrize('kind', PLANTED)
def test_strange_files_are_neither_read_nor_written(
    cache, tmp_path, kind, record_property
):
    """Each in place of the file that the next run would read."""
    path, stranger = cache.path_of(KEY), tmp_path / 'stranger'
    before = path.read_bytes()
    path.rename(stranger)
    PLANTED[kind](path)
    assert cache.load(KEY) is None  # and it does not wait for the pipe
    cache.store(STATS)
    assert stranger.read_bytes() == before
    assert not (tmp_path / 'nowhere').exists()
    if kind != 'folder':
        assert path.is_file()
        assert not path.is_symlink()
        assert cache.load(KEY) == STATS
    record_property('strange files in the cache folder', 1)


@pytest.mark.skipif(os.geteuid() != 0, reason='needs root, to be another user')
def test_files_of_another_user(tmp_path, monkeypatch, record_property):
    """Ignored in the user's own folder; their drafts are left alone."""
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path))
    cache = StatsCache()
    cache.store(STATS)
    draft = cache.folder / f'.{KEY}.stats.{"0" * 32}.tmp'
    draft.write_text('{')
    os.utime(draft, (0, 0))
    for path in (draft, cache.path_of(KEY)):
        os.chown(path, 65534, 65534)
    assert cache.load(KEY) is None
    cache.store(STATS)
    assert draft.exists()
    assert cache.load(KEY) == STATS
    record_property('strange files in the cache folder', 2)
