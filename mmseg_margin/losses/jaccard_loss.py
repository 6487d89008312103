"""JaccardLoss: the loss that we recommend, for a decode head."""

import logging
from typing import Any

import torch
from mmengine.dist import all_reduce
from mmengine.logging import MessageHub, print_log
from mmseg.registry import MODELS
from torch import Tensor

from mmseg_margin.errors import NOT_NEGATIVE, require
from mmseg_margin.functional.backend import StageResult
from mmseg_margin.functional.jaccard import JaccardObjective

from .base import PixelLoss


@MODELS.register_module()
class JaccardLoss(PixelLoss):
    """The Jaccard loss of the batch plus a cross-entropy of growing weight.

    The Jaccard loss is the Lovasz extension over the pixels of all ranks,
    computed from histograms instead of a sort. The cross-entropy has the
    weight ``ce_weight * progress ** ce_ramp``: early in a training it would
    keep rare classes from being learnt, later it improves the frequent ones.
    So the sum rises during training by design. With ``SwapLossHook``
    or ``FusedLossHook``, ``decode.jaccard`` (one minus the soft Jaccard index
    of the batch, whatever the softness), ``decode.ce`` and
    ``decode.ce_weight`` are logged beside it.

    The progress, from 0 to 1, is that of the mmengine Runner that trains the
    model. Without a Runner, call :meth:`set_progress`.

    Args:
        ce_weight: Weight of the cross-entropy at the end of the training.
        ce_ramp: Power of the progress; 0 for the full weight from the start.
        softness: How far the Jaccard loss has annealed from the Lovasz
            extension (0) to the soft Jaccard index (1) at the end of the
            training; it grows in proportion to the progress. 1 is better
            in long trainings, 0 in short ones.
        **kwargs: See :class:`PixelLoss`.

    Example:
        >>> loss_decode = dict(type='JaccardLoss')
    """

    def __init__(
        self,
        ce_weight: float = 1.0,
        ce_ramp: float = 2.0,
        softness: float = 1.0,
        loss_name: str = 'loss_jaccard',
        **kwargs: Any,
    ) -> None:
        # The IoU is that of all ranks' pixels, and so is the mean.
        super().__init__(loss_name=loss_name, global_mean=True, **kwargs)
        for name, x in ('ce_weight', ce_weight), ('ce_ramp', ce_ramp):
            require(name, x, *NOT_NEGATIVE)
        require('softness', softness, 'be from 0 to 1', lambda x: 0 <= x <= 1)
        self.ce_weight, self.ce_ramp = ce_weight, ce_ramp
        self.softness = softness
        self._progress: float | None = None
        self._warned = False
        # A Runner creates its hub before its model, so this is usually its
        # hub; by name, because a hub cannot be copied and pickled.
        self._hub_name = MessageHub.get_current_instance().instance_name
        self._iterations = {self._hub_name: _iteration(self._hub_name)}
        self._is_training = False
        # The hub to log to, and the prefix of the names there.
        self._log_to = ('', '')
        self._unlogged: tuple[Tensor, float] | None = None

    def set_progress(self, progress: float) -> None:
        """Set the progress of the training, 0 to 1, without a Runner."""
        require('progress', progress, 'be from 0 to 1', lambda x: 0 <= x <= 1)
        self._progress = progress

    def follow(self, hub: MessageHub, log_prefix: str) -> bool:
        """Take the progress of the Runner with this hub, and log to it.

        Returns whether that is new.
        """
        is_new = self._log_to[0] != hub.instance_name
        self._hub_name = hub.instance_name
        self._log_to = hub.instance_name, log_prefix
        self._progress, self._is_training = None, True
        return is_new

    def current_ce_weight(self) -> float:
        """The weight of the cross-entropy at this step of the training."""
        if not self.ce_ramp:
            return self.ce_weight
        return self.ce_weight * self._current_progress() ** self.ce_ramp

    def _current_progress(self) -> float:
        if self._progress is not None:
            return self._progress
        hub = self._training_hub()
        if hub is not None:
            iterations = max(hub.get_info('max_iters'), 1)
            return min(hub.get_info('iter') / iterations, 1.0)
        if self.training and not self._warned:
            self._warned = True
            print_log(
                'JaccardLoss does not know the progress of the training, so '
                'its cross-entropy has no weight: call '
                'loss.set_progress(step / steps) before each step, or set '
                'ce_ramp=0 for the full weight from the start.',
                logger='current',
                level=logging.WARNING,
            )
        return 0.0

    def _training_hub(self) -> MessageHub | None:
        """The hub of the Runner that is training, if one is.

        A second Runner may train the same model, and the hub of an earlier
        Runner keeps its iteration. So the hub is the one that counts: this
        one, the newest, or one that has counted before.
        """
        newest = MessageHub.get_current_instance().instance_name
        iterations = {
            name: _iteration(name)
            for name in (self._hub_name, newest, *self._iterations)
        }
        counting = [
            name
            for name, iteration in iterations.items()
            if iteration not in (None, self._iterations.get(name))
        ]
        self._iterations = iterations
        if counting:
            self._hub_name, self._is_training = counting[0], True
        if not self._is_training or iterations[self._hub_name] is None:
            return None
        return MessageHub.get_instance(self._hub_name)

    def objective(self) -> JaccardObjective:
        return JaccardObjective(
            self.current_ce_weight(),
            all_reduce if self.training else None,
            self.softness and self.softness * self._current_progress(),
        )

    def run(self, *args: Any, **kwargs: Any) -> StageResult:
        result = super().run(*args, **kwargs)
        jaccard, ce = result.jaccard, result.ce
        if self.training and jaccard is not None and ce is not None:
            self._log(torch.stack([jaccard.sum(), ce]))
        return result

    def _log(self, parts: Tensor) -> None:
        """Log the parts of the previous step, and keep those of this one.

        Reading them now would wait for the device; a step later they have
        been copied.
        """
        hub_name, prefix = self._log_to
        if hub_name == self._hub_name:
            hub = MessageHub.get_instance(hub_name)
            for name, value in self.last_parts().items():
                hub.update_scalar(f'train/{prefix}.{name}', value)
        parts = parts.to('cpu', non_blocking=True)
        self._unlogged = parts, self.current_ce_weight()

    def last_parts(self) -> dict[str, float]:
        """The parts of the last step, once the device has finished it."""
        if self._unlogged is None:
            return {}
        (jaccard, ce), ce_weight = self._unlogged
        return dict(jaccard=float(jaccard), ce=float(ce), ce_weight=ce_weight)


def _iteration(hub_name: str) -> int | None:
    """The iteration that a hub has counted to."""
    if not MessageHub.check_instance_created(hub_name):
        return None
    return MessageHub.get_instance(hub_name).runtime_info.get('iter')
