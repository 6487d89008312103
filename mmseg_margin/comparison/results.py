"""What a comparison keeps on disk: one study, one result for each run."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from mmseg_margin.atomic_write import atomic_write_text

STUDY_FILE = 'study.json'
RESULT_FILE = 'result.json'
PREDICTIONS = 'predictions'

Record = TypeVar('Record', 'Study', 'RunResult')


@dataclass(frozen=True)
class Study:
    """What all runs of a comparison have in common.

    Args:
        config: The config's file name, without its folder.
        losses: The loss config of each objective, in the order asked for.
        seeds: One run of each objective for each.
        iterations: Training iterations of each run.
        init: The checkpoint all runs start from, or None.
        classes: Names of the K classes.
        palette: Their colours, (K, 3).
        class_counts: Labelled pixels of each class in the training set.
        versions: Of Python, the packages and ours.
        command: What was typed.
    """

    config: str
    losses: dict[str, list[dict[str, Any]]]
    seeds: list[int]
    iterations: int
    init: str | None
    classes: list[str]
    palette: list[list[int]]
    class_counts: list[int]
    versions: dict[str, str]
    command: str


@dataclass(frozen=True)
class RunResult:
    """One objective trained with one seed, and tested.

    Args:
        objective: Its name in ``Study.losses``.
        seed: Of the weights, the data order and the augmentation.
        metrics: In percent: ``aAcc``, ``mIoU``, ``mAcc`` and, where the
            class counts are known, ``mIoU_head``, ``mIoU_middle`` and
            ``mIoU_tail``.
        class_iou: IoU of each class in percent; None if it is nowhere.
        curves: ``train_loss``, ``val_loss``, ``train_mIoU`` and ``val_mIoU``,
            each a list of (iteration, value).
        seconds_per_iteration: Median over the training.
        peak_memory_mib: Largest resident memory of the process.
    """

    objective: str
    seed: int
    metrics: dict[str, float]
    class_iou: list[float | None]
    curves: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    seconds_per_iteration: float = 0.0
    peak_memory_mib: float = 0.0


def run_folder(out: Path, objective: str, seed: int) -> Path:
    """The work dir of one run; predictions are in a folder below it."""
    return out / 'runs' / objective / f'seed-{seed}'


def write_record(record: Study | RunResult, path: Path) -> None:
    """Write it whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write_text(path, json.dumps(asdict(record), indent=1))


def read_record(kind: type[Record], path: Path) -> Record:
    return kind(**json.loads(path.read_text(encoding='utf-8')))
