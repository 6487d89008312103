"""ExactResumeHook: a resumed training equals an uninterrupted one."""

import random
from collections.abc import Iterator, Sized
from dataclasses import dataclass
from itertools import chain, count, islice, repeat
from typing import Any

import numpy as np
import torch
from mmengine.dist import broadcast_object_list, get_dist_info, get_rank
from mmengine.hooks import Hook
from mmengine.registry import DATA_SAMPLERS
from mmseg.registry import HOOKS
from torch.utils.data import BatchSampler, DataLoader

from mmseg_margin.errors import SettingError

# Settings that the seeded loader copies from the one that it replaces.
KEPT = (
    *('num_workers', 'collate_fn', 'pin_memory', 'timeout', 'worker_init_fn'),
    *('multiprocessing_context', 'prefetch_factor', 'persistent_workers'),
)


@HOOKS.register_module()
class ExactResumeHook(Hook):
    """Makes all random numbers a function of seed, rank and iteration.

    So checkpoints need no random state: a resumed training draws, augments
    and trains on the same samples as an uninterrupted one, with any number of
    data loading workers, and skips earlier samples without loading them.
    mmengine and ``ClassStatsHook`` save everything else. Accumulated gradients
    are not saved, so with ``accumulative_counts=n`` save checkpoints at
    multiples of n iterations.

    The data loader is rebuilt with the config's dataset, sampler, batch size
    and workers; a ``batch_sampler`` in the config is refused.

    Example:
        >>> custom_hooks = [dict(type='ExactResumeHook')]
    """

    priority = 'VERY_HIGH'

    def before_train(self, runner: Any) -> None:
        """Replace the data loader by one at the iteration of the training."""
        # With diff_rank_seed each rank has its own seed.
        seeds = [runner.seed]
        broadcast_object_list(seeds)
        self.seed = int(seeds[0])
        loop = runner.train_loop
        is_iteration_based = hasattr(loop, 'dataloader_iterator')
        loop.dataloader = self._seeded_loader(runner, is_iteration_based)
        if is_iteration_based:
            can_skip = hasattr(loop.dataloader_iterator, 'skip_iter')
            nothing = repeat(None, 0 if can_skip else loop.iter)
            loop.dataloader_iterator = ResumedBatches(nothing, loop.dataloader)

    def before_train_iter(
        self, runner: Any, batch_idx: int, data_batch: Any = None
    ) -> None:
        """Seed the random numbers of the model, such as those of dropout."""
        seed_generators(self.seed, runner.iter, get_rank(), 1)

    def _seeded_loader(self, runner: Any, endless: bool) -> DataLoader:
        # A Runner may have no cfg, but it keeps this config of the loader.
        settings = runner._train_dataloader
        loader = runner.train_dataloader
        if not isinstance(settings, dict) or settings.get('batch_sampler'):
            raise SettingError(
                'ExactResumeHook needs a train_dataloader given as a config, '
                'with a sampler and without a batch_sampler: change that, or '
                'remove the hook.'
            )
        sampler = DATA_SAMPLERS.build(
            settings['sampler'],
            default_args={'dataset': loader.dataset, 'seed': self.seed},
        )
        batches = SeededBatchSampler(
            *(sampler, loader.batch_size, loader.drop_last),
            seed=self.seed,
            first=runner.iter,
            endless=endless,
        )
        kept = {name: getattr(loader, name) for name in KEPT}
        return DataLoader(loader.dataset, batch_sampler=batches, **kept)


class ResumedBatches(chain):
    """The batches of a loader that is already at the right iteration.

    When a training is resumed, the forks call ``skip_iter`` of the iterator,
    and upstream's mmengine draws and discards that many batches.
    """

    def skip_iter(self, num_iters: int) -> None:
        """Nothing is left to skip."""


def seed_generators(*key: int) -> None:
    """Seed Python, NumPy and torch with well-mixed bits of a few numbers."""
    words = np.random.SeedSequence(key).generate_state(4)
    np.random.seed(words)  # noqa: NPY002  (transforms use this generator)
    random.seed(words.tobytes())
    torch.manual_seed(int(words.view(np.uint64)[0]))


@dataclass
class SeededBatch(Sized):
    """Indices of samples; iteration seeds the generators before each one.

    The data loader, in this process or in a worker, loads each sample before
    it requests the next index.
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
    """Numbered batches; batch n is the same in every run, resumed or not.

    The seed of a sample is the number of samples that all ranks together have
    drawn before it, so its augmentation does not depend on the number of
    ranks.

    Args:
        args: Those of a ``BatchSampler``, of this rank.
        seed: The same on all ranks.
        first: Number of the first batch.
        endless: Whether the sampler is restarted at its end, as in an
            iteration-based loop; batches before ``first`` are then skipped.
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
