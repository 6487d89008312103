"""FusedLossHook: the loss stage without scores at full resolution."""

import logging
from typing import Any

from mmengine.hooks import Hook
from mmseg.registry import HOOKS

from mmseg_margin.heads import heads_of_model
from mmseg_margin.losses import fused_stage
from mmseg_margin.losses.swap import attach_to_runner


@HOOKS.register_module()
class FusedLossHook(Hook):
    """Computes up-sampling, losses and ``acc_seg`` of the heads in one pass.

    The scores are never materialised at the size of the labels, which saves
    time and memory and gives the same numbers. Heads with a stage of their
    own, with a sampler, with forward hooks on their losses, or with other
    losses than cross-entropy, the focal loss, the margin loss and the Jaccard
    loss keep mmseg's stage.

    Example:
        >>> custom_hooks = [dict(type='FusedLossHook')]
    """

    # After the losses were swapped and have their class weights.
    priority = 'LOW'

    def before_train(self, runner: Any) -> None:
        """Replace the stage of every head that supports it."""
        attach_to_runner(runner)
        logger = logging.getLogger('mmseg_margin')
        for name, head in heads_of_model(runner.model).items():
            # An interrupted training may have left a fused stage behind.
            fused_stage.restore_stage(head)
            if reason := fused_stage.why_not_fused(head):
                logger.info(f'{name} keeps its loss stage: {reason}.')
            else:
                fused_stage.fuse_stage(head)
                logger.info(f'{name}: fused loss stage.')

    def after_train(self, runner: Any) -> None:
        for head in heads_of_model(runner.model).values():
            fused_stage.restore_stage(head)
