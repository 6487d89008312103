"""When earlier statistics are taken, and when the next run may have these."""

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from mmseg_margin.stats import ClassStats, collect_stats
from mmseg_margin.stats import cache as trust
from mmseg_margin.stats.label_files import FileLoader
from tests.layouts import label_array, write_label
from tests.stats.builders import SIZE, open_set
from tests.stats.test_annotations import same_size


def test_second_run_reads_no_label(root, cache, monkeypatch):
    def fail(self, info, source):
        raise NotImplementedError

    first = collect_stats(open_set(root), cache=cache).stats
    monkeypatch.setattr(FileLoader, 'load', fail)
    assert collect_stats(open_set(root), cache=cache).stats == first
    with pytest.raises(NotImplementedError):
        collect_stats(open_set(root), ignore_index=3, cache=cache)


def test_other_classes_under_the_same_key_are_not_taken(root, cache):
    """Neither from the cache nor from a checkpoint."""
    right = collect_stats(open_set(root)).stats
    wrong = [
        replace(right, classes=['a', *right.classes[1:]]),
        ClassStats(list('ab'), [1, 1], [1, 1], [2, 2], 0, right.provenance),
    ]
    for stats in wrong:
        cache.store(stats)
        assert cache.load(right.provenance.fingerprint) == stats
        assert collect_stats(open_set(root), cache=cache).stats == right
        found = collect_stats(open_set(root), known=stats).stats
        assert found == right


def test_problems_and_own_transforms_are_not_cached(root, cache):
    pipeline = [{'type': 'LoadAnnotations', 'imdecode_backend': 'cv2'}]
    collect_stats(open_set(root, pipeline=pipeline), cache=cache)
    (root / 'ann' / '0003.png').unlink()
    assert collect_stats(open_set(root), cache=cache).problems
    assert not cache.folder.exists()


@pytest.mark.parametrize('age', [0, 7200, -7200])
def test_fresh_and_future_files_are_not_trusted(
    root, cache, age, log, monkeypatch
):
    """Within the resolution of its time, a file may change unseen.

    A program can set back the time of its content, as ``tar`` does.
    """
    for folder in ('img', 'ann'):
        path = root / folder / 'a\x1b[2J.png'
        (root / folder / '0003.png').rename(path)
    then = time.time() - age
    os.utime(path, (then, then))
    # An hour instead of two seconds, which pass too soon on a busy machine.
    monkeypatch.setattr(trust, 'SAFE_AGE_NS', 3600 * 10**9)
    stats = collect_stats(open_set(root), cache=cache).stats
    assert stats.provenance.fingerprint == ''
    assert not cache.folder.exists()
    assert 'a\\x1b[2J.png was changed a moment ago' in log()
    monkeypatch.setattr(trust, 'SAFE_AGE_NS', -3600 * 10**9)
    collect_stats(open_set(root), cache=cache)
    assert cache.folder.exists() == (age >= 0)


def test_a_change_within_one_tick_is_counted(root, cache):
    """Size and time are those of the first scan; the counts are not."""
    path = root / 'ann' / '0003.png'
    now = time.time_ns()
    for seed in range(5):
        write_label(path, label_array(SIZE, (0, 1, 2, 3), seed))
        os.utime(path, ns=(now, now))
        found = collect_stats(open_set(root), cache=cache).stats.counts
        assert found == collect_stats(open_set(root)).stats.counts


@pytest.mark.parametrize('change', [same_size, Path.unlink])
def test_changes_during_a_scan_are_not_kept(
    root, cache, monkeypatch, log, change
):
    load = FileLoader.load

    def load_and_change(self, info, source):
        if info['seg_map_path'].endswith('0000.png'):
            change(root / 'ann' / '0004.png')
        return load(self, info, source)

    monkeypatch.setattr(FileLoader, 'load', load_and_change)
    stats = collect_stats(open_set(root), cache=cache).stats
    assert stats.provenance.fingerprint == ''
    assert 'while they were counted' in log()
    assert not cache.folder.exists()
