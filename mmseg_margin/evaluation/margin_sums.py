"""Eq. 11 from sums over pixels: what MarginBoundMetric adds up.

Sums are float64 of shape (6, K), one row for each of the names below. They
are all that has to be kept of an image, and those of two images are added.
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
    """Rows of the sums; each is one number for every class k."""

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
        labels: Shape (P,), every one in [0, K).
        rho_0k: Shape (K,), from Algorithm 1.
        rho_k0: Shape (K,), from Algorithm 1.
    """
    # An offset of 0 (absent_class='zero') is the limit of small ones.
    tiny = torch.finfo(scores.dtype).tiny
    rho_0k, rho_k0 = rho_0k.clamp_min(tiny), rho_k0.clamp_min(tiny)
    top, second = top_two(scores)

    def margin(score: Tensor) -> Tensor:  # Eq. 8
        return score - torch.where(score == top, second, top)

    own = margin(scores.gather(0, labels[None])[0])
    loss_own = rho_margin_loss(own, rho_k0[labels])
    inside_own = (own > 0) & (own < rho_k0[labels])
    sums = scores.new_zeros((len(Row), len(scores)), dtype=torch.float64)
    for row, values in ((Row.LOSS_K0, loss_own), (Row.INSIDE, inside_own)):
        sums[row] = labels.bincount(values.double(), minlength=len(scores))
    undecided = torch.ones_like(inside_own)
    # One class at a time: memory for P pixels, not for P x K.
    for k, score in enumerate(scores):
        is_own = labels == k
        predicted = (score == top) & undecided  # the first of a tie
        undecided &= ~predicted
        other = -margin(score)
        loss_other = rho_margin_loss(other, rho_0k[k]) * ~is_own
        inside_other = (other > 0) & (other < rho_0k[k]) & ~is_own
        sums[Row.LABELLED, k] = is_own.sum()
        sums[Row.PREDICTED, k] = predicted.sum()
        sums[Row.CORRECT, k] = (predicted & is_own).sum()
        sums[Row.LOSS_0K, k] = loss_other.sum(dtype=torch.float64)
        sums[Row.INSIDE, k] += inside_other.sum()
    return sums


def bound_scores(sums: Tensor) -> dict[str, NDArray]:
    """Per class, shape (K,): ``iou``, ``bound`` (Eq. 11) and ``inside``.

    A class that is neither in the labels nor predicted has no IoU and so no
    bound (nan). ``inside`` is a share of all labelled pixels.
    """
    labelled, predicted, correct, loss_k0, loss_0k, inside = sums
    missed, claimed = labelled - correct, predicted - correct
    iou = iou_lower_bound(labelled, missed, claimed)
    bound = iou_lower_bound(labelled, loss_k0, loss_0k)
    return {
        'iou': iou.numpy(),
        'bound': torch.where(iou.isnan(), iou, bound).numpy(),
        'inside': (inside / labelled.sum()).numpy(),
    }
