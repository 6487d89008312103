"""Means, deviations and Student's interval of paired differences."""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

CONFIDENCE = 0.95
BISECTIONS = 60


class PairedDifference(NamedTuple):
    """Mean of n differences and its interval, None for a single one."""

    mean: float
    low: float | None
    high: float | None
    n: int

    @property
    def sign(self) -> int:
        """1 or -1 where the interval lies on one side of 0, otherwise 0."""
        if self.low is None or self.high is None:
            return 0
        return (self.low > 0) - (self.high < 0)


def deviation(values: Sequence[float]) -> float | None:
    """Standard deviation of a sample; None for fewer than two values."""
    return statistics.stdev(values) if len(values) > 1 else None


def paired_difference(
    values: Mapping[int, float], baseline: Mapping[int, float]
) -> PairedDifference | None:
    """Compare by seed what both have; None if they share no seed."""
    seeds = values.keys() & baseline.keys()
    differences = [values[seed] - baseline[seed] for seed in sorted(seeds)]
    if not differences:
        return None
    n = len(differences)
    mean = statistics.fmean(differences)
    spread = deviation(differences)
    if spread is None:
        return PairedDifference(mean, None, None, n)
    half = student_t_quantile(n - 1) * spread / math.sqrt(n)
    return PairedDifference(mean, mean - half, mean + half, n)


def student_t_quantile(freedom: int, confidence: float = CONFIDENCE) -> float:
    """The t with ``P(|T| <= t) = confidence``.

    Found by bisection over ``theta = arctan(t / sqrt(freedom))``, because
    that is bounded.
    """
    low, high = 0.0, math.pi / 2
    for _ in range(BISECTIONS):
        theta = (low + high) / 2
        if _probability(theta, freedom) < confidence:
            low = theta
        else:
            high = theta
    return math.sqrt(freedom) * math.tan(low)


def _probability(theta: float, freedom: int) -> float:
    """``P(|T| <= sqrt(freedom) tan(theta))``, a finite sum.

    From ``int cos^(freedom-1)`` by repeated integration by parts; see
    Abramowitz and Stegun, 26.7.3 and 26.7.4.
    """
    odd = freedom % 2
    term = math.cos(theta) ** odd
    total = 0.0
    for power in range(odd, freedom - 1, 2):
        total += term
        term *= math.cos(theta) ** 2 * (power + 1) / (power + 2)
    total *= math.sin(theta)
    return 2 / math.pi * (theta + total) if odd else total
