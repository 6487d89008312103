"""What a comparison has found so far, read from its folder or one file."""

import json
import math
import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import rankdata

from mmseg_margin.atomic_write import atomic_write_text
from mmseg_margin.errors import DataSetError, MissingFileError
from mmseg_margin.report.numbers import MeanDifference, paired_difference

from .records import (
    RESULT_FILE,
    SETUP_FILE,
    RunResult,
    Setup,
    read_json,
    run_folder,
)

BASELINE = 'ce'
RESULTS_FILE = 'results.json'
BySeed = dict[int, float]


@dataclass(frozen=True)
class Comparison:
    """The setup and the runs that have finished, by name and seed."""

    setup: Setup
    results: dict[tuple[str, int], RunResult]

    @property
    def names(self) -> list[str]:
        return list(self.setup.losses)

    @property
    def missing(self) -> dict[str, list[int]]:
        """Seeds without a result, for each objective that has any."""
        missing = {
            name: [s for s in seeds if (name, s) not in self.results]
            for name, seeds in self.setup.seeds.items()
        }
        return {name: seeds for name, seeds in missing.items() if seeds}

    @property
    def margin_losses(self) -> dict[str, dict[str, Any]]:
        """The margin losses among the terms of the objectives, by name."""
        return {
            name: term
            for name, terms in self.setup.losses.items()
            for term in terms
            if term['type'] == 'MarginCalibrationLoss'
        }

    @property
    def class_order(self) -> list[int]:
        """Class indices, most frequent first."""
        counts = -np.array(self.setup.class_counts)
        return np.argsort(counts, kind='stable').tolist()

    def runs(self, name: str) -> list[RunResult]:
        return [run for key, run in self.results.items() if key[0] == name]

    def metric(self, name: str, metric: str) -> BySeed:
        """A metric of every run that has it."""
        return self._by_seed(name, lambda run: run.metrics.get(metric))

    def class_iou(self, name: str, index: int) -> BySeed:
        """A class's IoU of every run that has it."""
        return self._by_seed(name, lambda run: run.class_iou[index])

    def means(self, metric: str = 'mIoU') -> dict[str, float]:
        """Its mean over the seeds, of every objective that has one."""
        return {
            name: statistics.fmean(values.values())
            for name in self.names
            if (values := self.metric(name, metric))
        }

    def ranks(self) -> dict[str, float]:
        """The place of every objective by its mean mIoU."""
        means = self.means()
        places = rankdata([-mean for mean in means.values()]).tolist()
        return dict(zip(means, places, strict=True))

    def difference(
        self, name: str, metric: str = 'mIoU'
    ) -> MeanDifference | None:
        """To the baseline, seed by seed; None if they share no seed."""
        return paired_difference(
            self.metric(name, metric), self.metric(BASELINE, metric)
        )

    def seconds(self, name: str) -> float | None:
        """Median over the runs of the seconds of an iteration."""
        # 0 is not measured.
        found = [r.seconds_per_iteration for r in self.runs(name)]
        return statistics.median(filter(None, found)) if any(found) else None

    def memory(self, name: str) -> float | None:
        """The largest of the runs' peaks, in MiB."""
        return max((r.peak_memory_mib for r in self.runs(name)), default=None)

    def _by_seed(
        self, name: str, value_of: Callable[[RunResult], float | None]
    ) -> BySeed:
        return {
            run.seed: value
            for run in self.runs(name)
            if (value := value_of(run)) is not None and math.isfinite(value)
        }


def ratio_to_baseline(
    cost: Callable[[str], float | None], name: str
) -> float | None:
    """The seconds or the memory of an objective to those of the baseline."""
    own, baseline = cost(name), cost(BASELINE)
    return own / baseline if own and baseline else None


def load_comparison(place: Path) -> Comparison:
    """Read every result that a folder, or a file of results, has."""
    if place.is_file():
        content = read_json(place)
        setup = Setup(**content['setup'])
        runs = [RunResult(**run) for run in content['runs']]
        return Comparison(setup, {(run.name, run.seed): run for run in runs})
    if not (place / SETUP_FILE).is_file():
        raise MissingFileError(
            f'{place} holds no comparison: give the --out folder of '
            f'a comparison, or a {RESULTS_FILE} of its report.'
        )
    setup = Setup(**read_json(place / SETUP_FILE))
    results = {}
    for name, seeds in setup.seeds.items():
        for seed in seeds:
            path = run_folder(place, name, seed) / RESULT_FILE
            if path.exists():
                results[name, seed] = result = RunResult(**read_json(path))
                found, classes = len(result.class_iou), len(setup.classes)
                if found != classes:
                    raise DataSetError(
                        f'{path} has the IoU of {found} classes and the '
                        f'comparison {classes}: it is from another '
                        'comparison, so remove it.'
                    )
    return Comparison(setup, results)


def save_comparison(comparison: Comparison, path: Path) -> None:
    """All results as one small file, a line for each run."""
    texts = map(json.dumps, map(asdict, comparison.results.values()))
    rounded = [
        json.loads(text, parse_float=lambda number: round(float(number), 4))
        for text in texts
    ]
    setup = json.dumps(asdict(comparison.setup))
    lines = ',\n'.join(map(json.dumps, rounded))
    atomic_write_text(path, f'{{"setup": {setup},\n"runs": [\n{lines}\n]}}\n')
