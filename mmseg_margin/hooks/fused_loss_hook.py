"""FusedLossHook: the loss stage without scores at full resolution."""

import logging
from typing import Any

from mmengine.hooks import Hook
from mmseg.registry import HOOKS

from mmseg_margin.heads import heads_of_model
from mmseg_margin.losses.fused_stage import (
    fuse_stage,
    restore_stage,
    why_not_fused,
)


@HOOKS.register_module()
class FusedLossHook(Hook):
    """Computes up-sampling, losses and ``acc_seg`` of the heads in one pass.

    mmseg up-samples the scores of a head to the size of the labels, and its
    losses, their gradients and the accuracy each pass over these tensors.
    This hook never materialises them, which saves time and memory and gives
    the same numbers.
    Heads with a stage of their own, with a sampler, with forward hooks on
    their losses, or with other losses than cross-entropy, the focal loss, the
    margin loss and the Jaccard loss keep their stage.

    Example:
        >>> custom_hooks = [dict(type='FusedLossHook')]
    """

    # After the losses were swapped and have their class weights.
    priority = 'LOW'

    def before_train(self, runner: Any) -> None:
        """Replace the stage of every head that supports it."""
        fused, kept = [], []
        for name, head in heads_of_model(runner.model).items():
            # An interrupted training may have left a fused stage behind.
            restore_stage(head)
            reason = why_not_fused(head)
            if reason is not None:
                kept.append(f'{name} keeps its loss stage, because {reason}.')
                continue
            fuse_stage(head)
            fused.append(name)
        if fused:
            kept.insert(0, f'{", ".join(fused)}: fused loss stage.')
        if kept:
            logging.getLogger('mmseg_margin').info(' '.join(kept))

    def after_train(self, runner: Any) -> None:
        for head in heads_of_model(runner.model).values():
            restore_stage(head)
