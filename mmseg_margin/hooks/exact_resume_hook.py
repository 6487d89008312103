"""ExactResumeHook: a resumed training ends where an undisturbed one does."""

import random
from collections.abc import Iterator, Sized
from dataclasses import dataclass
from itertools import count, islice
from typing import Any

import numpy as np
import torch
from mmengine.dist import broadcast_object_list, get_dist_info, get_rank
from mmengine.hooks import Hook
from mmengine.registry import DATA_SAMPLERS
from mmseg.registry import HOOKS
from torch.utils.data import BatchSampler, DataLoader

from mmseg_margin.compat import draw_batches_from, is_endless, loader_settings
from mmseg_margin.errors import SettingError

# What the seeded loader has in common with the one that it replaces.
KEPT = (
    *('num_workers', 'collate_fn', 'pin_memory', 'timeout', 'worker_init_fn'),
    *('multiprocessing_context', 'prefetch_factor', 'persistent_workers'),
)


@HOOKS.register_module()
class ExactResumeHook(Hook):
    """Makes all random numbers a function of seed, rank and iteration.

    Then nothing random has to be kept in a checkpoint: after a resume, the
    samples are drawn, augmented and trained on as if nothing had happened,
    with any number of data loading workers, and what has been trained on is
    skipped without being loaded. What a checkpoint has to hold besides is
    what mmengine and ``ClassStatsHook`` put there; gradients are not part of
    it, so with ``accumulative_counts=n`` save every multiple of n iterations.

    The data loader is built anew, with the config's dataset, sampler, batch
    size and workers, but it cannot have a ``batch_sampler`` of its own.

    Example:
        >>> custom_hooks = [dict(type='ExactResumeHook')]
    """

    priority = 'VERY_HIGH'

    def before_train(self, runner: Any) -> None:
        """Number the batches, beginning where the training is."""
        # With diff_rank_seed the ranks have seeds of their own.
        seeds = [runner.seed]
        broadcast_object_list(seeds)
        self.seed = int(seeds[0])
        draw_batches_from(self._seeded_loader(runner), runner.train_loop)

    def before_train_iter(
        self, runner: Any, batch_idx: int, data_batch: Any = None
    ) -> None:
        """Seed what the model draws, such as the units to drop."""
        seed_generators(self.seed, runner.iter, get_rank(), 1)

    def _seeded_loader(self, runner: Any) -> DataLoader:
        loader = runner.train_dataloader
        settings = loader_settings(runner)
        if not isinstance(settings, dict) or settings.get('batch_sampler'):
            raise SettingError(
                'ExactResumeHook needs a train_dataloader given as a config, '
                'with a sampler and without a batch_sampler: change that, or '
                'leave the hook out.'
            )
        sampler = DATA_SAMPLERS.build(
            settings['sampler'],
            default_args={'dataset': loader.dataset, 'seed': self.seed},
        )
        batches = SeededBatchSampler(
            *(sampler, loader.batch_size, loader.drop_last),
            seed=self.seed,
            first=runner.iter,
            endless=is_endless(runner.train_loop),
        )
        kept = {name: getattr(loader, name) for name in KEPT}
        return DataLoader(loader.dataset, batch_sampler=batches, **kept)


def seed_generators(*key: int) -> None:
    """Seed Python, NumPy and torch from a few numbers, well mixed."""
    words = np.random.SeedSequence(key).generate_state(4)
    np.random.seed(words)  # noqa: NPY002  (transforms use this generator)
    random.seed(words.tobytes())
    torch.manual_seed(int(words.view(np.uint64)[0]))


@dataclass
class SeededBatch(Sized):
    """Indices that seed the generators, each just before it is used.

    The data loader walks through them wherever it loads the samples, be it in
    this process or in a worker, and loads each before it asks for the next.
    """

    indices: list[int]
    keys: list[tuple[int, int]]

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
        args: Those of a ``BatchSampler``, of this rank.
        seed: The same on all ranks.
        first: Number of the first batch.
        endless: Whether the sampler starts again when it is through; its
            first batches are then skipped. Otherwise it is a whole epoch.
    """

    def __init__(
        self, *args: Any, seed: int, first: int, endless: bool
    ) -> None:
        super().__init__(*args)
        self.seed = seed
        self.number = first
        self.endless = endless

    def __iter__(self) -> Iterator[SeededBatch]:  # type: ignore[override]
        batches = super().__iter__()
        if self.endless:
            batches = islice(self._epochs(), self.number, None)
        rank, world_size = get_dist_info()
        for indices in batches:
            first = self.number * self.batch_size
            places = range(first, first + len(indices))
            keys = [(self.seed, i * world_size + rank) for i in places]
            yield SeededBatch(indices, keys)
            self.number += 1

    def _epochs(self) -> Iterator[list[int]]:
        for epoch in count():
            if hasattr(self.sampler, 'set_epoch'):
                self.sampler.set_epoch(epoch)
            yield from super().__iter__()
