"""What a comparison has found so far, read from its folder."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mmseg_margin.errors import SettingError

from ..results import (
    RESULT_FILE,
    STUDY_FILE,
    RunResult,
    Study,
    read_record,
    run_folder,
)

BASELINE = 'ce'
Seeds = dict[int, float]


@dataclass(frozen=True)
class Comparison:
    """The study and the runs that have finished, by objective and seed."""

    study: Study
    results: dict[tuple[str, int], RunResult]

    @property
    def objectives(self) -> list[str]:
        return list(self.study.losses)

    @property
    def missing(self) -> dict[str, list[int]]:
        """Seeds without a result, for each objective that has any."""
        missing = {
            objective: [
                seed
                for seed in self.study.seeds
                if (objective, seed) not in self.results
            ]
            for objective in self.objectives
        }
        return {name: seeds for name, seeds in missing.items() if seeds}

    @property
    def margin_losses(self) -> dict[str, dict[str, Any]]:
        """The margin losses among the terms of the objectives, by name."""
        return {
            name: term
            for name, terms in self.study.losses.items()
            for term in terms
            if term['type'] == 'MarginCalibrationLoss'
        }

    @property
    def class_order(self) -> list[int]:
        """Class indices, most frequent first."""
        counts = -np.array(self.study.class_counts)
        return np.argsort(counts, kind='stable').tolist()

    def runs(self, objective: str) -> list[RunResult]:
        return [
            result
            for (name, _), result in self.results.items()
            if name == objective
        ]

    def metric(self, objective: str, name: str) -> Seeds:
        """A metric of every run that has it, by seed."""
        return _finite(
            (run.seed, run.metrics.get(name)) for run in self.runs(objective)
        )

    def class_iou(self, objective: str, index: int) -> Seeds:
        """A class's IoU of every run that has it, by seed."""
        return _finite(
            (run.seed, run.class_iou[index]) for run in self.runs(objective)
        )


def load_comparison(out: Path) -> Comparison:
    """Read the study and every result that exists."""
    study = read_record(Study, out / STUDY_FILE)
    results = {}
    for objective in study.losses:
        for seed in study.seeds:
            path = run_folder(out, objective, seed) / RESULT_FILE
            if path.exists():
                result = read_record(RunResult, path)
                _check_classes(result, study, path)
                results[objective, seed] = result
    return Comparison(study, results)


def _check_classes(result: RunResult, study: Study, path: Path) -> None:
    found, expected = len(result.class_iou), len(study.classes)
    if found != expected:
        raise SettingError(
            f'{path} has the IoU of {found} classes and the study '
            f'{expected}: it is from another comparison, so remove it.'
        )


def _finite(pairs: Iterable[tuple[int, float | None]]) -> Seeds:
    return {
        seed: value
        for seed, value in pairs
        if value is not None and math.isfinite(value)
    }
