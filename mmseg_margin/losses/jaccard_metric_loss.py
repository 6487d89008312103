"""JaccardMetricLoss: the strongest published loss that we compare with."""

from typing import Any

import torch
from mmseg.registry import MODELS
from torch import Tensor, nn

from mmseg_margin.functional.settings import require
from mmseg_margin.functional.stage import INVALID, as_index, known_labels

from .base import EPS, check_loss_name, two_class_scores


@MODELS.register_module()
class JaccardMetricLoss(nn.Module):
    """One minus the mean soft Jaccard index of the classes in a batch.

    The Jaccard metric loss of Wang et al. (NeurIPS 2023) for hard labels.
    With ``x`` the probabilities of a class, ``y`` its labels (0 or 1) and L1
    norms over the labelled pixels of the batch,

        (|x| + |y| - |x - y|) / (|x| + |y| + |x - y|)

    which is ``sum xy / (|y| + sum x (1 - y))``. The authors weight it with
    0.75 and add the cross-entropy with 0.25: ``ce:0.25+jml:0.75``.

    Args:
        smooth: Added to intersection and union.
        loss_weight: Factor of the loss.
        loss_name: Name in the log; it has to contain ``loss``.

    Example:
        >>> loss_decode = dict(type='JaccardMetricLoss', loss_weight=0.75)
    """

    def __init__(
        self,
        smooth: float = 1.0,
        loss_weight: float = 1.0,
        loss_name: str = 'loss_jml',
    ) -> None:
        super().__init__()
        check_loss_name(loss_name)
        self.smooth = smooth
        require(self, 'smooth', 'not be negative', lambda x: x >= 0)
        self.loss_weight = loss_weight
        self.loss_name = loss_name

    def forward(
        self,
        cls_score: Tensor,
        label: Tensor,
        weight: Tensor | None = None,
        ignore_index: int = 255,
        **kwargs: Any,
    ) -> Tensor:
        """Scores (N, K, H, W) and labels (N, H, W) to one number."""
        scores = two_class_scores(cls_score).float()
        K = scores.shape[1]
        known = known_labels(as_index(label), K, ignore_index)
        labelled = (known >= 0).unsqueeze(1)
        index = known.clamp(min=0).long().unsqueeze(1)
        x = scores.softmax(1) * labelled
        label_x = x.gather(1, index).flatten()
        of_class = x.new_zeros(2, K).index_add(
            1,
            index.flatten(),
            torch.stack([label_x, labelled.flatten().to(x)]),
        )
        intersection, pixels = of_class
        taken = x.transpose(0, 1).flatten(1).sum(1) - intersection
        # Not 0, which it would be without smoothing if nothing is labelled.
        union = (pixels + taken + self.smooth).clamp(min=EPS)
        soft = (intersection + self.smooth) / union
        shown = pixels > 0
        loss = ((1 - soft) * shown).sum() / shown.sum().clamp(min=1)
        # An invalid label, which a GPU is not waited for to report.
        poison = torch.where((known == INVALID).any(), torch.nan, 0.0)
        return self.loss_weight * loss + poison
