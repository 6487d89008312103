"""The two groups of settings: what they refuse and what they derive."""

import math

import numpy as np
import pytest

from mmseg_margin.errors import SettingError
from mmseg_margin.functional import (
    LossSettings,
    OffsetSettings,
    margin_offsets,
)


@pytest.mark.parametrize(
    ('group', 'name', 'value'),
    [
        (LossSettings, 'form', 'bogus'),
        (LossSettings, 'form', ['paper']),
        (LossSettings, 'log_base', 1),
        (LossSettings, 'log_base', 'ten'),
        (LossSettings, 'log_base', math.inf),
        (LossSettings, 'pos_weight', 0),
        (LossSettings, 'pos_weight', [1.0, 2.0]),
        (LossSettings, 'focus', -1),
        (LossSettings, 'focus', None),
        (LossSettings, 'class_mean', 'yes'),
        (LossSettings, 'levels', 1),
        (LossSettings, 'levels', 2.5),
        (LossSettings, 'memory', 1.0),
        (LossSettings, 'memory', math.nan),
        (LossSettings, 'batch_share', 1.5),
        (LossSettings, 'log_share', -0.1),
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


def test_tau_and_largest_offset_are_not_both_taken():
    with pytest.raises(SettingError, match=r'tau=10 and largest_offset=0\.4'):
        OffsetSettings(tau=10, largest_offset=0.4)


def test_offsets_follow_algorithm_1():
    counts = [900, 100]
    for settings, tau in (
        (OffsetSettings(), 10.0),
        (OffsetSettings(tau=3), 3.0),
        (OffsetSettings(largest_offset=0.6), 2.0),
    ):
        assert settings.tau_for(counts) == pytest.approx(tau)
        np.testing.assert_allclose(
            settings.offsets(counts), margin_offsets(counts, tau)
        )


def test_weights_and_logarithm():
    assert LossSettings().term_weights(19) == (1.0, 1.0)
    assert LossSettings().bits == 1.0
    authors = LossSettings(
        pos_weight='num_classes', log_base='e', class_mean=True
    )
    assert authors.term_weights(4) == (1.0, 0.25)
    assert authors.bits == pytest.approx(1 / math.log(2))
