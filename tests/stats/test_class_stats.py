"""ClassStats: JSON, class weights against their definitions, the cache."""

import json
import statistics

import numpy as np
import pytest

from mmseg_margin.stats import (
    WEIGHT_METHODS,
    ClassStats,
    StatsCache,
    class_weights,
    collect_stats,
)
from tests.stats.builders import open_set

STATS = ClassStats(
    classes=['sky', 'road'],
    counts=[900, 100],
    images=[3, 2],
    image_pixels=[1000, 700],
    ignored=24,
    dataset='Streets',
    files=3,
    fingerprint='ab',
)
COUNTS = [700, 200, 90, 10]


@pytest.mark.parametrize(
    'change',
    [
        {'counts': [900, -1]},
        {'counts': [900]},
        {'counts': None},
        {'image_pixels': [1, 1.5]},
        {'format': 'other/1'},
        {'extra': 1},
    ],
)
def test_bad_fields_are_refused(tmp_path, change):
    path = tmp_path / 'stats.json'
    STATS.to_json(path)
    assert ClassStats.from_json(str(path)) == STATS
    path.write_text(json.dumps({**STATS.to_dict(), **change}))
    with pytest.raises(ValueError, match=r'stats\.json'):
        ClassStats.from_json(path)


@pytest.mark.parametrize('text', [None, '', '[]', '\x80', '[' * 10**5])
def test_files_that_are_no_statistics(tmp_path, text):
    path = tmp_path / 'stats.json'
    if text is not None:
        path.write_text(text, encoding='latin-1')
    with pytest.raises(ValueError, match='class_stats CONFIG'):
        ClassStats.from_json(path)


@pytest.mark.parametrize(('method', 'power'), [('inverse', 1), ('sqrt', 0.5)])
def test_a_power_of_the_inverse_with_an_average_of_one(method, power):
    weights = np.array(class_weights(COUNTS, method))
    ratios = weights * np.array(COUNTS) ** power
    assert ratios == pytest.approx([ratios[0]] * len(COUNTS))
    assert sum(weights * COUNTS) == pytest.approx(sum(COUNTS))


def test_median_frequency_within_the_images_that_show_a_class():
    images = [{'a': 60, 'b': 40}, {'a': 10}, {'b': 5, 'c': 95}]
    share = {
        name: sum(image.get(name, 0) for image in images)
        / sum(sum(image.values()) for image in images if name in image)
        for name in 'abc'
    }
    median = statistics.median(share.values())
    stats = ClassStats(list('abc'), [70, 45, 95], [2, 2, 1], [110, 200, 100])
    weights = stats.class_weights('median')
    assert weights == pytest.approx([median / share[n] for n in 'abc'])
    in_all = class_weights(COUNTS, 'median')
    assert in_all == pytest.approx([145 / n for n in COUNTS])


@pytest.mark.parametrize('method', WEIGHT_METHODS)
def test_absent_class_gets_one_and_changes_no_other_weight(method):
    with_absent = class_weights([0, *COUNTS], method, [0] + [1000] * 4)
    assert with_absent[0] == 1
    assert with_absent[1:] == class_weights(COUNTS, method, [1000] * 4)
    with pytest.raises(ValueError, match='method'):
        class_weights(COUNTS, 0.5)


def scan(root, cache=None, **settings):
    return collect_stats(open_set(root, **settings), cache=cache).stats


def test_the_second_run_reads_no_label(root, cache, monkeypatch):
    first = scan(root, cache)
    monkeypatch.setattr('PIL.Image.open', None)
    assert scan(root, cache) == first
    (root / 'ann' / '0002.png').touch()
    assert scan(root, cache).total == 0  # now the labels are read


def test_problems_and_custom_transforms_are_not_cached(root, cache):
    loader = {'type': 'LoadAnnotations', 'imdecode_backend': 'cv2'}
    scan(root, cache, pipeline=[loader])
    (root / 'ann' / '0003.png').unlink()
    assert scan(root, cache).fingerprint == ''
    assert not cache.folder.exists()


@pytest.mark.parametrize(
    ('old', 'new'),
    # The second are intact statistics of other files.
    [(b'counts', b'\xff'), (b'print": "', b'print": "ff')],
)
def test_what_cannot_be_read_is_counted_again(root, cache, old, new):
    right = scan(root, cache)
    path = cache.folder / f'{right.fingerprint}.json'
    path.write_bytes(path.read_bytes().replace(old, new))
    assert cache.load(path.stem) is None
    assert scan(root, cache) == right
    assert cache.load(path.stem) == right  # the damaged file was replaced


def test_bad_folders(root, tmp_path, monkeypatch):
    """Those that cannot be written are not fatal."""
    (tmp_path / 'file').write_text('in the way')
    assert scan(root, StatsCache(tmp_path / 'file' / 'cache')).total > 0
    # A user without a home folder, as in some containers.
    monkeypatch.setenv('HOME', '~')  # what Python makes of an unknown user
    monkeypatch.chdir(tmp_path)
    assert scan(root, StatsCache('~/cache')).total > 0
    assert not (tmp_path / '~').exists()
