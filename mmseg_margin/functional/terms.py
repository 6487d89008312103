"""What the kernels need of the settings and of the offsets."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from .jaccard import MakeWeights, error_histograms, jaccard_weights
from .kernels import Classes, Rules
from .settings import LossSettings

PerClass = Tensor | Sequence[float] | float
Tables = Tensor | MakeWeights | None
IGNORED = -1


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
        log_share: float = 0.0,
        tables: Tables = None,
    ) -> 'Terms':
        """The terms for scores (N, K, ...), in the dtype to compute in."""
        settings = LossSettings(
            form=form,
            log_base=log_base,
            focus=focus,
            levels=levels,
            log_share=log_share,
        )
        K, device = scores.shape[1], scores.device
        dtype = torch.promote_types(scores.dtype, torch.float32)
        if isinstance(pos_weight, str):
            pos_weight = LossSettings(pos_weight=pos_weight).term_weights(K)[0]

        def per_class(value: PerClass) -> Tensor:
            value = torch.as_tensor(value, dtype=dtype, device=device)
            return value.expand(K).reshape(K, 1)

        of_log = log_share if form == 'jaccard' else 1.0
        classes = Classes(
            torch.arange(K, dtype=torch.int32, device=device).unsqueeze(1),
            per_class(rho_0k),
            per_class(rho_k0),
            of_log * per_class(pos_weight),
            per_class(neg_weight),
            *torch.empty(2, K, 0, dtype=dtype, device=device),
        )
        rules = Rules(form, settings.nats, float(focus))
        return Terms(classes, rules, levels, tables)

    def with_tables(self, scores: Tensor, labels: Tensor) -> 'Terms':
        """The Jaccard form's weights in place, given some of the pixels."""
        tables, histograms = self.tables, None
        if not isinstance(tables, Tensor):
            histograms = error_histograms(
                scores,
                labels,
                self.classes.rho_0k[:, 0],
                self.classes.rho_k0[:, 0],
                levels=self.levels,
                nats=self.rules.nats,
                ignore_index=IGNORED,
            )
            if tables is None:
                own = histograms[0].sum(1)
                share = own / own.sum().clamp(min=1)
                tables = jaccard_weights(share, histograms)
            else:
                tables = tables(histograms)
        own, other = (cost.to(self.classes.rho_0k) for cost in tables)
        classes = self.classes._replace(own_cost=own, other_cost=other)
        return self._replace(classes=classes, histograms=histograms)
