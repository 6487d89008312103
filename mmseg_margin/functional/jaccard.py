r"""The Jaccard form: the Lovasz extension of the data set's Jaccard loss.

``phi_rho`` (Eq. 9) is an average of 0-1 losses over thresholds. Eq. 11 puts
that average inside the IoU's ratio, this form puts it outside. With ``p`` the
softmax of the scores shifted by the margins, ``e_ik`` the error of pixel i for
class k, which is ``1 - p_ik`` at the label and ``p_ik`` elsewhere, and

    F_k(e) = P_k       times the share of class k's own pixels with more error
    B_k(e) = (1 - P_k) times the share of the other pixels with more error

the loss of a pixel is ``sum_k w_ik e_ik`` with constant

    w_ik = 1 / (K (P_k + B_k))             at the label
    w_ik = (P_k - F_k) / (K (P_k + B_k)^2)  elsewhere

which needs no sort, and with ``F`` and ``B`` of the whole data set has not
the bias of a mini-batch's IoU.
"""

import torch
from torch import Tensor


def jaccard_weights(share: Tensor, histograms: Tensor) -> Tensor:
    """Weights (2, K, L) of own and of other pixels at L levels of error.

    Args:
        share: ``P_k``, (K,); a class without pixels has no weight.
        histograms: (2, K, L), the errors of own and of other pixels.
    """
    tiny = torch.finfo(histograms.dtype).tiny
    # Half of a level's own pixels lie above its middle.
    above = histograms.flip(2).cumsum(2).flip(2) - histograms / 2
    above = above / histograms.sum(2, keepdim=True).clamp(min=tiny)
    share = share.unsqueeze(1)
    missed, taken = share * above[0], (1 - share) * above[1]
    union = share + taken
    own = 1 / (len(share) * union)
    weights = torch.stack([own, own * (share - missed) / union])
    return torch.where(share > 0, weights, 0.0)


def pixel_errors(
    scores: Tensor,
    labels: Tensor,
    rho_0k: Tensor,
    rho_k0: Tensor,
    nats: float = 1.0,
) -> tuple[Tensor, Tensor, Tensor]:
    """Errors and ownership (N, K, ...), and log-loss (N, ...) in nats.

    Args:
        scores: (N, K, ...), in the dtype to compute in.
        labels: (N, ...), all in [0, K).
        rho_0k: Offsets (K,) of the background terms.
        rho_k0: Offsets (K,) of the foreground terms.
        nats: Natural logarithm of the base.
    """
    per_class = (-1,) + (1,) * (scores.dim() - 2)
    index = torch.arange(scores.shape[1], device=labels.device)
    own = labels.unsqueeze(1) == index.view(per_class)
    offset = torch.where(own, -rho_k0.view(per_class), rho_0k.view(per_class))
    log_p = (nats * (scores + offset)).log_softmax(1)
    p = log_p.exp()
    log_loss = -log_p.gather(1, labels.unsqueeze(1)).squeeze(1)
    return torch.where(own, 1 - p, p), own, log_loss


def level_of(error: Tensor, levels: int) -> Tensor:
    return (error * levels).long().clamp(0, levels - 1)


def error_histograms(
    error: Tensor, own: Tensor, labelled: Tensor, levels: int
) -> Tensor:
    """How many own and other pixels of each class have which error.

    Args:
        error: (N, K, ...), as ``own``.
        own: Whether the class is the pixel's label.
        labelled: (N, ...).
        levels: L.

    Returns:
        (2, K, L), in the dtype of the errors.
    """
    num_classes = error.shape[1]
    per_class = (-1,) + (1,) * (error.dim() - 2)
    index = torch.arange(num_classes, device=error.device).view(per_class)
    bins = level_of(error, levels) + levels * (index + num_classes * ~own)
    # A step that overflows is not taken and must not be remembered either.
    counted = labelled.unsqueeze(1) & error.isfinite()
    counts = error.new_zeros(2 * num_classes * levels)
    counts.index_add_(0, bins.flatten(), counted.flatten().to(error))
    return counts.view(2, num_classes, levels)


def jaccard_form_loss(error: Tensor, own: Tensor, weights: Tensor) -> Tensor:
    """Loss of every pixel, (N, ...), of errors and ownership (N, K, ...)."""
    num_classes, levels = weights.shape[1:]
    per_class = (-1,) + (1,) * (error.dim() - 2)
    index = torch.arange(num_classes, device=error.device).view(per_class)
    level = level_of(error.detach(), levels)
    of_pixels = weights.flatten()[
        level + levels * (index + num_classes * ~own)
    ]
    return (of_pixels * error).sum(1)
