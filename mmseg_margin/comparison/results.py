"""The figures of one comparison or of several, as arrays."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from mmseg_margin.atomic_write import atomic_write_text
from mmseg_margin.errors import DataSetError, MissingFileError

from .records import COMMON, FITTED, RECORD_FILE, Run, read_json, read_run

BASELINE = 'ce'
MARGIN_LOSS = 'MarginCalibrationLoss'
RESULTS_FILE = 'results.json'


@dataclass(frozen=True)
class Results:
    """Runs that were asked for, finished or not, by label.

    A label stands for a comparison and is ``DATA`` or ``SCHEDULE/DATA``.
    Arrays have the shape (L, N, S) for L labels, N objectives (``names``) and
    S seeds, with NaN for whatever is missing.
    """

    compared: dict[str, list[Run]]
    names: list[str]

    @cached_property
    def runs(self) -> list[Run]:
        return [run for runs in self.compared.values() for run in runs]

    @property
    def seeds(self) -> list[int]:
        return sorted({run.seed for run in self.runs})

    @property
    def is_fitted(self) -> bool:
        """Whether any run was measured with fitted offsets too."""
        return any(run.fitted for run in self.runs)

    def missing(self, label: str) -> dict[str, list[int]]:
        """Seeds without a result, for each objective that has any."""
        missing: dict[str, list[int]] = {}
        for run in self.compared[label]:
            if not run.is_done():
                missing.setdefault(run.name, []).append(run.seed)
        return missing

    def terms(self, *kinds: str) -> dict[str, dict[str, Any]]:
        """The loss configs of some classes, by the name of the objective."""
        terms = ((run.name, term) for run in self.runs for term in run.losses)
        return {name: term for name, term in terms if term['type'] in kinds}

    def values(self, figure: str = 'mIoU') -> NDArray:
        """A figure of every run, (L, N, S)."""
        shape = len(self.compared), len(self.names), len(self.seeds)
        values = np.full(shape, np.nan)
        names = {name: place for place, name in enumerate(self.names)}
        seeds = {seed: place for place, seed in enumerate(self.seeds)}
        for i, runs in enumerate(self.compared.values()):
            for run in runs:
                if run.name in names and figure in run.figures:
                    place = i, names[run.name], seeds[run.seed]
                    values[place] = run.figures[figure]
        return values

    def differences(self, figure: str = 'mIoU') -> NDArray:
        """To the baseline with the same seed, (L, N, S)."""
        values = self.values(figure)
        if BASELINE not in self.names:
            return np.full_like(values, np.nan)
        return values - values[:, [self.names.index(BASELINE)]]

    def gains(self) -> NDArray:
        """What fitted offsets add to the mIoU, (L, N, S)."""
        return self.values(f'{FITTED}mIoU') - self.values()

    def ranks(self) -> NDArray:
        """Average rank by mean mIoU over the comparisons, (N,)."""
        means = mean_over_seeds(self.values())
        ranks = rankdata(-means, axis=1, nan_policy='omit')
        return mean_over_seeds(ranks.T)

    def costs(
        self, figure: str, reduce: Callable[..., NDArray]
    ) -> tuple[NDArray, NDArray]:
        """A cost over the seeds, and its ratio to the baseline's, (L, N)."""
        found = np.ma.masked_invalid(self.values(figure))
        costs = np.ma.filled(reduce(found, axis=-1), np.nan)
        if BASELINE not in self.names:
            return costs, np.full_like(costs, np.nan)
        return costs, costs / costs[:, [self.names.index(BASELINE)]]


def mean_over_seeds(values: NDArray) -> NDArray:
    """The mean over the last axis of what is there, NaN for nothing."""
    found = np.ma.masked_invalid(values)
    return np.ma.filled(found.mean(axis=-1), np.nan)


def read_runs(place: Path) -> list[Run]:
    """The runs in a folder or a file, in the order they were asked for."""
    if place.is_file():
        return read_json(_runs_of_file, place)
    paths = place.glob(f'runs/*/*/{RECORD_FILE}')
    runs = [read_run(path.parent) for path in paths]
    return sorted(runs, key=lambda run: run.number)


def load_results(places: Mapping[str, Path]) -> Results:
    """Read comparisons from folders or files, by their labels."""
    compared = {label: read_runs(place) for label, place in places.items()}
    for label, runs in compared.items():
        if not runs:
            raise MissingFileError(
                f'{places[label]} holds no comparison: give the --out folder '
                f'of a comparison, or a {RESULTS_FILE} of its report.'
            )
        classes = len(runs[0].classes)
        for run in runs:
            if run.is_done() and len(run.class_iou) != classes:
                raise DataSetError(
                    f'{places[label]}: {run} has the IoU of '
                    f'{len(run.class_iou)} classes and the comparison '
                    f'{classes}: it is from another one, so remove its '
                    f'{RECORD_FILE}.'
                )
    names = [run.name for runs in compared.values() for run in runs]
    return Results(compared, list(dict.fromkeys(names)))


def save_runs(runs: list[Run], path: Path) -> None:
    """All runs in one small file, a line for each."""
    common = json.dumps({key: vars(runs[0])[key] for key in COMMON})
    lines = []
    for run in runs:
        own = {k: v for k, v in asdict(run).items() if k not in COMMON}
        # To four digits.
        text = json.dumps(own)
        own = json.loads(text, parse_float=lambda x: round(float(x), 4))
        lines.append(json.dumps(own))
    all_lines = ',\n'.join(lines)
    text = f'{{"common": {common},\n"runs": [\n{all_lines}\n]}}\n'
    atomic_write_text(path, text)


def _runs_of_file(common: dict, runs: list[dict]) -> list[Run]:
    return [Run(**common, **run) for run in runs]
