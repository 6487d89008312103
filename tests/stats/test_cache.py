"""Earlier statistics: same files, same result, whatever happened in between.

``MMSEG_MARGIN_KILLS=50`` and ``MMSEG_MARGIN_FLIPS=1000`` make longer tests.
"""

import hashlib
import os
import random
import time
from dataclasses import replace
from pathlib import Path

import pytest

from mmseg_margin.stats import ClassStats, StatsCache, collect_stats
from mmseg_margin.stats import cache as module
from mmseg_margin.stats.label_files import FileLoader
from tests.processes import FORK, wait_for
from tests.stats.builders import open_set, write_set
from tests.stats.test_scan import same_size

KILLS = int(os.environ.get('MMSEG_MARGIN_KILLS', '8'))
FLIPS = int(os.environ.get('MMSEG_MARGIN_FLIPS', '100'))
needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason='needs root, to be another user'
)


@pytest.fixture
def scan(root):
    """The statistics of the data set, with these settings."""

    def scan_set(cache=None, known=None, **settings):
        dataset = open_set(root, **settings)
        return collect_stats(dataset, cache=cache, known=known).stats

    return scan_set


@pytest.fixture
def stored(scan, cache):
    """Statistics in the cache, and the path of their file."""
    stats = scan(cache)
    return stats, cache.path_of(stats.provenance.fingerprint)


@pytest.fixture
def private(tmp_path, monkeypatch):
    """The user's own cache, in an empty folder."""
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path))
    return StatsCache()


def test_other_classes_under_the_same_key_are_not_taken(scan, cache):
    """Neither from the cache nor from a checkpoint."""
    right = scan()
    for stats in (
        replace(right, classes=['a', *right.classes[1:]]),
        ClassStats(list('ab'), [1, 1], [1, 1], [2, 2], 0, right.provenance),
    ):
        cache.store(stats)
        assert cache.load(right.provenance.fingerprint) == stats
        assert scan(cache) == scan(known=stats) == right


def test_problems_and_own_transforms_are_not_cached(root, scan, cache):
    scan(
        cache,
        pipeline=[{'type': 'LoadAnnotations', 'imdecode_backend': 'cv2'}],
    )
    (root / 'ann' / '0003.png').unlink()
    assert scan(cache).provenance.fingerprint == ''
    assert not cache.folder.exists()


@pytest.mark.parametrize('age', [0, 7200, -7200])
def test_fresh_and_future_files_are_not_trusted(
    root, scan, cache, age, log, monkeypatch
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
    monkeypatch.setattr(module, 'SAFE_AGE_NS', 3600 * 10**9)
    assert scan(cache).provenance.fingerprint == ''
    assert not cache.folder.exists()
    assert 'a\\x1b[2J.png was changed a moment ago' in log()
    monkeypatch.setattr(module, 'SAFE_AGE_NS', -3600 * 10**9)
    scan(cache)
    assert cache.folder.exists() == (age >= 0)


@pytest.mark.parametrize('change', [same_size, Path.unlink])
def test_changes_during_a_scan_are_not_kept(
    root, scan, cache, monkeypatch, log, change
):
    load = FileLoader.load

    def load_and_change(self, annotation):
        if annotation.label_path.endswith('0000.png'):
            change(root / 'ann' / '0004.png')
        return load(self, annotation)

    monkeypatch.setattr(FileLoader, 'load', load_and_change)
    assert scan(cache).provenance.fingerprint == ''
    assert 'while they were counted' in log()
    assert not cache.folder.exists()


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
        (change_key, 'belongs to other files'),
    ],
)
def test_damaged_files_are_ignored_with_a_warning(
    scan, stored, cache, damage, reason, log
):
    right, path = stored
    path.write_bytes(damage(path.read_bytes()))
    assert scan(cache) == right
    assert f'{path}: it' in log()
    assert reason in log()
    assert cache.load(path.stem) == right  # the damaged file was replaced


def test_no_flipped_bit_is_accepted(stored, cache, record_property):
    path = stored[1]
    content = path.read_bytes()
    for bit in random.Random(0).choices(range(8 * len(content)), k=FLIPS):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        assert cache.load(path.stem) is None
    record_property('flipped bits in the cache', FLIPS)


PLANTED = {
    'link': lambda path: path.symlink_to(path.parents[1] / 'stranger'),
    'dangling link': lambda path: path.symlink_to(path.parents[1] / 'nowhere'),
    'pipe': os.mkfifo,
    'folder': os.mkdir,
}


@pytest.mark.parametrize('kind', PLANTED)
def test_strange_files_are_neither_read_nor_written(
    stored, cache, tmp_path, kind, record_property
):
    """Each in place of the file that the next run would read."""
    (stats, path), stranger = stored, tmp_path / 'stranger'
    before = path.read_bytes()
    path.rename(stranger)
    PLANTED[kind](path)
    assert cache.load(path.stem) is None  # and it does not wait for the pipe
    cache.store(stats)
    assert stranger.read_bytes() == before
    assert not (tmp_path / 'nowhere').exists()
    if kind != 'folder':
        assert path.is_file()
        assert not path.is_symlink()
        assert cache.load(path.stem) == stats
    record_property('strange files in the cache folder', 1)


@needs_root
def test_files_of_another_user(scan, private, record_property):
    """Ignored in the user's own folder; their drafts are left alone."""
    stats = scan(private)
    path = private.path_of(stats.provenance.fingerprint)
    draft = private.folder / f'.{path.name}.{"0" * 32}.tmp'
    draft.write_text('{')
    os.utime(draft, (0, 0))
    for file in (draft, path):
        os.chown(file, 65534, 65534)
    assert private.load(path.stem) is None
    private.store(stats)
    assert draft.exists()
    assert private.load(path.stem) == stats
    record_property('strange files in the cache folder', 2)


def test_only_our_own_abandoned_drafts_are_removed(scan, cache):
    cache.folder.mkdir()
    ours = f'.{"a" * 64}.stats.{"b" * 32}.tmp'
    names = (ours, ours.replace('b', 'c'), 'old.tmp', '.of a stranger.tmp')
    for name in names:
        (cache.folder / name).write_text('{')
        if name != names[1]:
            os.utime(cache.folder / name, (0, 0))
    scan(cache)
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


@pytest.mark.parametrize('link', [None, 'class_stats', 'mmseg_margin'])
def test_default_folder_is_private(scan, tmp_path, private, link):
    """Unless it is a link, because its target may be shared."""
    folder = private.folder
    if link:
        folder = tmp_path / 'shared' / 'class_stats'
        place, target = private.folder, folder
        if link == 'mmseg_margin':
            place, target = place.parent, target.parent
        place.parent.mkdir(exist_ok=True)
        place.symlink_to(target)
    folder.mkdir(parents=True)
    folder.chmod(0o775)
    scan(private)
    assert folder.stat().st_mode & 0o777 == (0o775 if link else 0o700)
    assert list(folder.glob('*.stats'))


def test_folders_that_cannot_be_written_are_not_fatal(
    root, scan, tmp_path, monkeypatch, log
):
    (tmp_path / 'file').write_text('in the way')
    assert scan(StatsCache(tmp_path / 'file' / 'cache')).total > 0
    assert 'are not kept in' in log()
    # A user without a home folder, as in some containers.
    monkeypatch.setenv('HOME', '~')  # what Python makes of an unknown user
    monkeypatch.delenv('XDG_CACHE_HOME', raising=False)
    monkeypatch.chdir(root)
    before = sorted(root.iterdir())
    assert scan(StatsCache()).total > 0
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
    """Scan and write, killed at random moments: the next run is right."""
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
