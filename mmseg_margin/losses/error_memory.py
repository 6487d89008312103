"""The errors of the data set while training, for the Jaccard form."""

from collections.abc import Sequence

import torch
from mmengine.dist import all_reduce
from torch import Tensor, nn

from mmseg_margin.functional import jaccard_weights


class ErrorMemory(nn.Module):
    """Running histograms of the errors of K classes at L levels.

    What is remembered is conditional on the label, because crops and
    samplers change how often a class is seen but not how well it is told
    apart. The class's share comes from the statistics of the whole data set,
    from the batch, or from both.

    Args:
        levels: L.
        memory: What is kept from one batch to the next.
        batch_share: Exponent of the batch in the geometric mean of the two
            shares. The data set's are right in the long run; the batch's
            keep a class that fills a batch by chance from dominating it.
    """

    share: Tensor
    histograms: Tensor

    def __init__(
        self, levels: int, memory: float, batch_share: float = 0.0
    ) -> None:
        super().__init__()
        self.levels = levels
        self.memory = memory
        self.batch_share = batch_share
        # Rows of the histograms: own pixels, other pixels.
        for name in ('share', 'histograms'):
            self.register_buffer(name, torch.empty(0), persistent=False)

    def make_room(self, num_classes: int) -> None:
        """Give the buffers their size."""
        zeros = self.share.new_zeros
        self.share = zeros(num_classes)
        self.histograms = zeros(2, num_classes, self.levels)

    def start(self, counts: Sequence[int]) -> None:
        """Begin with uniform guesses, worth one pixel, for unseen classes."""
        num_classes = len(counts)
        self.make_room(num_classes)
        total = torch.tensor(counts, dtype=torch.float64)
        self.share = (total / total.sum()).to(self.share)
        for row, error in enumerate((1 - 1 / num_classes, 1 / num_classes)):
            level = min(int(error * self.levels), self.levels - 1)
            self.histograms[row, :, level] = 1

    def weights(self) -> Tensor:
        """What the errors of own and other pixels weigh now, (2, K, L + 1)."""
        return jaccard_weights(self.share, self.histograms)

    @torch.no_grad()
    def weights_with(self, batch: Tensor) -> Tensor:
        """The weights after a batch with these histograms, over all ranks."""
        batch = batch.to(self.histograms, copy=True)
        all_reduce(batch)
        # A class that was not seen keeps its errors.
        seen = batch.sum(2, keepdim=True) > 0
        mixed = self.memory * self.histograms + batch
        self.histograms = torch.where(seen, mixed, self.histograms)
        if not self.batch_share:
            return self.weights()
        in_batch = batch[0].sum(1) / batch[0].sum().clamp(min=1)
        share = self.share ** (1 - self.batch_share)
        share = share * in_batch**self.batch_share
        # The mean over the classes that the batch shows, or a batch would
        # count the less the fewer of them it happens to show.
        shown = (share > 0).sum().clamp(min=1)
        weights = jaccard_weights(share, self.histograms)
        return weights * (len(share) / shown)

    def state(self) -> list[float]:
        """What a resumed training needs, as a flat list."""
        return self.histograms.flatten().tolist()

    def load(self, state: Sequence[float]) -> None:
        """Go on from what :meth:`state` gave."""
        kept = self.histograms.new_tensor(state)
        self.histograms = kept.view_as(self.histograms)
