"""FitOffsetsHook: class offsets for the network that was just trained."""

import copy
import os

from mmengine import dist
from mmengine.hooks import Hook
from mmengine.runner import Runner
from mmseg.registry import HOOKS

from mmseg_margin.heads import bare_model
from mmseg_margin.offsets.checkpoint import fit_checkpoint
from mmseg_margin.offsets.fit_runner import NUM_IMAGES, check_config
from mmseg_margin.offsets.network import find_classifier


@HOOKS.register_module()
class FitOffsetsHook(Hook):
    """Fits offsets to the last checkpoint at the end of a training.

    Beside ``iter_N.pth`` it writes ``iter_N_offsets.pth``, with a JSON file
    and a plot, if the offsets raise mIoU on the validation split. If the
    training keeps only its best checkpoint, that one is fitted.

    Args:
        num_images: Number of training images to fit on, at most.
        force: Write the checkpoint even without a gain.

    Example:
        >>> custom_hooks = [dict(type='FitOffsetsHook')]
    """

    # After CheckpointHook.
    priority = 'LOWEST'

    def __init__(
        self, num_images: int = NUM_IMAGES, force: bool = False
    ) -> None:
        self.num_images, self.force = num_images, force

    def before_train(self, runner: Runner) -> None:
        """Refuse what cannot be fitted before the training begins."""
        check_config(runner.cfg)
        find_classifier(bare_model(runner.model))

    def after_train(self, runner: Runner) -> None:
        """Fit offsets to the weights of the last checkpoint, EMA or not."""
        dist.barrier()  # until rank 0 has written it
        # Not what the folder holds, which may be of an earlier training.
        info = runner.message_hub.runtime_info
        best = [info[key] for key in info if key.startswith('best_ckpt')]
        written = [info.get('last_ckpt'), *best]
        path = next((x for x in written if x and os.path.isfile(x)), None)
        if path is None:
            runner.logger.warning('FitOffsetsHook found no checkpoint to fit.')
            return
        model = bare_model(runner.model)
        trained = copy.deepcopy(model.state_dict())
        fit_checkpoint(runner, path, None, self.num_images, self.force)
        model.load_state_dict(trained)
