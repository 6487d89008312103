"""How a search went and what it says about each parameter."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import optuna
from matplotlib.figure import Figure
from optuna.distributions import CategoricalDistribution, FloatDistribution
from optuna.importance import PedAnovaImportanceEvaluator
from optuna.trial import FrozenTrial, TrialState

from .text import value_text

DPI = 140
WHOLE_COLOUR, PRUNED_COLOUR, BEST_COLOUR = '#0072B2', '#999999', '#D55E00'
# Importance compares the best quarter with all trials.
BEST_SHARE = 0.25
FEWEST_FOR_IMPORTANCE = 8


def plot_history(trials: Sequence[FrozenTrial], path: Path) -> None:
    """The mIoU of each trial, and the best so far."""
    figure = Figure(figsize=(8, 3.6), layout='constrained')
    axes = figure.subplots()
    _scatter(axes, trials, [trial.number for trial in trials])
    whole = [t for t in trials if t.state == TrialState.COMPLETE]
    best = [
        max(t.value or 0.0 for t in whole[: i + 1]) for i in range(len(whole))
    ]
    axes.step(
        [t.number for t in whole],
        best,
        where='post',
        color=BEST_COLOUR,
        label='best so far',
    )
    axes.set_xlabel('trial')
    axes.set_ylabel('validation mIoU in %')
    figure.legend(loc='outside right upper', frameon=False)
    figure.savefig(path, dpi=DPI)


def plot_slices(trials: Sequence[FrozenTrial], path: Path) -> None:
    """The mIoU over each parameter by itself."""
    space = trials[0].distributions
    figure = Figure(figsize=(2.6 * len(space), 3.2), layout='constrained')
    panels = figure.subplots(1, len(space), sharey=True, squeeze=False)[0]
    for axes, (name, distribution) in zip(panels, space.items(), strict=True):
        values = [trial.params[name] for trial in trials]
        if isinstance(distribution, CategoricalDistribution):
            choices = list(distribution.choices)
            axes.set_xticks(range(len(choices)), map(value_text, choices))
            axes.set_xlim(-0.5, len(choices) - 0.5)
            values = [choices.index(value) for value in values]
        elif isinstance(distribution, FloatDistribution):
            axes.set_xscale('log')
            axes.set_xlim(distribution.low, distribution.high)
        axes.set_xlabel(name)
        _scatter(axes, trials, values)
    panels[0].set_ylabel('validation mIoU in %')
    figure.savefig(path, dpi=DPI)


def importances(study: optuna.Study) -> dict[str, float] | None:
    """Share of each parameter, or None for too few trials to say."""
    whole = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    if len(whole) < FEWEST_FOR_IMPORTANCE:
        return None
    return optuna.importance.get_param_importances(
        study,
        evaluator=PedAnovaImportanceEvaluator(target_quantile=BEST_SHARE),
    )


def plot_importances(shares: dict[str, float], path: Path) -> None:
    """The parameter that matters most on top."""
    figure = Figure(figsize=(6, 2.6), layout='constrained')
    axes = figure.subplots()
    axes.barh(list(shares), list(shares.values()), color=WHOLE_COLOUR)
    axes.invert_yaxis()
    axes.set_xlabel('importance')
    axes.spines[['top', 'right']].set_visible(False)
    figure.savefig(path, dpi=DPI)


def _scatter(
    axes: Any, trials: Sequence[FrozenTrial], places: Sequence[float]
) -> None:
    for state, mark, colour, label in (
        (TrialState.COMPLETE, 'o', WHOLE_COLOUR, 'whole training'),
        (TrialState.PRUNED, 'x', PRUNED_COLOUR, 'stopped early'),
    ):
        points = [
            (place, trial.value)
            for place, trial in zip(places, trials, strict=True)
            if trial.state == state and trial.value is not None
        ]
        axes.scatter(
            [place for place, _ in points],
            [value for _, value in points],
            marker=mark,
            color=colour,
            label=label,
        )
    axes.grid(color='#dddddd', linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[['top', 'right']].set_visible(False)
