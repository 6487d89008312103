"""How a search went and what it says about each parameter.

Optuna's own pictures leave out the trials that were stopped early, and change
pyplot's style for the whole process.
"""

from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from optuna.distributions import CategoricalDistribution
from optuna.importance import PedAnovaImportanceEvaluator
from optuna.trial import FrozenTrial, TrialState

from mmseg_margin.report.pictures import picture

from .search_space import value_text

MARKS = {
    TrialState.COMPLETE: ('o', '#0072B2', 'whole training'),
    TrialState.PRUNED: ('x', '#999999', 'stopped early'),
}
BEST_COLOUR = '#D55E00'
AXIS = 'validation mIoU in %'
COLUMNS = 4
# Importance compares the best quarter with all trials.
BEST_SHARE = 0.25
FEWEST_FOR_IMPORTANCE = 8


def plot_history(trials: Sequence[FrozenTrial], folder: Path) -> Path:
    """The mIoU of each trial, and the best so far."""
    path = folder / 'history.png'
    whole = [t for t in trials if t.state == TrialState.COMPLETE]
    with picture(path, 8, 3.6) as figure:
        axes = figure.subplots()
        _scatter(axes, trials, [trial.number for trial in trials])
        axes.step(
            [trial.number for trial in whole],
            [*accumulate((trial.value or 0.0 for trial in whole), max)],
            where='post',
            color=BEST_COLOUR,
            label='best so far',
        )
        axes.set_xlabel('trial')
        axes.set_ylabel(AXIS)
        figure.legend(loc='outside right upper', frameon=False)
    return path


def plot_slices(trials: Sequence[FrozenTrial], folder: Path) -> Path:
    """The mIoU over each parameter, of the trials that have it."""
    path = folder / 'slices.png'
    space = {k: d for t in trials for k, d in t.distributions.items()}
    rows = -(-len(space) // COLUMNS)
    with picture(path, 2.8 * COLUMNS, 2.8 * rows) as figure:
        panels = figure.subplots(rows, COLUMNS, sharey=True, squeeze=False)
        for axes in panels.flat[len(space) :]:
            axes.set_axis_off()
        for axes, (name, distribution) in zip(
            panels.flat, space.items(), strict=False
        ):
            having = [trial for trial in trials if name in trial.params]
            values = [trial.params[name] for trial in having]
            if isinstance(distribution, CategoricalDistribution):
                choices = list(distribution.choices)
                axes.set_xticks(range(len(choices)), map(value_text, choices))
                axes.set_xlim(-0.5, len(choices) - 0.5)
                values = [choices.index(value) for value in values]
            else:
                axes.set_xscale('log')
            axes.set_xlabel(name)
            _scatter(axes, having, values)
        for axes in panels[:, 0]:
            axes.set_ylabel(AXIS)
    return path


def plot_importances(study: optuna.Study, folder: Path) -> Path | None:
    """The parameter that matters most on top; None for too few trials."""
    whole = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    if len(whole) < FEWEST_FOR_IMPORTANCE:
        return None
    shares = optuna.importance.get_param_importances(
        study,
        evaluator=PedAnovaImportanceEvaluator(target_quantile=BEST_SHARE),
    )
    path = folder / 'importance.png'
    with picture(path, 6, 2.6) as figure:
        axes = figure.subplots()
        axes.barh(list(shares), list(shares.values()), color='#0072B2')
        axes.invert_yaxis()
        axes.set_xlabel('importance')
    return path


def _scatter(
    axes: Any, trials: Sequence[FrozenTrial], places: Sequence[float]
) -> None:
    for state, (mark, colour, label) in MARKS.items():
        points = [
            (place, trial.value)
            for place, trial in zip(places, trials, strict=True)
            if trial.state == state and trial.value is not None
        ]
        x, y = np.reshape(points, (-1, 2)).T
        axes.scatter(x, y, marker=mark, color=colour, label=label)
