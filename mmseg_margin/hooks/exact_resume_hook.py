"""ExactResumeHook: a resumed training ends where an undisturbed one does."""

from typing import Any

from mmengine.dist import broadcast_object_list, get_rank
from mmengine.hooks import Hook
from mmengine.registry import DATA_SAMPLERS
from mmseg.registry import HOOKS
from torch.utils.data import DataLoader

from mmseg_margin.compat import (
    draw_batches_from,
    is_endless,
    loader_settings,
)
from mmseg_margin.errors import SettingError

from .seeded_batches import SeededBatchSampler, seed_generators


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
        return DataLoader(
            loader.dataset,
            batch_sampler=SeededBatchSampler(
                sampler,
                loader.batch_size,
                loader.drop_last,
                self.seed,
                runner.iter,
                endless=is_endless(runner.train_loop),
            ),
            num_workers=loader.num_workers,
            collate_fn=loader.collate_fn,
            pin_memory=loader.pin_memory,
            timeout=loader.timeout,
            worker_init_fn=loader.worker_init_fn,
            multiprocessing_context=loader.multiprocessing_context,
            prefetch_factor=loader.prefetch_factor,
            persistent_workers=loader.persistent_workers,
        )
