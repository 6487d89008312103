"""The settings of Algorithm 1 and of Eq. 16, checked once and then frozen."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from numpy.typing import ArrayLike

from mmseg_margin.errors import (
    NOT_NEGATIVE,
    POSITIVE,
    SettingError,
    one_of,
    require,
)

from .margins import (
    ABSENT_CLASS_POLICIES,
    MarginOffsets,
    margin_offsets,
    tau_of_largest_offset,
)

PAPER_TAU = 10.0


@dataclass(frozen=True)
class OffsetSettings:
    """How the margin-offsets follow from the counts (Algorithm 1).

    Args:
        tau: Scale of the offsets; 10, as in the paper, by default.
        upsilon: Scale of the ratio between foreground and background offsets.
        largest_offset: In place of tau: the ``rho_0k`` of the rarest class,
            whatever the number and the size of the images; 0 for no offsets.
        absent_class: The offset of a class without pixels: ``'zero'``,
            ``'max'`` or ``'error'``, see :func:`margin_offsets`.
    """

    tau: float | None = None
    upsilon: float = 1.0
    largest_offset: float | None = None
    absent_class: str = 'zero'

    def __post_init__(self) -> None:
        for name in ('tau', 'largest_offset'):
            require(name, getattr(self, name) or 0, *NOT_NEGATIVE)
        require('upsilon', self.upsilon, *POSITIVE)
        policies = one_of(ABSENT_CLASS_POLICIES)
        require('absent_class', self.absent_class, *policies)
        if self.tau is not None and self.largest_offset is not None:
            raise SettingError(
                f'tau={self.tau} and largest_offset={self.largest_offset} '
                'both set the scale of the offsets: leave one out.'
            )

    @property
    def has_default_scale(self) -> bool:
        """Whether neither tau nor largest_offset was given."""
        return self.tau is None and self.largest_offset is None

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


@dataclass(frozen=True)
class MarginSettings:
    """The settings of Eq. 16; the defaults are the paper's.

    Args:
        pos_weight: ``w``, the weight of the label's term, or
            ``'num_classes'`` for K, as in the authors' code.
        log_base: Base of the logarithm, 2 in the paper, or ``'e'``.
        class_mean: Whether a pixel's terms are averaged over the classes
            instead of summed, as in the authors' code.
    """

    pos_weight: float | str = 1.0
    log_base: float | str = 2
    class_mean: bool = False

    def __post_init__(self) -> None:
        w, b = self.pos_weight, self.log_base
        if w != 'num_classes':
            require('pos_weight', w, *POSITIVE)
        if b != 'e':
            require('log_base', b, "be above 1, or 'e'", lambda b: b > 1)
        require('class_mean', self.class_mean, *one_of((False, True)))

    @property
    def bits(self) -> float:
        """The base as a power of two, 1 in the paper."""
        base = math.e if self.log_base == 'e' else float(self.log_base)
        return math.log2(base)

    def term_weights(self, num_classes: int) -> tuple[float, float]:
        """Weights of the label's term and of the other terms."""
        w = self.pos_weight
        if w == 'num_classes':
            w = num_classes
        scale = 1 / num_classes if self.class_mean else 1.0
        return scale * float(w), scale
