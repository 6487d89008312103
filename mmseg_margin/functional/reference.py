"""Algorithm 2 and its parts as the paper writes them, to read and to test.

Everything here is plain differentiable torch; training uses the kernels of
:mod:`mmseg_margin.functional.margin_loss`, which give the same numbers.
Scores are (N, K, ...), labels (N, ...), offsets (K,).
"""

import math

import torch
from torch import Tensor


def top_two(scores: Tensor) -> tuple[Tensor, Tensor]:
    """The largest and the second largest of K scores, (K, ...) to (...).

    Ten times as fast as topk along K, which is strided in memory.
    """
    top = scores[0]
    second = torch.full_like(top, float('-inf'))
    for score in scores[1:]:
        second = torch.maximum(second, torch.minimum(top, score))
        top = torch.maximum(top, score)
    return top, second


def pixel_margins(scores: Tensor) -> Tensor:
    """Eq. 8: ``lambda_ik = s_ik - max_{j != k} s_ij``, (N, K, ...)."""
    top, second = top_two(scores.transpose(0, 1))
    top, second = top.unsqueeze(1), second.unsqueeze(1)
    return scores - torch.where(scores == top, second, top)


def rho_margin_loss(margin: Tensor, rho: Tensor | float) -> Tensor:
    """Eq. 9: ``phi_rho(l) = min(1, max(0, 1 - l / rho))``."""
    return (1 - margin / rho).clamp(0, 1)


def calibrated_log_loss(
    margin: Tensor, rho: Tensor | float, log_base: float = 2.0
) -> Tensor:
    """``varphi_rho(l) = log_b(1 + b^(rho - l))``, 1 at ``l = rho``, >= phi."""
    scale = math.log(log_base)
    return torch.nn.functional.softplus(scale * (rho - margin)) / scale


def iou_lower_bound(
    share: Tensor, false_negative: Tensor, false_positive: Tensor
) -> Tensor:
    """Eq. 11: ``(P_k - l_k0) / (P_k + l_0k)``; with the 0-1 rates, the IoU."""
    return (share - false_negative) / (share + false_positive)


def reference_loss(
    scores: Tensor,
    labels: Tensor,
    rho_0k: Tensor,
    rho_k0: Tensor,
    pos_weight: float = 1.0,
    log_base: float = 2.0,
    ignore_index: int = 255,
) -> Tensor:
    """Algorithm 2 and Eq. 16: the mean over the labelled pixels."""
    labelled = labels != ignore_index
    margins = pixel_margins(scores)
    loss = scores.new_zeros(())
    for k in range(scores.shape[1]):
        foreground = margins[:, k][labels == k]
        background = margins[:, k][labelled & (labels != k)]
        own = calibrated_log_loss(foreground, rho_k0[k], log_base).sum()
        other = calibrated_log_loss(-background, rho_0k[k], log_base).sum()
        loss = loss + pos_weight * own + other
    return loss / labelled.sum()
