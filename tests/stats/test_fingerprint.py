"""What tells of a change, and when it cannot be told."""

import os
import time
from itertools import product

import pytest

from mmseg_margin.stats import LabelRange, collect, collect_stats
from mmseg_margin.stats.annotations import (
    FileStates,
    file_states,
    list_annotations,
)
from mmseg_margin.stats.loaders import FileLoader
from tests.layouts import label_array, write_label
from tests.stats.builders import SIZE, open_set

LABELS = LabelRange(None)


def key_of(root, labels=LABELS, **kwargs):
    stats = collect_stats(open_set(root, **kwargs), labels).stats
    return stats.provenance.fingerprint


def counts_of(root):
    return collect_stats(open_set(root), LABELS).stats.counts


def test_shares_add_up_to_the_whole(root):
    samples = list_annotations(open_set(root))
    whole = file_states(samples)
    for ranks in (2, 3, 7):
        shares = [file_states(samples[rank::ranks]) for rank in range(ranks)]
        assert sum(shares, start=FileStates()) == whole
    assert file_states(samples[:5]) != whole


def same_size(path):
    """Other pixels in a file of the same length, at the old time."""
    before = path.stat()
    content = bytearray(path.read_bytes())
    content[-20] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size
    assert path.stat().st_mtime_ns == before.st_mtime_ns


def replaced(path):
    """Another file under the name, as old and as long."""
    other = path.with_name('other')
    other.write_bytes(path.read_bytes())
    before = path.stat()
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.replace(path)


def touched(path):
    path.touch()


def removed(path):
    path.unlink()


def linked(path):
    """A link to a file elsewhere."""
    other = path.parents[2] / 'elsewhere.png'
    path.rename(other)
    path.symlink_to(other)
    other.touch()


@pytest.mark.parametrize(
    ('folder', 'change'),
    [
        ('ann', removed),
        *product(('img', 'ann'), (same_size, replaced, touched, linked)),
    ],
)
def test_every_change_is_seen(root, change, folder):
    before = key_of(root)
    assert key_of(root) == before
    change(root / folder / '0002.png')
    assert key_of(root) != before


def test_every_setting_is_seen(root):
    settings = [
        {'classes': list('abce')},
        {'classes': None},
        {'classes': None, 'labels': LabelRange(5)},
        {'labels': LabelRange(None, 3)},
        {'reduce_zero_label': True},
        {'pipeline': [{'type': 'LoadAnnotations'}]},
    ]
    keys = {key_of(root), *(key_of(root, **kwargs) for kwargs in settings)}
    assert len(keys) == 1 + len(settings)


def test_added_and_removed_samples_are_seen(root):
    before = key_of(root)
    image, label = root / 'img' / '0009.png', root / 'ann' / '0009.png'
    image.write_bytes((root / 'img' / '0000.png').read_bytes())
    label.write_bytes((root / 'ann' / '0000.png').read_bytes())
    assert key_of(root) != before
    image.unlink()
    assert key_of(root) == before


@pytest.mark.parametrize('age', [0, 7200, -7200])
def test_fresh_and_future_files_are_not_trusted(
    root, cache, age, log, monkeypatch
):
    """Within the resolution of its time, a file may change unseen.

    A program can set back the time of its content, as ``tar`` does.
    """
    path = root / 'ann' / 'a\x1b[2J.png'
    (root / 'ann' / '0003.png').rename(path)
    (root / 'img' / '0003.png').rename(root / 'img' / path.name)
    then = time.time() - age
    os.utime(path, (then, then))
    # An hour instead of two seconds, which pass too soon on a busy machine.
    monkeypatch.setattr(collect, 'SAFE_AGE_NS', 3600 * 10**9)
    stats = collect_stats(open_set(root), LABELS, cache).stats
    assert stats.provenance.fingerprint == ''
    assert not cache.folder.exists()
    assert 'a\\x1b[2J.png was changed a moment ago' in log()
    monkeypatch.setattr(collect, 'SAFE_AGE_NS', -3600 * 10**9)
    collect_stats(open_set(root), LABELS, cache)
    assert cache.folder.exists() == (age >= 0)


def test_a_change_within_one_tick_is_counted(root, cache):
    """Size and time are those of the first scan; the counts are not."""
    path = root / 'ann' / '0003.png'
    now = time.time_ns()
    for seed in range(5):
        write_label(path, label_array(SIZE, (0, 1, 2, 3), seed))
        os.utime(path, ns=(now, now))
        found = collect_stats(open_set(root), LABELS, cache).stats.counts
        assert found == counts_of(root)


@pytest.mark.parametrize('change', [same_size, removed])
def test_changes_during_a_scan_are_not_kept(
    root, cache, monkeypatch, log, change
):
    load = FileLoader.load

    def load_and_change(self, info):
        if info['seg_map_path'].endswith('0000.png'):
            change(root / 'ann' / '0004.png')
        return load(self, info)

    with monkeypatch.context() as patched:
        patched.setattr(FileLoader, 'load', load_and_change)
        collected = collect_stats(open_set(root), LABELS, cache)
    assert collected.stats.provenance.fingerprint == ''
    assert 'while they were counted' in log()
    assert not cache.folder.exists()
