"""SwapLossHook: trains the heads of any config with another objective."""

import logging
from collections.abc import Sequence
from typing import Any

from mmengine.hooks import Hook
from mmseg.registry import HOOKS

from mmseg_margin.config_tools import as_list
from mmseg_margin.losses.objectives import DEFAULT, Objective, parse_objective
from mmseg_margin.losses.swap import attach_to_runner, swap_losses


@HOOKS.register_module()
class SwapLossHook(Hook):
    """Gives the heads of a model another objective before the training.

    Every head that scores pixels gets it, with the weight that its
    cross-entropy had (or else its first loss). Everything else stays.

    Args:
        loss: See :func:`parse_objective`: ``'margin:tau=20'``,
            ``'ce:0.5+lovasz:0.5'``, ``dict(type='RegionLoss')``.
        heads: Only these: ``['decode_head', 'auxiliary_head.0']``.

    Example:
        >>> custom_hooks = [dict(type='SwapLossHook', loss='margin'),
        ...                 dict(type='ClassStatsHook')]
    """

    # Before EMAHook copies the model and before other hooks look for losses.
    priority = 'VERY_HIGH'

    def __init__(
        self,
        loss: Objective = DEFAULT,
        heads: str | Sequence[str] | None = None,
    ) -> None:
        self.loss, self.terms = loss, parse_objective(loss)
        self.heads = as_list(heads)
        self._model: Any = None

    def before_run(self, runner: Any) -> None:
        """Once for each model, since testing it begins a run as well."""
        if self._model is not runner.model:
            names = swap_losses(runner.model, self.terms, self.heads)
            logging.getLogger('mmseg_margin').info(
                f'{", ".join(names)}: trained with {self.loss}.'
            )
            self._model = runner.model

    def before_train(self, runner: Any) -> None:
        """For a hook that was registered after the run began."""
        self.before_run(runner)
        attach_to_runner(runner)
