"""The two groups of settings: what they refuse and what they derive."""

import math

import numpy as np
import pytest

from mmseg_margin.errors import SettingError
from mmseg_margin.functional import (
    MarginSettings,
    OffsetSettings,
    margin_offsets,
)
from mmseg_margin.functional.margins import large_offset_warning


@pytest.mark.parametrize(
    ('group', 'name', 'value'),
    [
        (MarginSettings, 'log_base', 1),
        (MarginSettings, 'log_base', 'ten'),
        (MarginSettings, 'log_base', math.inf),
        (MarginSettings, 'pos_weight', 0),
        (MarginSettings, 'pos_weight', [1.0, 2.0]),
        (MarginSettings, 'class_mean', 'yes'),
        (OffsetSettings, 'tau', 'abc'),
        (OffsetSettings, 'tau', -3),
        (OffsetSettings, 'upsilon', None),
        (OffsetSettings, 'largest_offset', -1),
        (OffsetSettings, 'absent_class', 'drop'),
    ],
)
def test_a_bad_value_is_named(group, name, value):
    with pytest.raises(SettingError) as error:
        group(**{name: value})
    assert str(error.value).startswith(f'{name}={value!r} must be ')
    with pytest.raises(SettingError, match=r'tau=10 and largest_offset=0\.4'):
        OffsetSettings(tau=10, largest_offset=0.4)


def test_offsets_follow_algorithm_1():
    counts = [900, 100]
    for settings, tau in (
        (OffsetSettings(), 10.0),
        (OffsetSettings(tau=3), 3.0),
        (OffsetSettings(tau=10), 10.0),
        (OffsetSettings(largest_offset=0.6), 2.0),
    ):
        assert settings.has_default_scale == (settings == OffsetSettings())
        assert settings.tau_for(counts) == pytest.approx(tau)
        np.testing.assert_allclose(
            settings.offsets(counts), margin_offsets(counts, tau)
        )
    assert OffsetSettings(upsilon=2).has_default_scale


def test_weights_logarithm_and_offsets_beyond_the_scores():
    assert MarginSettings().term_weights(19) == (1.0, 1.0)
    assert MarginSettings().bits == 1.0
    authors = MarginSettings('num_classes', 'e', class_mean=True)
    assert authors.term_weights(4) == (1.0, 0.25)
    assert authors.bits == pytest.approx(1 / math.log(2))
    assert large_offset_warning([0.1, 30.0]) is None
    text = large_offset_warning([0.1, 512.3, 2.0], ['sky', 'pole', 'car'])
    assert 'class 1 (pole) is 512, far beyond' in text
    assert 'largest_offset=0.4' in text
