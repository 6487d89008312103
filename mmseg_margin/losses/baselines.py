"""The baselines that upstream lacks, or whose upstream form fails."""

from typing import Any

import torch
from mmengine.dist import all_reduce, get_world_size
from mmseg.registry import MODELS
from torch import Tensor, nn

from mmseg_margin.errors import NOT_NEGATIVE, POSITIVE, SettingError, require
from mmseg_margin.functional.softmax import CrossEntropy
from mmseg_margin.functional.stage import INVALID, as_index, known_labels

from .base import EPS, PixelLoss, check_name_and_weight


@MODELS.register_module()
class WeightedCrossEntropyLoss(PixelLoss):
    """Cross-entropy with class weights, given or from the statistics.

    Args:
        class_weight: See :class:`PixelLoss`, as for the rest.

    Example:
        >>> custom_imports = dict(imports=['mmseg_margin'])
        >>> custom_hooks = [dict(type='ClassStatsHook')]
        >>> model = dict(decode_head=dict(loss_decode=dict(
        ...     type='WeightedCrossEntropyLoss', class_weight='inverse')))
    """

    def objective(self) -> CrossEntropy:
        return CrossEntropy()


@MODELS.register_module()
class SoftmaxFocalLoss(PixelLoss):
    """``-(1 - p_y)^gamma log p_y``, averaged over the labelled pixels.

    mmseg's ``FocalLoss`` is a sum of sigmoids, and on the CPU it fails on
    class labels; this is the multi-class form that papers compare with.

    Args:
        gamma: How strongly easy pixels are down-weighted.
        **kwargs: See :class:`PixelLoss`.

    Example:
        >>> loss_decode = dict(type='SoftmaxFocalLoss', gamma=2.0)
    """

    def __init__(
        self,
        gamma: float = 2.0,
        loss_name: str = 'loss_focal',
        **kwargs: Any,
    ) -> None:
        super().__init__(loss_name=loss_name, **kwargs)
        require('gamma', gamma, *NOT_NEGATIVE)
        self.gamma = gamma

    def objective(self) -> CrossEntropy:
        return CrossEntropy(self.gamma)


@MODELS.register_module()
class RegionLoss(nn.Module):
    """One minus the mean soft overlap of the classes that occur in a batch.

    With ``x`` the probabilities of a class and ``y`` its labels (0 or 1), both
    over the labelled pixels of the batch, the overlap is ``TP / (TP + alpha FP
    + beta FN)``, where ``TP = sum x y``, ``FP = sum x (1 - y)`` and ``FN =
    sum (1 - x) y``. In training the sums are those of all ranks.

    ``alpha = beta = 1`` is the soft Jaccard index, which is the Jaccard metric
    loss of Wang et al. (NeurIPS 2023) for hard labels; its authors weight it
    with 0.75 and add the cross-entropy with 0.25: ``ce:0.25+jml:0.75``.
    1/2 and 1/2 is the soft Dice, 0.3 and 0.7 the loss of Salehi et al. (2017),
    called Tversky.

    Args:
        alpha: Weight of the false positives.
        beta: Weight of the false negatives.
        smooth: Added to numerator and denominator.
        loss_weight: Factor of the loss.
        loss_name: Name in the log; it has to contain ``loss``.

    Example:
        >>> loss_decode = dict(type='RegionLoss', alpha=0.5, beta=0.5)
    """

    def __init__(
        self,
        alpha: float = 1.0,
        beta: float = 1.0,
        smooth: float = 1.0,
        loss_weight: float = 1.0,
        loss_name: str = 'loss_region',
    ) -> None:
        super().__init__()
        self.loss_weight, self.loss_name = loss_weight, loss_name
        check_name_and_weight(self)
        for name, x in ('alpha', alpha), ('beta', beta):
            require(name, x, *POSITIVE)
        require('smooth', smooth, *NOT_NEGATIVE)
        self.alpha, self.beta, self.smooth = alpha, beta, smooth

    def forward(
        self,
        cls_score: Tensor,
        label: Tensor,
        weight: Tensor | None = None,
        ignore_index: int = 255,
        reduction_override: str | None = None,
        **kwargs: Any,
    ) -> Tensor:
        """Scores (N, K, H, W) and labels (N, H, W) to one number."""
        if weight is not None or reduction_override == 'none':
            raise SettingError(
                'RegionLoss has no loss of single pixels: take the sampler '
                'out of the head, or take another loss.'
            )
        scores = cls_score.float()
        known = known_labels(as_index(label), scores.shape[1], ignore_index)
        sums = class_sums(scores.softmax(1), known.unsqueeze(1))
        if self.training:
            everyone = sums.detach().clone()
            all_reduce(everyone)
            # The sums of all ranks with this rank's gradient, multiplied by
            # the number of ranks, because DDP averages the gradients.
            sums = everyone + get_world_size() * (sums - sums.detach())
        hit, pixels, taken = sums
        errors = self.alpha * taken + self.beta * (pixels - hit)
        # Not 0, which it would be without smoothing if nothing is labelled.
        union = (hit + errors + self.smooth).clamp(min=EPS)
        overlap = (hit + self.smooth) / union
        occurs = (pixels > 0).to(overlap)
        loss = ((1 - overlap) * occurs).sum() / occurs.sum().clamp(min=EPS)
        # An invalid label becomes NaN without a device sync.
        poison = torch.where((known == INVALID).any(), torch.nan, 0.0)
        return self.loss_weight * loss + poison


def class_sums(probabilities: Tensor, known: Tensor) -> Tensor:
    """TP, labelled pixels and FP, (3, K); labels below 0 are ignored."""
    labelled, index = known >= 0, known.clamp(min=0).long()
    x = probabilities * labelled
    label_x = x.gather(1, index).flatten()
    hit, pixels = x.new_zeros(2, x.shape[1]).index_add(
        1, index.flatten(), torch.stack([label_x, labelled.flatten().to(x)])
    )
    taken = x.transpose(0, 1).flatten(1).sum(1) - hit
    return torch.stack([hit, pixels, taken])
