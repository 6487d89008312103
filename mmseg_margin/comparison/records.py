"""The runs of a comparison: their folders, their records, and one table."""

import hashlib
import json
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from mmseg_margin.atomic_write import atomic_write_text

COMMON_FILE, CONFIG_FILE = 'comparison.json', 'config.py'
RECORD_FILE, RESULTS_FILE = 'record.json', 'results.json'
PREDICTIONS = 'predictions'
LONGEST_FOLDER = 80


@dataclass(frozen=True)
class Run:
    """One objective trained with one seed; without metrics until it is done.

    Metrics are in percent. Curves are lists of (iteration, value). ``fitted``
    has ``offsets``, and ``metrics`` and ``class_iou`` with these offsets.
    """

    number: int  # its place in the comparison
    name: str
    seed: int
    objective: str  # as it was typed
    losses: list[dict[str, Any]]  # whose sum it is
    start: str | None  # name and hash of the checkpoint it starts from
    command: str
    versions: dict[str, str] = field(default_factory=dict)
    resumed: list[int] = field(default_factory=list)  # from these iterations
    error: str | None = None  # that ended the last attempt
    metrics: dict[str, float] = field(default_factory=dict)
    class_iou: list[float | None] = field(default_factory=list)
    predicted: list[int] = field(default_factory=list)  # class indices
    curves: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    seconds: float | None = None  # of an iteration, the median
    fitted: dict[str, Any] | None = None

    def __str__(self) -> str:
        return f'{self.name}, seed {self.seed}'

    def is_done(self, fit: bool = False) -> bool:
        """Whether nothing is left to measure, fitted offsets included."""
        return bool(self.metrics) and not (fit and self.fitted is None)


@dataclass(frozen=True)
class Comparison:
    """What the runs have in common, and the runs as they were asked for."""

    common: dict[str, Any]
    runs: list[Run]

    @property
    def done(self) -> list[Run]:
        return [run for run in self.runs if run.is_done()]

    def frame(self) -> pd.DataFrame:
        """A row for each objective and seed; NaN where nothing is known.

        The columns are ``mIoU`` and the other metrics, ``IoU/<class index>``,
        ``seconds`` and, with fitted offsets, ``fitted mIoU`` and ``gain``.
        """
        rows = []
        for run in self.runs:
            row: dict[str, Any] = {'objective': run.name, 'seed': run.seed}
            row |= {'seconds': run.seconds, 'mIoU': None, **run.metrics}
            row |= {f'IoU/{k}': iou for k, iou in enumerate(run.class_iou)}
            if run.fitted:
                row['fitted mIoU'] = run.fitted['metrics']['mIoU']
                row['gain'] = row['fitted mIoU'] - row['mIoU']
            rows.append(row)
        frame = pd.DataFrame(rows).set_index(['objective', 'seed'])
        return frame.astype(float)


def run_folder(out: Path, name: str, seed: int) -> Path:
    """The work dir of a run; any name makes a folder of a legal length."""
    safe = re.sub(r'[^\w.,:=+-]|^\.', '%', name, flags=re.ASCII)
    if safe != name or len(name) > LONGEST_FOLDER:
        digest = hashlib.sha256(name.encode('utf-8', 'replace')).hexdigest()
        safe = f'{safe[: LONGEST_FOLDER // 2]}-{digest[:12]}'
    return out / 'runs' / safe / f'seed-{seed}'


def write_run(run: Run, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(asdict(run), indent=1)
    atomic_write_text(folder / RECORD_FILE, text)


def read_run(folder: Path) -> Run:
    return Run(**json.loads((folder / RECORD_FILE).read_text('utf-8')))


def read_comparison(out: Path) -> Comparison:
    common = json.loads((out / COMMON_FILE).read_text('utf-8'))
    records = out.glob(f'runs/*/*/{RECORD_FILE}')
    runs = [read_run(path.parent) for path in records]
    return Comparison(common, sorted(runs, key=lambda run: run.number))


def save_results(comparison: Comparison, path: Path) -> None:
    """The whole comparison in one file, with a line for each run."""
    runs = ',\n'.join(json.dumps(asdict(run)) for run in comparison.runs)
    common = json.dumps(comparison.common)
    atomic_write_text(path, f'{{"common": {common},\n"runs": [\n{runs}\n]}}\n')
