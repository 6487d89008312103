"""The data set's IoU while training, and the weights that follow from it.

With ``U_k = P_k + l_0k`` the gradient of ``IoU_bar_k`` (Eq. 11) is ``-1/U_k``
with respect to ``l_k0`` and ``-IoU_bar_k/U_k`` with respect to ``l_0k``.
Weighting the terms of Eq. 16 by these follows the gradient of the data set's
mean bound, where the paper minimises ``sum_k (l_k0 + l_0k)`` instead.
"""

from collections.abc import Sequence

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
    class's share comes from the statistics of the whole data set. A pixel is
    missed, or taken, to the degree of its probability.

    Args:
        momentum: Memory of the rates.
        nats: Natural logarithm of the base in which scores are exponents.
    """

    share: Tensor
    sums: Tensor

    def __init__(self, momentum: float, nats: float = 1.0) -> None:
        super().__init__()
        if not 0 <= momentum < 1:
            raise ValueError(f'momentum={momentum} is not in [0, 1).')
        self.momentum = momentum
        self.nats = nats
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

    def weights(self) -> tuple[Tensor, Tensor]:
        """What the foreground and the background terms weigh now, (K,)."""
        return iou_weights(self.share, *self.rates())

    def load(self, sums: Sequence[float]) -> None:
        """Go on from sums that were kept as a flat list."""
        self.sums = self.sums.new_tensor(sums).view_as(self.sums)

    @torch.no_grad()
    def update(
        self, scores: Tensor, labels: Tensor, ignore_index: int
    ) -> None:
        """Take in a batch, over all ranks: (N, K, ...) and (N, ...)."""
        if scores.dim() == 4:
            scores = scores[..., ::PIXEL_STRIDE, ::PIXEL_STRIDE]
            labels = labels[..., ::PIXEL_STRIDE, ::PIXEL_STRIDE]
        classes = torch.arange(scores.shape[1], device=labels.device)
        labelled = (labels != ignore_index).flatten()[:, None]
        members = (labels.flatten()[:, None] == classes) & labelled
        # Probabilities, because decisions flip for a whole class at once as
        # long as little is learnt, and the weights would follow. A step that
        # overflows is not taken and must not be remembered either.
        predicted = (self.nats * scores.float()).softmax(1).nan_to_num()
        confusion = members.float().T @ predicted.movedim(1, -1).flatten(0, -2)
        hits = confusion.diagonal()
        own, taken = members.sum(0), confusion.sum(0)
        batch = torch.stack(
            [own, own - hits, own.sum() - own, taken - hits]
        ).to(self.sums)
        all_reduce(batch)
        # A class that was not seen keeps its rates.
        seen = (batch[[0, 0, 2, 2]] > 0).expand_as(batch)
        self.sums = torch.where(
            seen, self.momentum * self.sums + batch, self.sums
        )
