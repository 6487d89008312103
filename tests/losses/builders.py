"""The losses of three classes, and the statistics of these classes."""

from typing import Any

from mmseg_margin import ClassStats
from mmseg_margin.losses import (
    JaccardLoss,
    MarginCalibrationLoss,
    SoftmaxFocalLoss,
    WeightedCrossEntropyLoss,
)

COUNTS = [900, 80, 20]
STATS = ClassStats(['a', 'b', 'c'], COUNTS, [3, 2, 1], [1000, 900, 100])
WEIGHTS = [0.5, 2.0, 4.0]
GAMMA = 1.5
LOSSES = ('ce', 'focal', 'margin', 'jaccard')


def margin(**settings: Any) -> MarginCalibrationLoss:
    given = dict(class_counts=COUNTS, backend='eager')
    return MarginCalibrationLoss(**(given | settings))


def build(name: str, **settings: Any) -> Any:
    """One of the losses; the Jaccard loss with its full cross-entropy."""
    if name == 'ce':
        return WeightedCrossEntropyLoss(**settings)
    if name == 'focal':
        return SoftmaxFocalLoss(gamma=GAMMA, **settings)
    if name == 'jaccard':
        return JaccardLoss(ce_ramp=0, backend='eager', **settings)
    return margin(**settings)
