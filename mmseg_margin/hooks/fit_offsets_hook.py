"""FitOffsetsHook: class offsets for the network that was just trained."""

import copy

from mmengine import dist
from mmengine.hooks import Hook
from mmengine.runner import Runner, find_latest_checkpoint
from mmseg.registry import HOOKS

from mmseg_margin.heads import bare_model
from mmseg_margin.offsets.checkpoint import fit_checkpoint
from mmseg_margin.offsets.fit_runner import NUM_IMAGES, check_settings
from mmseg_margin.offsets.network import find_classifier


@HOOKS.register_module()
class FitOffsetsHook(Hook):
    """Fits offsets to the last checkpoint at the end of a training.

    Beside ``iter_N.pth`` it writes ``iter_N_offsets.pth``, with a JSON file
    and a plot, if the offsets improve the metric on the validation split. See
    ``docs/offsets.md``.

    Args:
        split: ``'train'`` or ``'val'``: the images to fit on.
        num_images: Use at most this many of them.
        metric: ``'mIoU'`` or ``'mDice'``.
        force: Write the checkpoint even without a gain.

    Example:
        >>> custom_hooks = [dict(type='FitOffsetsHook')]
    """

    # After CheckpointHook.
    priority = 'LOWEST'

    def __init__(
        self,
        split: str = 'train',
        num_images: int = NUM_IMAGES,
        metric: str = 'mIoU',
        force: bool = False,
    ) -> None:
        self.split = split
        self.num_images = num_images
        self.metric = metric
        self.force = force

    def before_train(self, runner: Runner) -> None:
        """Refuse what cannot be fitted before the training begins."""
        check_settings(runner.cfg, self.split, self.num_images, self.metric)
        find_classifier(bare_model(runner.model))

    def after_train(self, runner: Runner) -> None:
        """Fit offsets to the weights of the last checkpoint, EMA or not."""
        dist.barrier()  # until rank 0 has written it
        path = find_latest_checkpoint(runner.work_dir)
        if path is None:
            runner.logger.warning(
                'FitOffsetsHook found no checkpoint of this training: let '
                'CheckpointHook write one.'
            )
            return
        model = bare_model(runner.model)
        trained = copy.deepcopy(model.state_dict())
        try:
            fit_checkpoint(
                runner,
                path,
                split=self.split,
                num_images=self.num_images,
                metric=self.metric,
                force=self.force,
            )
        finally:
            model.load_state_dict(trained)
