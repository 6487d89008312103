"""Earlier statistics: same files, same result, whatever is in the folder."""

from pathlib import Path

import pytest

from mmseg_margin.stats import StatsCache, collect_stats
from tests.processes import FORK, wait_for
from tests.stats.builders import open_set, write_set


@pytest.fixture
def scan(root):
    """The statistics of the data set, with these settings."""

    def scan_set(cache=None, **settings):
        return collect_stats(open_set(root, **settings), cache=cache).stats

    return scan_set


@pytest.fixture
def stored(scan, cache):
    """Statistics in the cache, and the path of their file."""
    stats = scan(cache)
    return stats, cache.path_of(stats.fingerprint)


def test_the_second_run_reads_no_label(root, scan, cache, monkeypatch):
    first = scan(cache)
    monkeypatch.setattr('PIL.Image.open', None)
    assert scan(cache) == first
    (root / 'ann' / '0002.png').touch()
    assert scan(cache).total == 0  # now the labels are read


def test_problems_and_custom_transforms_are_not_cached(root, scan, cache):
    scan(
        cache,
        pipeline=[{'type': 'LoadAnnotations', 'imdecode_backend': 'cv2'}],
    )
    (root / 'ann' / '0003.png').unlink()
    assert scan(cache).fingerprint == ''
    assert not cache.folder.exists()


def change_key(content):
    """Intact statistics of other files."""
    return content.replace(b'"fingerprint": "', b'"fingerprint": "ff')


@pytest.mark.parametrize(
    'damage',
    [
        lambda content: content[:400],
        lambda content: b'',
        lambda content: b'[' * 100_000,
        lambda content: bytes(range(256)),
        lambda content: content.replace(b'counts', b'county'),
        change_key,
    ],
)
def test_what_cannot_be_read_is_counted_again(scan, stored, cache, damage):
    right, path = stored
    path.write_bytes(damage(path.read_bytes()))
    assert cache.load(path.stem) is None
    assert scan(cache) == right
    assert cache.load(path.stem) == right  # the damaged file was replaced


def test_default_folder(monkeypatch, tmp_path):
    monkeypatch.setenv('HOME', str(tmp_path))
    monkeypatch.delenv('XDG_CACHE_HOME', raising=False)
    below = Path('mmseg_margin', 'class_stats')
    assert StatsCache().folder == tmp_path / '.cache' / below
    assert StatsCache('~/mine').folder == tmp_path / 'mine'
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path))
    assert StatsCache().folder == tmp_path / below


def test_folders_that_cannot_be_written_are_not_fatal(
    root, scan, tmp_path, monkeypatch, log
):
    (tmp_path / 'file').write_text('in the way')
    assert scan(StatsCache(tmp_path / 'file' / 'cache')).total > 0
    assert 'not kept' in log()
    # A user without a home folder, as in some containers.
    monkeypatch.setenv('HOME', '~')  # what Python makes of an unknown user
    monkeypatch.delenv('XDG_CACHE_HOME', raising=False)
    monkeypatch.chdir(root)
    before = sorted(root.iterdir())
    assert scan(StatsCache()).total > 0
    assert sorted(root.iterdir()) == before


def test_several_runs_share_a_folder(tmp_path, cache):
    """Writers of the same and of other results, and readers, all at once."""
    roots = [write_set(tmp_path / name) for name in ('data', 'mounted')]
    right = [collect_stats(open_set(root)).stats for root in roots]
    assert right[0].counts == right[1].counts
    keys = [stats.fingerprint for stats in right]
    assert keys[0] != keys[1]  # other paths, so another result

    def write_and_read(stats):
        for _ in range(50):
            cache.store(stats)
            for key, other in zip(keys, right, strict=True):
                assert cache.load(key) in (None, other)

    hosts = [FORK.Process(target=write_and_read, args=(x,)) for x in 2 * right]
    for host in hosts:
        host.start()
    assert wait_for(hosts, 100) == [0] * 4
    assert [cache.load(key) for key in keys] == right
    assert len(list(cache.folder.iterdir())) == 2
