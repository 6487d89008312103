"""Eq. 11 from sums over pixels.

Sums are float64 of shape (6, K), with one row for each name in :class:`Row`.
Those of several images are added.
"""

from enum import IntEnum

import torch
from numpy.typing import NDArray
from torch import Tensor

from mmseg_margin.functional.reference import (
    iou_lower_bound,
    rho_margin_loss,
    top_two,
)


class Row(IntEnum):
    """Rows of the sums, with one number for every class k."""

    LABELLED = 0  # pixels of class k
    PREDICTED = 1  # pixels whose top score is that of class k
    CORRECT = 2  # pixels that are both
    LOSS_K0 = 3  # sum of phi_{rho_k0}(lambda_ik) over the pixels of class k
    LOSS_0K = 4  # sum of phi_{rho_0k}(-lambda_ik) over the other pixels
    INSIDE = 5  # pixels on the right side of class k by less than its offset


def margin_sums(
    scores: Tensor, labels: Tensor, rho_0k: Tensor, rho_k0: Tensor
) -> Tensor:
    """Sums of one image.

    Args:
        scores: Shape (K, P), floating point.
        labels: Shape (P,), in [0, K).
        rho_0k: Shape (K,), from Algorithm 1.
        rho_k0: Shape (K,), from Algorithm 1.
    """
    # A tiny offset has the loss of an offset of 0 (absent_class='zero').
    tiny = torch.finfo(scores.dtype).tiny
    rho_0k, rho_k0 = rho_0k.clamp_min(tiny), rho_k0.clamp_min(tiny)
    top, second = top_two(scores)
    sums = scores.new_zeros((len(Row), len(scores)), dtype=torch.float64)
    unassigned = torch.ones_like(labels, dtype=torch.bool)
    # One class at a time needs memory for P pixels, not for P x K.
    for k, score in enumerate(scores):
        is_label = labels == k
        predicted = (score == top) & unassigned  # the first class of a tie
        unassigned &= ~predicted
        margin = score - torch.where(score == top, second, top)  # Eq. 8
        signed = torch.where(is_label, margin, -margin)
        rho = torch.where(is_label, rho_k0[k], rho_0k[k])
        loss = rho_margin_loss(signed, rho)
        sums[Row.LABELLED, k] = is_label.sum()
        sums[Row.PREDICTED, k] = predicted.sum()
        sums[Row.CORRECT, k] = (predicted & is_label).sum()
        sums[Row.LOSS_K0, k] = (loss * is_label).sum(dtype=torch.float64)
        sums[Row.LOSS_0K, k] = (loss * ~is_label).sum(dtype=torch.float64)
        sums[Row.INSIDE, k] = ((signed > 0) & (signed < rho)).sum()
    return sums


def bound_scores(sums: Tensor) -> dict[str, NDArray]:
    """Per class, shape (K,): ``iou``, ``bound`` (Eq. 11) and ``inside``.

    A class that is neither labelled nor predicted has no IoU and no bound
    (NaN). ``inside`` is a fraction of all labelled pixels.
    """
    labelled, predicted, correct, loss_k0, loss_0k, inside = sums
    iou = iou_lower_bound(labelled, labelled - correct, predicted - correct)
    bound = iou_lower_bound(labelled, loss_k0, loss_0k)
    return {
        'iou': iou.numpy(),
        'bound': torch.where(iou.isnan(), iou, bound).numpy(),
        'inside': (inside / labelled.sum()).numpy(),
    }
