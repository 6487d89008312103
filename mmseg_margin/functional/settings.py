"""What the loss and its offsets can be told: two frozen, checked groups."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import ArrayLike

from mmseg_margin.errors import SettingError

from .margins import (
    ABSENT_CLASS_POLICIES,
    MarginOffsets,
    margin_offsets,
    tau_of_largest_offset,
)

FORMS = ('paper', 'target', 'softmax', 'jaccard')
PAPER_TAU = 10.0


@dataclass(frozen=True)
class LossSettings:
    """How the loss of a pixel follows from its margins.

    Args:
        form: ``'paper'`` (Eq. 16), ``'target'``, ``'softmax'`` or
            ``'jaccard'``, see ``docs/method.md``.
        log_base: Base of the logarithm, 2 in the paper, or ``'e'``.
        pos_weight: Weight of the foreground term, or ``'num_classes'``.
        focus: How strongly terms beyond their margin are played down.
        class_mean: Whether a pixel's terms are averaged over the classes
            instead of summed.
        levels: Levels in which the Jaccard form counts errors.
        memory: Share of the error histograms that the Jaccard form keeps
            from one step to the next.
        batch_share: From 0 to 1: how far the Jaccard form takes the classes'
            shares from the batch instead of from the data set.
        log_share: How much of the softmax form the Jaccard form adds, in
            the end. It teaches the frequent classes, and would keep the rare
            ones from being learnt at all if it were there from the start.
        log_delay: How late it is added: its share grows with this power of
            the training's progress; 0 for all of it from the start. The
            progress is the Runner's; without one there is none.
    """

    form: str = 'paper'
    log_base: float | str = 2
    pos_weight: float | str = 1.0
    focus: float = 0.0
    class_mean: bool = False
    levels: int = 64
    memory: float = 0.98
    batch_share: float = 0.0
    log_share: float = 0.0
    log_delay: float = 0.0

    def __post_init__(self) -> None:
        _require(self, 'form', f'one of {FORMS}', FORMS.__contains__)
        _require(
            self, 'log_base', "above 1, or 'e'", lambda b: b == 'e' or b > 1
        )
        _require(
            self,
            'pos_weight',
            "positive, or 'num_classes'",
            lambda w: w == 'num_classes' or w > 0,
        )
        _require(self, 'focus', 'not negative', lambda f: f >= 0)
        _require(
            self, 'class_mean', 'True or False', (True, False).__contains__
        )
        _require(
            self,
            'levels',
            'a whole number above 1',
            lambda n: isinstance(n, int) and n > 1,
        )
        _require(self, 'memory', 'in [0, 1)', lambda m: 0 <= m < 1)
        _require(self, 'batch_share', 'from 0 to 1', lambda b: 0 <= b <= 1)
        _require(self, 'log_share', 'not negative', lambda s: s >= 0)
        _require(self, 'log_delay', 'not negative', lambda d: d >= 0)

    @property
    def bits(self) -> float:
        """The base as a power of two, 1 in the paper."""
        base = math.e if self.log_base == 'e' else float(self.log_base)
        return math.log2(base)

    def term_weights(self, num_classes: int) -> tuple[float, float]:
        """Weights of a foreground and of a background term."""
        scale = 1 / num_classes if self.class_mean else 1.0
        of_own = self.pos_weight
        if of_own == 'num_classes':
            of_own = num_classes
        return scale * float(of_own), scale


@dataclass(frozen=True)
class OffsetSettings:
    """How the margin-offsets follow from the counts (Algorithm 1).

    Args:
        tau: Scale of the offsets, 10 in the paper and if nothing is given.
        upsilon: Scale of the ratio between foreground and background offsets.
        largest_offset: In place of tau: the ``rho_0k`` of the rarest class,
            whatever the number and the size of the images; 0 for no offsets.
        absent_class: What becomes of a class without pixels: ``'error'``,
            ``'zero'`` or ``'max'`` offset.
    """

    tau: float | None = None
    upsilon: float = 1.0
    largest_offset: float | None = None
    absent_class: str = 'error'

    def __post_init__(self) -> None:
        for name in ('tau', 'largest_offset'):
            _require(self, name, '0 or more', lambda x: not x or x > 0)
        _require(self, 'upsilon', 'positive', lambda x: x > 0)
        policies = ABSENT_CLASS_POLICIES
        _require(
            self, 'absent_class', f'one of {policies}', policies.__contains__
        )
        if self.tau is not None and self.largest_offset is not None:
            raise SettingError(
                f'tau={self.tau} and largest_offset={self.largest_offset} '
                'both set the scale of the offsets: leave one out.'
            )

    def tau_for(self, class_counts: ArrayLike) -> float:
        """The tau for these counts."""
        if self.largest_offset is not None:
            return tau_of_largest_offset(class_counts, self.largest_offset)
        return PAPER_TAU if self.tau is None else self.tau

    def offsets(
        self,
        class_counts: ArrayLike,
        class_names: Sequence[str] | None = None,
    ) -> MarginOffsets:
        """The margin-offsets of K classes, from their pixels (K,).

        Example:
            >>> rho_0k, rho_k0 = OffsetSettings(tau=10).offsets([900, 100])
            >>> [round(float(rho), 6) for rho in rho_0k]
            [0.111111, 3.0]
        """
        return margin_offsets(
            class_counts,
            self.tau_for(class_counts),
            self.upsilon,
            self.absent_class,
            class_names,
        )


def _require(
    settings: object, name: str, needed: str, holds: Callable[[Any], bool]
) -> None:
    value = getattr(settings, name)
    try:
        finite = not isinstance(value, float) or math.isfinite(value)
        if finite and holds(value):
            return
    except TypeError:  # a text or a list where a number belongs
        pass
    raise SettingError(f'{name}={value!r} must be {needed}.')
