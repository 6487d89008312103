"""The cache: same files, same result, whatever happened in between."""

import hashlib
import os
import random
import time
from pathlib import Path

import pytest

from mmseg_margin.stats import StatsCache, collect_stats
from tests.processes import FORK, wait_for
from tests.stats.builders import open_set, write_set

KILLS = int(os.environ.get('MMSEG_MARGIN_KILLS', '8'))


def change_value(content):
    """Another value under the old checksum."""
    return content.replace(b'"ignored": ', b'"ignored": 1')


def change_key(content):
    """Intact statistics of other files."""
    _, _, text = content.partition(b'\n')
    text = text.replace(b'"fingerprint": "', b'"fingerprint": "ff')
    return hashlib.sha256(text).hexdigest().encode() + b'\n' + text


@pytest.mark.parametrize(
    ('damage', 'reason'),
    [
        (lambda content: content[:400], 'checksum is wrong'),
        (lambda content: b'', 'checksum is wrong'),
        (lambda content: bytes(range(256)), 'checksum is wrong'),
        (change_value, 'checksum is wrong'),
        (change_key, 'belongs to other files'),
    ],
)
def test_damaged_files_are_ignored_with_a_warning(
    root, cache, damage, reason, log
):
    right = collect_stats(open_set(root), cache=cache).stats
    path = cache.path_of(right.provenance.fingerprint)
    path.write_bytes(damage(path.read_bytes()))
    assert collect_stats(open_set(root), cache=cache).stats == right
    assert f'{path}: it' in log()
    assert reason in log()
    assert cache.load(path.stem) == right  # the damaged file was replaced


def test_unwritable_folder_is_not_fatal(root, tmp_path, log):
    (tmp_path / 'file').write_text('in the way')
    cache = StatsCache(tmp_path / 'file' / 'cache')
    assert collect_stats(open_set(root), cache=cache).stats.total > 0
    assert 'are not kept in' in log()


def test_only_our_own_abandoned_drafts_are_removed(root, cache):
    cache.folder.mkdir()
    ours = f'.{"a" * 64}.stats.{"b" * 32}.tmp'
    names = (ours, ours.replace('b', 'c'), 'old.tmp', '.of a stranger.tmp')
    for name in names:
        (cache.folder / name).write_text('{')
        if name != names[1]:
            os.utime(cache.folder / name, (0, 0))
    collect_stats(open_set(root), cache=cache)
    left = {path.name for path in cache.folder.glob('*.tmp')}
    assert left == set(names[1:])


def test_default_folder(monkeypatch, tmp_path):
    monkeypatch.setenv('HOME', str(tmp_path))
    monkeypatch.delenv('XDG_CACHE_HOME', raising=False)
    below = Path('mmseg_margin', 'class_stats')
    assert StatsCache().folder == tmp_path / '.cache' / below
    assert StatsCache('~/mine').folder == tmp_path / 'mine'
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path))
    assert StatsCache().folder == tmp_path / below


def test_default_folder_is_private(root, tmp_path, monkeypatch):
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path))
    cache = StatsCache()
    cache.folder.mkdir(parents=True, mode=0o777)
    stats = collect_stats(open_set(root), cache=cache).stats
    assert cache.folder.stat().st_mode & 0o777 == 0o700
    assert cache.load(stats.provenance.fingerprint) == stats


@pytest.mark.parametrize('link', ['class_stats', 'mmseg_margin'])
def test_a_shared_folder_behind_a_link_keeps_its_mode(
    root, tmp_path, monkeypatch, link
):
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path))
    cache, shared = StatsCache(), tmp_path / 'shared'
    shared.mkdir()
    folder = shared if link == 'class_stats' else shared / 'class_stats'
    folder.mkdir(exist_ok=True)
    folder.chmod(0o775)
    path = cache.folder if link == 'class_stats' else cache.folder.parent
    path.parent.mkdir(exist_ok=True)
    path.symlink_to(shared)
    collect_stats(open_set(root), cache=cache)
    assert folder.stat().st_mode & 0o777 == 0o775
    assert list(folder.glob('*.stats'))


def test_a_missing_home_is_not_fatal(root, monkeypatch, log):
    """A user without a home folder, as in some containers."""
    monkeypatch.setenv('HOME', '~')  # what Python makes of an unknown user
    monkeypatch.delenv('XDG_CACHE_HOME', raising=False)
    monkeypatch.chdir(root)
    before = sorted(root.iterdir())
    assert collect_stats(open_set(root), cache=StatsCache()).stats.total > 0
    assert 'no home folder, set cache_dir' in log()
    assert sorted(root.iterdir()) == before


def test_runs_on_several_hosts_share_a_folder(tmp_path, cache):
    """Writers of the same and of other results, and readers, all at once."""
    roots = [write_set(tmp_path / name) for name in ('data', 'mounted')]
    right = [collect_stats(open_set(root)).stats for root in roots]
    assert right[0].counts == right[1].counts
    keys = [stats.provenance.fingerprint for stats in right]
    assert keys[0] != keys[1]  # other paths, so another result

    def write_and_read(stats):
        for _ in range(150):
            cache.store(stats)
            for key, other in zip(keys, right, strict=True):
                assert cache.load(key) in (None, other)

    hosts = [FORK.Process(target=write_and_read, args=(x,)) for x in 2 * right]
    for host in hosts:
        host.start()
    assert wait_for(hosts, 100) == [0] * 4
    assert [cache.load(key) for key in keys] == right
    assert len(list(cache.folder.iterdir())) == 2


def test_killed_at_any_moment(tmp_path, cache, record_property):
    """Scan and write, killed at random moments: the next run is right.

    ``MMSEG_MARGIN_KILLS=50`` makes a longer test of it.
    """
    root = write_set(tmp_path / 'data', 40, size=(160, 120))
    right = collect_stats(open_set(root)).stats
    rng = random.Random(0)

    def scan():
        collect_stats(open_set(root), cache=cache, num_threads=1)

    def write():
        while True:
            cache.store(right)

    start = time.monotonic()
    scan()
    duration = time.monotonic() - start
    for kill in range(KILLS):
        for path in cache.folder.glob('*.stats'):
            if kill % 3:
                path.unlink()
        during_scan = kill % 2
        longest = 1.2 * duration if during_scan else 0.05
        child = FORK.Process(target=scan if during_scan else write)
        child.start()
        time.sleep(rng.random() * longest)
        wait_for([child], 0)
        for path in cache.folder.glob('*.stats'):
            assert cache.load(path.stem) == right
        assert collect_stats(open_set(root), cache=cache).stats == right
    record_property('kills of a scan', KILLS)
