"""A run, the record that is kept of it, and the figures of many as arrays."""

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from mmseg_margin.atomic_write import atomic_write_text
from mmseg_margin.errors import MissingFileError, SettingError

RECORD_FILE, RESULTS_FILE = 'record.json', 'results.json'
PREDICTIONS, FITTED_PREDICTIONS = 'predictions', 'predictions-fitted'
# Begins the names of the figures that were measured with fitted offsets.
FITTED = 'fitted '
BASELINE = 'ce'
LONGEST_FOLDER = 80
T = TypeVar('T')


@dataclass(frozen=True)
class Run:
    """One objective trained with one seed; without metrics until it is done.

    Metrics are in percent. Curves are lists of (iteration, value): loss and
    mIoU on both splits, and the parts of a loss that reports any. ``fitted``
    has ``offsets``, and ``metrics`` and ``class_iou`` with these offsets.
    """

    number: int  # its place in the comparison
    name: str
    seed: int
    objective: str  # as it was typed
    losses: list[dict[str, Any]]  # whose sum it is
    config: str  # the name of its file
    iterations: int
    init: str | None  # the checkpoint that training starts from
    classes: list[str]
    palette: list[list[int]]
    class_counts: list[int]  # labelled pixels of the training set
    versions: dict[str, str]
    command: str
    metrics: dict[str, float] = field(default_factory=dict)
    class_iou: list[float | None] = field(default_factory=list)
    curves: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    seconds: float | None = None  # of an iteration, the median
    memory: float | None = None  # the peak in MiB
    fitted: dict[str, Any] | None = None

    def __str__(self) -> str:
        return f'{self.name}, seed {self.seed}'

    def is_done(self, fit: bool = False) -> bool:
        """Whether nothing is left to measure, fitted offsets included."""
        return bool(self.metrics) and not (fit and self.fitted is None)

    @property
    def class_order(self) -> list[int]:
        """Class indices, most frequent first."""
        return np.argsort(-np.array(self.class_counts), kind='stable').tolist()

    @cached_property
    def figures(self) -> dict[str, float]:
        """Every finite figure: ``mIoU``, ``IoU/<class>``, ``fitted mIoU``.

        ``gain`` is what fitted offsets add to the mIoU.
        """
        figures = {'seconds': self.seconds, 'memory': self.memory}
        for prefix, found in (('', vars(self)), (FITTED, self.fitted or {})):
            for name, value in found.get('metrics', {}).items():
                figures[prefix + name] = value
            for k, value in enumerate(found.get('class_iou', ())):
                figures[f'{prefix}IoU/{k}'] = value
        if self.fitted:
            fitted = self.fitted['metrics']['mIoU']
            figures['gain'] = fitted - self.metrics['mIoU']
        return {
            name: value
            for name, value in figures.items()
            if value is not None and math.isfinite(value)
        }


# What all runs of a comparison have in common.
COMMON = ['config', 'iterations', 'init', 'classes', 'palette', 'class_counts']


def run_folder(out: Path, name: str, seed: int) -> Path:
    """The work dir of a run; any name makes a folder of a legal length."""
    safe = re.sub(r'[^\w.,:=+-]|^\.', '%', name)
    if safe != name or len(name.encode()) > LONGEST_FOLDER:
        digest = hashlib.sha256(name.encode('utf-8', 'replace')).hexdigest()
        safe = f'{safe.encode()[:40].decode(errors="ignore")}-{digest[:12]}'
    return out / 'runs' / safe / f'seed-{seed}'


def write_run(run: Run, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(asdict(run), indent=1)
    atomic_write_text(folder / RECORD_FILE, text)


def read_run(folder: Path) -> Run:
    return read_json(Run, folder / RECORD_FILE)


def read_json(make: Callable[..., T], path: Path) -> T:
    """Make what a JSON file holds, by name."""
    try:
        return make(**json.loads(path.read_text('utf-8')))
    except (TypeError, ValueError) as error:
        raise SettingError(
            f'{path} is damaged or of another version ({error}): remove it, '
            'and give the command that wrote it again.'
        ) from error


def save_runs(runs: list[Run], path: Path) -> None:
    """All runs in one small file, a line for each, with four decimals."""
    common = json.dumps({key: vars(runs[0])[key] for key in COMMON})
    lines = []
    for run in runs:
        text = json.dumps(asdict(run))
        record = json.loads(text, parse_float=lambda x: round(float(x), 4))
        own = {k: v for k, v in record.items() if k not in COMMON}
        lines.append(json.dumps(own))
    all_lines = ',\n'.join(lines)
    text = f'{{"common": {common},\n"runs": [\n{all_lines}\n]}}\n'
    atomic_write_text(path, text)


def read_runs(place: Path) -> list[Run]:
    """The runs in a folder or a file, in the order they were asked for."""
    if place.is_file():
        return read_json(
            lambda common, runs: [Run(**common, **run) for run in runs], place
        )
    paths = place.glob(f'runs/*/*/{RECORD_FILE}')
    runs = [read_run(path.parent) for path in paths]
    return sorted(runs, key=lambda run: run.number)


def by_name(runs: Iterable[Run]) -> dict[str, list[Run]]:
    """The runs of each objective."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(run.name, []).append(run)
    return groups


@dataclass(frozen=True)
class Results:
    """Runs that were asked for, finished or not, by label.

    A label stands for a comparison and is ``DATA`` or ``SCHEDULE/DATA``.
    Arrays have the shape (N, L, S) for N objectives (``names``), L labels and
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

    @property
    def schedules(self) -> dict[str, list[int]]:
        """Places of the labels of each schedule; '' if they name none."""
        groups: dict[str, list[int]] = {}
        for place, label in enumerate(self.compared):
            groups.setdefault(label.rpartition('/')[0], []).append(place)
        return groups

    def missing(self) -> dict[str, str]:
        """What has no result, for each label that lacks anything."""
        missing = {}
        for label, runs in self.compared.items():
            asked = by_name(runs)
            undone = by_name(run for run in runs if not run.is_done())
            lacks = [
                f'{name} (seed {", ".join(str(run.seed) for run in own)})'
                for name, own in undone.items()
            ] + [name for name in self.names if name not in asked]
            if lacks:
                missing[label] = ', '.join(lacks)
        return missing

    def losses_of(self, *types: str) -> dict[str, dict[str, Any]]:
        """The loss configs of some types, by the name of the objective."""
        losses = ((run.name, loss) for run in self.runs for loss in run.losses)
        return {name: loss for name, loss in losses if loss['type'] in types}

    def values(self, figure: str = 'mIoU') -> NDArray:
        """A figure of every run, (N, L, S)."""
        shape = len(self.names), len(self.compared), len(self.seeds)
        values = np.full(shape, np.nan)
        for place, runs in enumerate(self.compared.values()):
            for run in runs:
                if run.name in self.names:
                    row = self.names.index(run.name)
                    seed = self.seeds.index(run.seed)
                    value = run.figures.get(figure, np.nan)
                    values[row, place, seed] = value
        return values

    def of_baseline(self, values: NDArray) -> NDArray:
        """The baseline's part of an array, (1, L, ...), NaN without one."""
        if BASELINE not in self.names:
            return np.full_like(values[:1], np.nan)
        return values[[self.names.index(BASELINE)]]

    def differences(self, figure: str = 'mIoU') -> NDArray:
        """To the baseline with the same seed, (N, L, S)."""
        values = self.values(figure)
        return values - self.of_baseline(values)

    def ranks(self) -> NDArray:
        """Average rank by mean mIoU over the comparisons, (N,)."""
        means = mean_over_seeds(self.values())
        return mean_over_seeds(rankdata(-means, axis=0, nan_policy='omit'))

    def costs(self, figure: str) -> tuple[NDArray, NDArray]:
        """A cost over the seeds, and its ratio to the baseline's, (N, L)."""
        found = np.ma.masked_invalid(self.values(figure))
        reduce = {'seconds': np.ma.median, 'memory': np.ma.max}[figure]
        costs = np.ma.filled(reduce(found, axis=-1), np.nan)
        return costs, costs / self.of_baseline(costs)


def mean_over_seeds(values: NDArray) -> NDArray:
    """The mean over the last axis of what is there, NaN for nothing."""
    found = np.ma.masked_invalid(values)
    return np.ma.filled(found.mean(axis=-1), np.nan)


def load_results(places: Mapping[str, Path]) -> Results:
    """Read comparisons from folders or files, by their labels."""
    compared = {label: read_runs(place) for label, place in places.items()}
    for label, runs in compared.items():
        if not runs:
            raise MissingFileError(
                f'{places[label]} holds no comparison: give the --out folder '
                f'of a comparison, or a {RESULTS_FILE} of its report.'
            )
    every = (run for runs in compared.values() for run in runs)
    return Results(compared, list(by_name(every)))
