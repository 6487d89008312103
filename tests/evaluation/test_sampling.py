"""Evenly spaced images."""

import pytest

from mmseg_margin.evaluation.sampling import evenly_spaced


@pytest.mark.parametrize(
    ('total', 'number', 'expected'),
    [(5, 1, [0]), (5, 2, [0, 4]), (5, 3, [0, 2, 4]), (2, 9, [0, 1])],
)
def test_from_the_first_to_the_last(total, number, expected):
    assert evenly_spaced(total, number) == expected
