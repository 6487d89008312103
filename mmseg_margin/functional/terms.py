"""What the kernels need of the settings and of the offsets."""

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NamedTuple

from torch import Tensor

from .jaccard import MakeWeights, count_errors, jaccard_weights
from .kernels import Classes, Costs, PerClass, Rules
from .settings import LossSettings

Tables = Tensor | MakeWeights | None

# Histograms of a batch count so many pixels at least, if it has them, and no
# fewer than every fourth in both directions: neighbours hardly differ, but a
# small class should be seen.
ENOUGH_PIXELS = 2**15
WIDEST_STEP = 4


class Terms(NamedTuple):
    """The terms of a pixel's loss; ``tables`` as the user gave them."""

    classes: Classes
    rules: Rules
    levels: int = 0
    tables: Tables = None
    histograms: Tensor | None = None

    @staticmethod
    def make(
        scores: Tensor,
        rho_0k: PerClass,
        rho_k0: PerClass,
        *,
        form: str = 'paper',
        pos_weight: PerClass | str = 1.0,
        neg_weight: PerClass = 1.0,
        log_base: float | str = 2,
        focus: float = 0.0,
        levels: int = 64,
        log_share: float | Callable[[], float] = 0.0,
        tables: Tables = None,
    ) -> 'Terms':
        """The terms for scores (N, K, ...), in the dtype to compute in."""
        if callable(log_share):
            log_share = log_share()
        settings = LossSettings(
            form=form,
            log_base=log_base,
            focus=focus,
            levels=levels,
            log_share=log_share,
        )
        if isinstance(pos_weight, str):
            settings = replace(settings, pos_weight=pos_weight)
            pos_weight, _ = settings.term_weights(scores.shape[1])
        classes = Classes.of(
            scores, settings.bits, rho_0k, rho_k0, pos_weight, neg_weight
        )
        if form == 'jaccard':
            of_log = log_share * classes.pos_weight
            classes = classes._replace(pos_weight=of_log)
        rules = Rules(form, settings.bits, float(focus))
        return Terms(classes, rules, levels, tables)

    def sample_step(self, labels: Tensor) -> int:
        """From one pixel to the next, both ways, for :meth:`with_tables`."""
        if self.tables is None:  # the weights of just this batch
            return 1
        step = math.isqrt(labels.numel() // ENOUGH_PIXELS)
        return min(max(step, 1), WIDEST_STEP)

    def with_tables(self, sample: Iterable[tuple[Tensor, Tensor]]) -> 'Terms':
        """The Jaccard form's weights in place, given some of the pixels.

        Scores (K, ...) and labels (...), -1 where ignored.
        """
        tables, histograms = self.tables, None
        if not isinstance(tables, Tensor):
            histograms = count_errors(
                sample, self.classes, self.rules.bits, self.levels
            )
            if tables is None:
                pixels = histograms[0].sum(1)
                share = pixels / pixels.sum().clamp(min=1)
                tables = jaccard_weights(share, histograms)
            else:
                tables = tables(histograms)
        own, other = (
            Costs.of(borders.to(self.classes.rho_0k)) for borders in tables
        )
        classes = self.classes._replace(own_cost=own, other_cost=other)
        return self._replace(classes=classes, histograms=histograms)
