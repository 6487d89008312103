"""Algorithm 1 and Theorem 1 against loops written from the paper."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mmseg_margin.functional import (
    generalisation_gap,
    margin_offsets,
    margin_ratios,
    optimal_rho_0k,
    tau_of_largest_offset,
)

# Public counts of Cityscapes train, 2975 fine images, in train-id order.
CITYSCAPES = np.fromstring(
    '2036416525 336090793 1260636120 36199498 48454166 67789506 11477088 '
    '30448193 879783988 63949536 221979646 67326424 7463162 386328286 '
    '14772328 12990290 12863955 5449152 22861233',
    sep=' ',
)
ROAD, MOTORCYCLE = 0, 17

counts = st.lists(st.integers(1, 10**9), min_size=2, max_size=30)


def algorithm_1(pixels, tau, upsilon):
    total = sum(pixels)
    rho_0k, rho_k0 = [], []
    for n in pixels:
        prior, root = n / total, math.sqrt(total - n)
        mu = prior * math.sqrt(n) / (upsilon * (total - n) - prior * root)
        rho_0k.append(tau * root / n)
        rho_k0.append(mu * rho_0k[-1])
    return rho_0k, rho_k0


@given(counts, st.floats(0.1, 100), st.floats(2, 100))
@settings(max_examples=50)
def test_offsets_equal_the_papers_loop(pixels, tau, upsilon):
    expected = algorithm_1(pixels, tau, upsilon)
    np.testing.assert_allclose(
        margin_offsets(pixels, tau, upsilon), expected, rtol=1e-12
    )


def test_documented_offsets_of_cityscapes():
    rho_0k, rho_k0 = margin_offsets(CITYSCAPES)
    assert (rho_0k.argmin(), rho_0k.argmax()) == (ROAD, MOTORCYCLE)
    assert rho_0k.min() == pytest.approx(2.8997e-4, rel=1e-4)
    assert rho_0k.max() == pytest.approx(0.136319, rel=1e-5)
    assert rho_k0.max() == pytest.approx(1.38363e-9, rel=1e-5)
    twice = margin_offsets(2 * CITYSCAPES).rho_0k
    np.testing.assert_allclose(twice, rho_0k / math.sqrt(2))


@given(counts, st.floats(0.01, 10))
def test_a_largest_offset_is_reached(pixels, largest):
    """At any resolution, and with any number of images."""
    tau = tau_of_largest_offset(pixels, largest)
    rho_0k, _ = algorithm_1(pixels, tau, upsilon=100)
    assert max(rho_0k) == pytest.approx(largest)


def test_a_largest_offset_leaves_out_absent_classes():
    assert tau_of_largest_offset([900, 0, 100], 3.0) == pytest.approx(10)
    assert not np.any(margin_offsets([900, 100], tau=0))
    assert tau_of_largest_offset([900, 100], 0) == 0
    with pytest.raises(ValueError, match='largest_offset=-1 must be'):
        tau_of_largest_offset([900, 100], -1)


@pytest.mark.parametrize(('policy', 'offset'), [('zero', 0.0), ('max', 3.0)])
def test_absent_class_policies(policy, offset):
    rho_0k, rho_k0 = margin_offsets([900, 0, 100], absent_class=policy)
    present = margin_offsets([900, 100])
    np.testing.assert_allclose(rho_0k[[0, 2]], present.rho_0k)
    np.testing.assert_allclose(rho_k0[[0, 2]], present.rho_k0)
    assert rho_0k[1] == pytest.approx(offset)
    assert rho_k0[1] == 0


@pytest.mark.parametrize(
    ('pixels', 'options', 'message'),
    [
        ([9, 0], {'class_names': 'ab'}, r'class 1 \(b\) has no labelled'),
        ([7, 0], {'absent_class': 'zero'}, 'holds every'),
        ([0, 0], {}, 'all zero'),
        ([5], {}, 'at least two classes'),
        ([5, -1], {}, 'not negative'),
        ([5, math.nan], {}, 'finite'),
        ([5, 5], {'tau': -1}, 'tau=-1 must be'),
        ([5, 5], {'upsilon': -1}, 'upsilon=-1 must be'),
        ([5, 5], {'absent_class': '?'}, 'absent_class'),
        ([900, 1], {'upsilon': 1e-3}, 'choose upsilon above'),
    ],
)
def test_degenerate_input(pixels, options, message):
    with pytest.raises(ValueError, match=message) as error:
        margin_offsets(pixels, **options)
    if 'above' in message:
        smallest = float(str(error.value).rstrip('.').split()[-1])
        assert (margin_ratios(pixels, smallest * 1.01) > 0).all()


def test_gap_equals_the_papers_sum():
    pixels, complexity = [4000, 1000, 200], 1e-3
    rho_0k, rho_k0 = margin_offsets(pixels)
    total, K = sum(pixels), len(pixels)
    expected = 0
    for n, r0, r1 in zip(pixels, rho_0k, rho_k0, strict=True):
        top = math.sqrt(total - n) + math.sqrt(n) / (r1 / r0)
        bottom = n * r0 / (4 * K * complexity) - math.sqrt(total - n)
        expected += top / bottom / K
    gap = generalisation_gap(pixels, rho_0k, rho_k0, complexity)
    assert gap == pytest.approx(expected, rel=1e-12)
    # From this complexity on, the offsets of tau=10 are too small.
    limit = 10.0 / (4 * K)
    assert math.isnan(generalisation_gap(pixels, rho_0k, rho_k0, limit))
    assert generalisation_gap(pixels, rho_0k, rho_k0, 0.999 * limit) > 0


@given(counts, st.integers(0, 2**32 - 1))
@settings(max_examples=50)
def test_corollary_1_no_other_offsets_of_the_same_sum_are_better(pixels, seed):
    rng = np.random.default_rng(seed)
    mu = margin_ratios(pixels, upsilon=10.0)
    complexity = 1 / (8 * len(pixels))
    best = optimal_rho_0k(
        pixels, total=20 * margin_offsets(pixels, 1.0, 10.0).rho_0k.sum()
    )
    gap = generalisation_gap(pixels, best, mu * best, complexity)
    other = best * rng.uniform(0.5, 1.5, len(best))
    other *= best.sum() / other.sum()
    worse = generalisation_gap(pixels, other, mu * other, complexity)
    assert gap <= worse * (1 + 1e-9)
