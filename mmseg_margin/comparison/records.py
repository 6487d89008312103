"""What a comparison keeps on disk: its setup, and a result for each run."""

import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from mmseg_margin.atomic_write import atomic_write_text
from mmseg_margin.errors import SettingError

SETUP_FILE = 'comparison.json'
RESULT_FILE = 'result.json'
PREDICTIONS = 'predictions'
# What may differ between commands that add to the same comparison.
OF_A_COMMAND = ('objectives', 'losses', 'seeds', 'versions', 'commands')


@dataclass(frozen=True)
class Setup:
    """What was asked for, and what all runs have in common."""

    config: str  # the name of its file
    objectives: dict[str, str]  # what was typed for each name
    losses: dict[str, list[dict[str, Any]]]  # whose sum each name is
    seeds: dict[str, list[int]]  # of each name
    iterations: int
    init: str | None  # the checkpoint that all runs start from
    classes: list[str]
    palette: list[list[int]]
    class_counts: list[int]  # labelled pixels of the training set
    versions: dict[str, str]
    commands: list[str]  # one for each time something was added

    @property
    def start(self) -> str:
        return self.init or 'the initialisation of the config'

    @property
    def all_seeds(self) -> list[int]:
        return sorted({seed for each in self.seeds.values() for seed in each})

    def with_more(self, added: 'Setup') -> 'Setup':
        """Both together, if they are about the same."""
        different = [
            name
            for name, value in vars(self).items()
            if name not in OF_A_COMMAND and value != getattr(added, name)
        ] + [
            f'objective called {name}'
            for name, terms in self.losses.items()
            if terms != added.losses.get(name, terms)
        ]
        if different:
            raise SettingError(
                f'The folder holds a comparison with another {different[0]}: '
                'choose another --out, or remove that folder to begin again.'
            )
        return replace(
            added,
            objectives=self.objectives | added.objectives,
            losses=self.losses | added.losses,
            seeds=self.seeds
            | {
                name: sorted({*seeds, *self.seeds.get(name, [])})
                for name, seeds in added.seeds.items()
            },
            commands=list(dict.fromkeys(self.commands + added.commands)),
        )


@dataclass(frozen=True)
class RunResult:
    """One objective trained with one seed, and tested.

    Metrics are in percent. Curves are ``train_loss``, ``val_loss``,
    ``train_mIoU`` and ``val_mIoU``, each a list of (iteration, value).
    """

    name: str
    seed: int
    metrics: dict[str, float]
    class_iou: list[float | None]  # None for a class that is nowhere
    curves: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    seconds_per_iteration: float = 0.0  # the median
    peak_memory_mib: float = 0.0


def run_folder(out: Path, name: str, seed: int) -> Path:
    """The work dir of one run; predictions are in a folder below it."""
    return out / 'runs' / name.replace('/', '%2F') / f'seed-{seed}'


def write_record(record: Setup | RunResult, path: Path) -> None:
    """Write it whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write_text(path, json.dumps(asdict(record), indent=1))


def read_json(path: Path) -> Any:
    return json.loads(path.read_text('utf-8'))
