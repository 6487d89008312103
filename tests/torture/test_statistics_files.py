"""Forged statistics: refused in a sentence that names the file, or valid.

``MMSEG_MARGIN_FUZZ_STATISTICS=1000`` makes a longer test of it.
"""

import json
import os
from collections import Counter

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mmseg_margin.stats import (
    WEIGHT_METHODS,
    ClassStats,
    StatsCache,
    format_table,
)
from tests.stats.test_class_stats import STATS

NUM_FILES = int(os.environ.get('MMSEG_MARGIN_FUZZ_STATISTICS', '300'))
LONGEST_SENTENCE = 600
GOOD = STATS.to_dict()
NUMBERS = st.one_of(
    st.integers(-(2**70), 2**70),
    st.sampled_from([10**400, -1, 0, 2**63, 2**63 - 1, True]),
    st.floats(),
)
HOSTILE_NAMES = ('\x1b[2J', 'a\nb', '<b>', '$x', '\ud800', 'x' * 999)
TEXTS = st.one_of(st.text(max_size=20), st.sampled_from(HOSTILE_NAMES))
VALUES = st.recursive(
    st.one_of(st.none(), NUMBERS, TEXTS),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(TEXTS, inner, max_size=4)
    ),
    max_leaves=8,
)


@st.composite
def statistics_texts(draw: st.DrawFn) -> str:
    """A good file with hostile names, a few false values, or damage."""
    kind = draw(st.sampled_from(['false', 'false', 'names', 'damage']))
    data = json.loads(json.dumps(GOOD))
    if kind == 'names':
        names = draw(st.lists(TEXTS, min_size=1, max_size=9))
        counts = [draw(st.integers(0, 2**40)) for _ in names]
        data['classes'] = names
        data['counts'] = data['images'] = data['image_pixels'] = counts
    for _ in range(draw(st.integers(0, 3)) if kind == 'false' else 0):
        place = draw(st.sampled_from([data, data, data['provenance']]))
        name = draw(st.one_of(st.sampled_from(sorted(place)), TEXTS))
        inner = place.get(name)
        if isinstance(inner, list) and draw(st.booleans()):
            inner.insert(draw(st.integers(0, 2)), draw(VALUES))
        elif name != 'provenance':
            place[name] = draw(VALUES)
    text = json.dumps(data)
    if kind == 'damage':
        where, length = (draw(st.integers(0, len(text))) for _ in range(2))
        text = text[:where] + draw(TEXTS) + text[where + length :]
    return text


def check_use(stats: ClassStats) -> None:
    """Whatever is accepted can be shown, and gives finite weights."""
    table = format_table(stats)
    table.encode('utf-8')
    assert '\x1b' not in table
    assert table.count('\n') == 4 + len(stats.classes)
    for method in WEIGHT_METHODS if stats.total else ():
        weights = stats.class_weights(method)
        assert np.isfinite(weights).all()
        assert min(weights) >= 0
    assert ClassStats.from_dict(json.loads(stats.dumps())) == stats


@pytest.mark.filterwarnings('ignore')
def test_refused_by_name_or_valid(tmp_path, record_property):
    tried: Counter = Counter()
    path = tmp_path / 'stats.json'

    @given(statistics_texts())
    @settings(
        max_examples=NUM_FILES,
        database=None,
        derandomize='MMSEG_MARGIN_FUZZ_STATISTICS' not in os.environ,
        suppress_health_check=list(HealthCheck),
    )
    def check(text: str) -> None:
        path.write_bytes(text.encode('utf-8', 'surrogatepass'))
        refusal = ''
        try:
            stats = ClassStats.from_json(path)
        except ValueError as error:
            refusal = str(error)
        tried['refused by name' if refusal else 'valid'] += 1
        if refusal:
            assert str(path) in refusal
            assert len(refusal) < LONGEST_SENTENCE
        else:
            assert stats.to_dict() == json.loads(text)
            check_use(stats)
        # The same as a file of the cache: never accepted, never fatal.
        assert StatsCache(tmp_path).load(path.stem) is None

    check()
    assert tried.total() >= NUM_FILES
    assert min(tried.values()) > NUM_FILES / 50
    for what, number in tried.items():
        record_property(f'statistics files {what}', number)


def test_long_files(tmp_path):
    """A check that compares all names with all others would not end."""
    ones = [1] * 50_000
    lists = {'counts': ones, 'images': ones, 'image_pixels': ones}
    names = [f'class {i}' for i in range(len(ones))]
    path = tmp_path / 'stats.json'
    path.write_text(json.dumps({**GOOD, **lists, 'classes': names}))
    assert ClassStats.from_json(path).total == len(ones)
    with pytest.raises(ValueError, match='longer than'):
        ClassStats.from_json('/dev/zero')
