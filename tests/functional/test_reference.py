"""The readable parts of the paper: margins, surrogates and their bounds."""

import math

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mmseg_margin.functional import (
    calibrated_log_loss,
    iou_lower_bound,
    pixel_margins,
    rho_margin_loss,
)
from tests.functional.builders import make_batch

margins = st.floats(-50, 50)
offsets = st.floats(1e-6, 20)


@given(margins, offsets)
def test_log_loss_bounds_rho_margin_loss_bounds_zero_one_loss(margin, rho):
    margin = torch.tensor(margin, dtype=torch.float64)
    log_loss = calibrated_log_loss(margin, rho)
    phi = rho_margin_loss(margin, rho)
    wrong = float(margin <= 0)
    assert log_loss >= phi - 1e-12
    assert phi >= wrong
    expected = min(1, max(0, 1 - float(margin) / rho))
    assert math.isclose(float(phi), expected, abs_tol=1e-12)
    at_offset = calibrated_log_loss(
        torch.tensor(rho, dtype=torch.float64), rho
    )
    assert math.isclose(float(at_offset), 1.0)


def test_margins_against_a_loop():
    scores = torch.randn(2, 4, 3, generator=torch.Generator().manual_seed(0))
    margins = pixel_margins(scores)
    for n, k, i in np.ndindex(2, 4, 3):
        best = max(float(scores[n, j, i]) for j in range(4) if j != k)
        expected = float(scores[n, k, i]) - best
        assert math.isclose(float(margins[n, k, i]), expected, rel_tol=1e-6)


@given(st.integers(0, 2**32 - 1), st.integers(2, 6), offsets, offsets)
@settings(max_examples=60)
def test_iou_is_never_below_the_bound(seed, num_classes, rho_0, rho_1):
    K, P = num_classes, 40
    scores, labels, *_ = make_batch(K, (P,), seed=seed, ignored=0)
    lam = pixel_margins(scores)
    predicted = scores.argmax(1)
    for k in range(K):
        is_label = labels == k
        prior = is_label.double().mean()
        if prior == 0:
            continue
        hit = (is_label & (predicted == k)).double().sum()
        union = (is_label | (predicted == k)).sum()
        bound = iou_lower_bound(
            prior,
            rho_margin_loss(lam[is_label, k], rho_1).sum() / P,
            rho_margin_loss(-lam[~is_label, k], rho_0).sum() / P,
        )
        assert bound <= hit / union + 1e-12
