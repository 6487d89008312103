"""A run of a comparison and the record that is kept of it on disk."""

import hashlib
import json
import math
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from mmseg_margin.atomic_write import atomic_write_text
from mmseg_margin.errors import SettingError

RECORD_FILE = 'record.json'
PREDICTIONS = 'predictions'
FITTED_PREDICTIONS = 'predictions-fitted'
# Begins the names of the figures that were measured with fitted offsets.
FITTED = 'fitted '
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

    @cached_property
    def figures(self) -> dict[str, float]:
        """Every finite figure: ``mIoU``, ``IoU/<class>``, ``fitted mIoU``."""
        figures = {'seconds': self.seconds, 'memory': self.memory}
        for prefix, found in (('', vars(self)), (FITTED, self.fitted or {})):
            for name, value in found.get('metrics', {}).items():
                figures[prefix + name] = value
            for k, value in enumerate(found.get('class_iou', ())):
                figures[f'{prefix}IoU/{k}'] = value
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
