"""Batches whose random numbers depend only on their place in the training."""

import random
from collections.abc import Iterator, Sequence, Sized
from itertools import count, islice

import numpy as np
import torch
from mmengine.dist import get_dist_info
from torch.utils.data import BatchSampler


def seed_generators(*key: int) -> None:
    """Seed Python, NumPy and torch from a few numbers, well mixed."""
    words = np.random.SeedSequence(key).generate_state(4)
    np.random.seed(words)  # noqa: NPY002  (transforms use this generator)
    random.seed(words.tobytes())
    torch.manual_seed(int(words.view(np.uint64)[0]))


class SeededBatch(Sized):
    """Indices that seed the generators, each just before it is used.

    The data loader walks through them wherever it loads the samples, be it in
    this process or in a worker, and loads each before it asks for the next.
    """

    def __init__(
        self, indices: Sequence[int], keys: Sequence[tuple[int, ...]]
    ) -> None:
        self.indices = indices
        self.keys = keys

    def __len__(self) -> int:
        return len(self.indices)

    def __iter__(self) -> Iterator[int]:
        for index, key in zip(self.indices, self.keys, strict=True):
            seed_generators(*key)
            yield index


class SeededBatchSampler(BatchSampler):
    """Numbered batches; the n-th is always the same, resumed or not.

    A sample is seeded by the number of samples that all ranks together have
    drawn before it. So it is augmented in the same way whatever the number of
    ranks that share a batch.

    Args:
        sampler: Indices of this rank.
        batch_size: Samples of a batch on this rank.
        drop_last: Whether to leave out an incomplete batch.
        seed: The same on all ranks.
        first: Number of the first batch.
        endless: Whether the sampler starts again when it is through; its
            first batches are then skipped. Otherwise it is a whole epoch.
    """

    def __init__(
        self,
        sampler: torch.utils.data.Sampler,
        batch_size: int,
        drop_last: bool,
        seed: int,
        first: int,
        endless: bool,
    ) -> None:
        super().__init__(sampler, batch_size, drop_last)
        self.seed = seed
        self.number = first
        self.endless = endless

    def __iter__(self) -> Iterator[SeededBatch]:  # type: ignore[override]
        batches = super().__iter__()
        if self.endless:
            batches = islice(self._epochs(), self.number, None)
        for indices in batches:
            yield SeededBatch(indices, self._keys(len(indices)))
            self.number += 1

    def _epochs(self) -> Iterator[list[int]]:
        for epoch in count():
            if hasattr(self.sampler, 'set_epoch'):
                self.sampler.set_epoch(epoch)
            yield from super().__iter__()

    def _keys(self, size: int) -> list[tuple[int, ...]]:
        rank, world_size = get_dist_info()
        start = self.number * self.batch_size
        return [
            (self.seed, (start + place) * world_size + rank)
            for place in range(size)
        ]
