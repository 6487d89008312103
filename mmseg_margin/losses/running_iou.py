"""The data set's IoU while training, and the weights that follow from it.

With ``U_k = P_k + l_0k`` the gradient of ``IoU_bar_k`` (Eq. 11) is ``-1/U_k``
with respect to ``l_k0`` and ``-IoU_bar_k/U_k`` with respect to ``l_0k``.
Weighting the terms of Eq. 16 by these follows the gradient of the data set's
mean bound, where the paper minimises ``sum_k (l_k0 + l_0k)`` instead.
"""

import torch
from mmengine.dist import all_reduce
from torch import Tensor, nn

# Every fourth pixel in both directions: neighbours hardly differ, and this
# keeps the bookkeeping at a few percent of the loss.
PIXEL_STRIDE = 4


def iou_weights(
    share: Tensor, false_negative: Tensor, false_positive: Tensor
) -> tuple[Tensor, Tensor]:
    """Weights of the foreground and the background terms, each (K,)."""
    num_classes = len(share)
    tiny = torch.finfo(share.dtype).eps
    union = (share + false_positive).clamp(min=tiny)
    iou = (share - false_negative) / union
    return 1 / (num_classes * union), iou / (num_classes * union)


class RunningIoU(nn.Module):
    """Running false-negative and false-positive rates of K classes.

    What is tracked is conditional on the label, because crops and samplers
    change how often a class is seen but not how often it is missed. The
    class's share comes from the statistics of the whole data set.
    """

    share: Tensor
    sums: Tensor

    def __init__(self, momentum: float) -> None:
        super().__init__()
        if not 0 <= momentum < 1:
            raise ValueError(f'momentum={momentum} is not in [0, 1).')
        self.momentum = momentum
        # Rows of sums: own pixels, own missed, others' pixels, others taken.
        for name in ('share', 'sums'):
            self.register_buffer(name, torch.empty(0), persistent=False)

    def start(self, share: Tensor) -> None:
        """Begin with uniform guesses, worth one pixel."""
        num_classes = len(share)
        self.share = share
        own, other = torch.ones_like(share), torch.ones_like(share)
        self.sums = torch.stack(
            [own, own * (1 - 1 / num_classes), other, other / num_classes]
        )

    def rates(self) -> tuple[Tensor, Tensor]:
        """False negatives and false positives among all pixels, (K,)."""
        own, missed, others, taken = self.sums
        return (
            self.share * missed / own,
            (1 - self.share) * taken / others,
        )

    @torch.no_grad()
    def update(
        self, scores: Tensor, labels: Tensor, ignore_index: int
    ) -> None:
        """Take in a batch, over all ranks: (N, K, ...) and (N, ...)."""
        if scores.dim() == 4:
            scores = scores[..., ::PIXEL_STRIDE, ::PIXEL_STRIDE]
            labels = labels[..., ::PIXEL_STRIDE, ::PIXEL_STRIDE]
        num_classes = scores.shape[1]
        # Class K collects the ignored pixels.
        labels = torch.where(labels == ignore_index, num_classes, labels)
        pairs = labels * num_classes + scores.argmax(dim=1)
        confusion = torch.bincount(
            pairs.flatten(), minlength=(num_classes + 1) * num_classes
        ).view(num_classes + 1, num_classes)[:num_classes]
        hits = confusion.diagonal()
        own, predicted = confusion.sum(1), confusion.sum(0)
        batch = torch.stack(
            [own, own - hits, own.sum() - own, predicted - hits]
        ).to(self.sums)
        all_reduce(batch)
        # A class that was not seen keeps its rates.
        seen = (batch[[0, 0, 2, 2]] > 0).expand_as(batch)
        self.sums = torch.where(
            seen, self.momentum * self.sums + batch, self.sums
        )
