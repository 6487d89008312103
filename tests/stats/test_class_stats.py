"""ClassStats: its JSON, and what is refused."""

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmseg_margin.errors import MissingFileError
from mmseg_margin.stats import ClassStats

STATS = ClassStats(
    classes=['sky', 'road'],
    counts=[900, 100],
    images=[3, 2],
    image_pixels=[1000, 700],
    ignored=24,
    dataset='Streets',
    files=3,
    mapping='LoadAnnotations()',
    fingerprint='ab',
)
MISSING = object()


def stats_of(counts):
    names = [f'class {i}' for i in range(len(counts))]
    return ClassStats(names, counts, counts, counts)


@pytest.mark.parametrize('kind', [str, Path])
def test_json_round_trip(tmp_path, kind):
    path = kind(tmp_path / 'stats.json')
    STATS.to_json(path)
    found = ClassStats.from_json(path)
    assert found == STATS
    assert found.classes == ['sky', 'road']


@given(st.lists(st.integers(0, 2**62), min_size=1, max_size=8))
def test_any_counts_survive_json(counts):
    stats = stats_of(counts)
    assert (
        ClassStats.from_dict(json.loads(json.dumps(stats.to_dict()))) == stats
    )


@pytest.mark.parametrize(
    ('field', 'value'),
    [
        ('counts', [900, -1]),
        ('counts', [900, math.nan]),
        ('counts', [900, 1.5]),
        ('counts', [900, '1']),
        ('counts', [900]),
        ('counts', {'sky': 1}),
        ('counts', None),
        ('images', [3]),
        ('image_pixels', [1, -2]),
        ('ignored', -1),
        ('classes', ['sky']),
        ('format', 'other/1'),
        ('extra', 1),
        ('counts', MISSING),
    ],
)
def test_bad_fields_are_refused(tmp_path, field, value):
    data = {**STATS.to_dict(), field: value}
    if value is MISSING:
        del data[field]
    path = tmp_path / 'stats.json'
    path.write_text(json.dumps(data))
    with pytest.raises(ValueError, match=r'stats\.json'):
        ClassStats.from_json(path)


@pytest.mark.parametrize('text', ['', '[]', '{', 'null', '\x80', '[' * 10**5])
def test_files_that_are_no_statistics(tmp_path, text):
    path = tmp_path / 'stats.json'
    with pytest.raises(MissingFileError, match='class_stats CONFIG'):
        ClassStats.from_json(path)
    path.write_text(text, encoding='latin-1')
    with pytest.raises(ValueError, match='class_stats CONFIG'):
        ClassStats.from_json(path)
