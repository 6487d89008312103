"""ClassStats: JSON, its validation, merging and what is derived."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmseg_margin.errors import MissingFileError
from mmseg_margin.functional import margin_offsets
from mmseg_margin.stats import ClassStats, Provenance

STATS = ClassStats(
    classes=['sky', 'road'],
    counts=[900, 100],
    images=[3, 2],
    image_pixels=[1000, 700],
    ignored=24,
    provenance=Provenance('Streets', 3, 'LoadAnnotations()', 255, 'ab', '1'),
)
MISSING = object()


def stats_of(counts):
    names = [f'class {i}' for i in range(len(counts))]
    return ClassStats(names, counts, counts, counts)


def test_json_round_trip(tmp_path):
    path = tmp_path / 'stats.json'
    STATS.to_json(path)
    assert ClassStats.from_json(path) == STATS
    assert ClassStats.from_json(str(path)) == STATS


@given(st.lists(st.integers(0, 2**58), min_size=1, max_size=8))
def test_any_counts_survive_json(counts):
    assert ClassStats.loads(stats_of(counts).dumps()) == stats_of(counts)


@pytest.mark.parametrize(
    ('field', 'value', 'message'),
    [
        ('counts', [900, -1], r'counts\[1\] must not be negative'),
        ('counts', [900, math.nan], r'counts\[1\] must be an integer'),
        ('counts', [900, 2**63], r'counts\[1\] is larger than 2\*\*63 - 1'),
        ('counts', [2**63 - 1, 1], 'the sum of counts is larger'),
        ('counts', [900, 1.0], r'counts\[1\] must be an integer'),
        ('counts', [900, True], r'counts\[1\] must be an integer'),
        ('counts', [900, '1'], r'counts\[1\] must be an integer'),
        ('counts', [900], 'counts has 1 values for 2 classes'),
        ('counts', {'sky': 1}, 'counts must be a list'),
        ('counts', None, 'counts must be a list'),
        ('images', [3], 'images has 1 values for 2 classes'),
        ('image_pixels', [1, -2], r'image_pixels\[1\] must not be negative'),
        ('ignored', -1, 'ignored must not be negative'),
        ('ignored', 0.5, 'ignored must be an integer'),
        ('classes', ['sky', 'sky'], "classes holds 'sky' more than once"),
        ('classes', ['sky', 1], 'classes must be text'),
        ('classes', [], 'classes is empty'),
        ('classes', 'sky', 'classes must be a list'),
        ('provenance', [], 'provenance must be a JSON object'),
        ('provenance', {'files': -1}, 'provenance.files must not be neg'),
        ('provenance', {'dataset': 1}, 'provenance.dataset must be text'),
        ('provenance', {'x': 1}, "provenance has an unknown field 'x'"),
        ('format', 'other/1', 'format is not'),
        ('extra', 1, "class statistics has an unknown field 'extra'"),
        *(
            (name, MISSING, f'{name} is missing')
            for name in ('counts', 'classes', 'images', 'ignored')
        ),
    ],
)
def test_bad_fields_are_named(tmp_path, field, value, message):
    data = {**STATS.to_dict(), field: value}
    if value is MISSING:
        del data[field]
    path = tmp_path / 'stats.json'
    path.write_text(json.dumps(data))
    with pytest.raises(ValueError, match=message) as caught:
        ClassStats.from_json(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    'text', ['', '[]', '{', 'null', '\x80\x04', '[' * 100_000, '{"a": 1' * 9]
)
def test_files_that_are_no_statistics(tmp_path, text):
    path = tmp_path / 'stats.json'
    path.write_text(text, encoding='latin-1')
    with pytest.raises(ValueError, match='does not hold class statistics'):
        ClassStats.from_json(path)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(MissingFileError, match=r'x.json does not exist'):
        ClassStats.from_json(tmp_path / 'x.json')


def test_merge_adds_up():
    both = STATS.merge(STATS).to_dict()
    source = both['provenance']
    assert source.pop('fingerprint') not in ('', 'ab')
    assert both == {
        **STATS.to_dict(),
        'counts': [1800, 200],
        'images': [6, 4],
        'image_pixels': [2000, 1400],
        'ignored': 48,
        'provenance': source,
    }
    assert source['files'] == 6
    assert source['dataset'] == 'Streets'


def test_merge_refuses_other_classes():
    other = ClassStats(['sky', 'sea'], [1, 1], [1, 1], [2, 2])
    with pytest.raises(ValueError, match='classes differ'):
        STATS.merge(other)


def test_margins_are_those_of_algorithm_1():
    settings = {'tau': 5.0, 'upsilon': 2.0}
    expected = margin_offsets([900, 100], **settings)
    np.testing.assert_array_equal(STATS.margins(**settings), expected)
    stats = stats_of([9, 1, 0])
    with pytest.raises(ValueError, match='class 2'):
        stats.margins()
    assert stats.margins(absent_class='zero').rho_0k[2] == 0
