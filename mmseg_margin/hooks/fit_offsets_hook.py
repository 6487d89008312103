"""FitOffsetsHook: class offsets for the network that was just trained."""

import copy
import os

from mmengine import dist
from mmengine.hooks import CheckpointHook, Hook
from mmengine.runner import Runner
from mmseg.registry import HOOKS

from mmseg_margin.heads import bare_model
from mmseg_margin.offsets.checkpoint import fit_checkpoint
from mmseg_margin.offsets.fit_runner import FitSettings
from mmseg_margin.offsets.network import find_classifier


@HOOKS.register_module()
class FitOffsetsHook(Hook):
    """Fits offsets to the last checkpoint at the end of a training.

    Beside ``iter_N.pth`` it writes ``iter_N_offsets.pth``, with a JSON file
    and a plot, if the offsets improve the metric on the validation split. If
    the training keeps only its best checkpoint, that one is fitted.

    Args:
        force: Write the checkpoint even without a gain.
        settings: ``split``, ``num_images`` and ``metric`` of
            :class:`~mmseg_margin.offsets.FitSettings`.

    Example:
        >>> custom_hooks = [dict(type='FitOffsetsHook')]
    """

    # After CheckpointHook.
    priority = 'LOWEST'

    def __init__(self, force: bool = False, **settings) -> None:
        self.settings = FitSettings(**settings)
        self.force = force

    def before_train(self, runner: Runner) -> None:
        """Refuse what cannot be fitted before the training begins."""
        self.settings.check_config(runner.cfg)
        find_classifier(bare_model(runner.model))
        self._is_resumed = runner.iter > 0

    def after_train(self, runner: Runner) -> None:
        """Fit offsets to the weights of the last checkpoint, EMA or not."""
        dist.barrier()  # until rank 0 has written it
        path = self._find_checkpoint(runner)
        if path is None:
            runner.logger.warning(
                'FitOffsetsHook found no checkpoint of this training: let '
                'CheckpointHook write one.'
            )
            return
        model = bare_model(runner.model)
        trained = copy.deepcopy(model.state_dict())
        try:
            fit_checkpoint(runner, path, None, self.settings, self.force)
        finally:
            model.load_state_dict(trained)

    def _find_checkpoint(self, runner: Runner) -> str | None:
        """The last checkpoint of this training, or else its best.

        The folder may hold those of an earlier training.
        """
        hooks = [x for x in runner.hooks if isinstance(x, CheckpointHook)]
        written = [hook.last_ckpt for hook in hooks]
        info = runner.message_hub.runtime_info
        if self._is_resumed:
            written.append(info.get('last_ckpt'))
        written += [info[key] for key in info if key.startswith('best_ckpt')]
        return next((x for x in written if x and os.path.isfile(x)), None)
