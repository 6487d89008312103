"""ClassStats: JSON, its validation, merging, and what is derived from it."""

import json
import math
import statistics
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmseg_margin.errors import MissingFileError
from mmseg_margin.functional import margin_offsets
from mmseg_margin.stats import (
    WEIGHT_METHODS,
    ClassStats,
    Provenance,
    class_weights,
)

STATS = ClassStats(
    classes=['sky', 'road'],
    counts=[900, 100],
    images=[3, 2],
    image_pixels=[1000, 700],
    ignored=24,
    provenance=Provenance('Streets', 3, 'LoadAnnotations()', 255, 'ab', '1'),
)
MISSING = object()
COUNTS = [700, 200, 90, 10]


def stats_of(counts):
    names = [f'class {i}' for i in range(len(counts))]
    return ClassStats(names, counts, counts, counts)


@pytest.mark.parametrize('kind', [str, Path])
def test_json_round_trip(tmp_path, kind):
    path = kind(tmp_path / 'stats.json')
    STATS.to_json(path)
    assert ClassStats.from_json(path) == STATS


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
    with pytest.raises(MissingFileError, match=r'stats.json does not exist'):
        ClassStats.from_json(path)
    path.write_text(text, encoding='latin-1')
    with pytest.raises(ValueError, match='does not hold class statistics'):
        ClassStats.from_json(path)


def test_merge_adds_up():
    both = STATS.merge(STATS).to_dict()
    assert both['provenance'].pop('fingerprint') not in ('', 'ab')
    expected = {
        **STATS.to_dict(),
        'counts': [1800, 200],
        'images': [6, 4],
        'image_pixels': [2000, 1400],
        'ignored': 48,
    }
    expected['provenance']['files'] = 6
    del expected['provenance']['fingerprint']
    assert both == expected
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


@pytest.mark.parametrize(
    ('method', 'power'),
    [('inverse', 1.0), ('sqrt', 0.5), (0.15, 0.15), (1, 1.0)],
)
def test_a_power_of_the_inverse_with_an_average_of_one(method, power):
    weights = np.array(class_weights(COUNTS, method))
    ratios = weights * np.array(COUNTS) ** power
    assert ratios == pytest.approx([ratios[0]] * len(COUNTS))
    assert sum(weights * COUNTS) == pytest.approx(sum(COUNTS))


def test_median_frequency_within_the_images_that_show_a_class():
    images = [{'a': 60, 'b': 40}, {'a': 10}, {'b': 5, 'c': 95}]
    counts = [70, 45, 95]
    image_pixels = [110, 200, 100]
    share = {
        name: sum(image.get(name, 0) for image in images)
        / sum(sum(image.values()) for image in images if name in image)
        for name in 'abc'
    }
    median = statistics.median(share.values())
    stats = ClassStats(list('abc'), counts, [2, 2, 1], image_pixels)
    weights = stats.class_weights('median')
    assert weights == pytest.approx([median / share[n] for n in 'abc'])
    in_all = class_weights(COUNTS, 'median')
    assert in_all == pytest.approx([145 / n for n in COUNTS])


def test_effective_number_of_samples():
    beta = 1 - len(COUNTS) / sum(COUNTS)
    inverse = [(1 - beta) / (1 - beta**n) for n in COUNTS]
    expected = [len(COUNTS) * x / sum(inverse) for x in inverse]
    assert class_weights(COUNTS, 'effective') == pytest.approx(expected)
    many = class_weights([n * 10**9 for n in COUNTS], 'effective')
    assert many == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize('method', WEIGHT_METHODS)
def test_absent_class_gets_one_and_changes_no_other_weight(method):
    with_absent = class_weights([0, *COUNTS], method, [0] + [1000] * 4)
    assert with_absent[0] == 1
    assert with_absent[1:] == class_weights(COUNTS, method, [1000] * 4)
    assert class_weights([1], method) == [1.0]


@pytest.mark.parametrize('method', ['log', -0.5, 2])
def test_unknown_method_of_weights(method):
    with pytest.raises(ValueError, match=f'method={method!r} is not one of'):
        class_weights(COUNTS, method)
