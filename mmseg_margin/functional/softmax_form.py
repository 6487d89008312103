"""The softmax form: one logarithm for all other classes of a pixel.

    l_i = log_b(1 + sum_{k != y} b^x_k),  x_k = s_ik - s_iy + rho_0k + rho_y0

Offsets are positive, so ``l_i`` is at least every term that the target form
has for this pixel, and Eq. 11 remains a lower bound of each class's IoU.
Without offsets it is cross-entropy, with a focus the focal loss.
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def softmax_form_loss(
    scores: Tensor,
    labels: Tensor,
    rho_0k: Tensor,
    rho_k0: Tensor,
    nats: float,
    focus: float,
) -> Tensor:
    """Loss of every pixel, (N, ...), of scores (N, K, ...) and offsets (K,).

    Args:
        scores: (N, K, ...), in the dtype to compute in.
        labels: (N, ...), all in [0, K).
        rho_0k: Offsets of the background terms.
        rho_k0: Offsets of the foreground terms.
        nats: Natural logarithm of the base b.
        focus: Power of twice the probability of the other classes.
    """
    per_class = (-1,) + (1,) * (scores.dim() - 2)
    # The offset rho_0k of every class, taken back for the label itself, whose
    # own offset is taken off instead: b^(s_k + rho_0k) / b^(s_y - rho_y0).
    # In place on the one copy that is needed anyway.
    rho_0k, rho_k0 = nats * rho_0k, nats * rho_k0
    shifted = torch.add(rho_0k.view(per_class), scores, alpha=nats)
    of_label = -(rho_0k + rho_k0)[labels].unsqueeze(1)
    shifted.scatter_add_(1, labels.unsqueeze(1), of_label)
    loss = F.cross_entropy(shifted, labels, reduction='none')
    if focus:
        # Below the smallest step of a float the power has no slope.
        tiny = torch.finfo(loss.dtype).tiny
        wrong = (-torch.expm1(-loss)).clamp(min=tiny)
        loss = (2 * wrong) ** focus * loss
    return loss / nats
