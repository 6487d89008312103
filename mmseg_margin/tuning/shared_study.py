"""A study on disk that several processes work on, any of which may die.

What a process works on it holds locked, and the system unlocks it when the
process ends, however it ends. So a trial that is running and not locked has
lost its process, and whoever finds it goes on with it.
"""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import optuna
from filelock import FileLock, Timeout
from optuna.pruners import MedianPruner
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial, Trial, TrialState

from mmseg_margin.errors import SettingError

IDENTITY = 'identity'
# The pruner needs a few whole trainings to compare with, and the first part
# of a training says little about its end.
WHOLE_TRIALS = 4
WARM_UP = 0.3
# A database on a slow disk with many processes at work.
DATABASE_SECONDS = 120
POLL_SECONDS = 1.0


class SharedStudy:
    """The trials of one search, which have an identity in common."""

    def __init__(
        self, out: Path, identity: dict[str, Any], iterations: int
    ) -> None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.out = out
        out.mkdir(parents=True, exist_ok=True)
        # Held to keep the other processes out.
        self.lock = FileLock(out / 'study.lock')
        with self.lock:
            self.study = optuna.create_study(
                storage=RDBStorage(
                    f'sqlite:///{out / "study.db"}',
                    engine_kwargs={
                        'connect_args': {'timeout': DATABASE_SECONDS}
                    },
                ),
                study_name='margin',
                direction='maximize',
                load_if_exists=True,
                pruner=MedianPruner(WHOLE_TRIALS, int(WARM_UP * iterations)),
            )
            self._check_identity(json.loads(json.dumps(identity)))

    @property
    def trials(self) -> list[FrozenTrial]:
        return self.study.get_trials(deepcopy=False)

    @property
    def finished(self) -> list[FrozenTrial]:
        return [trial for trial in self.trials if trial.state.is_finished()]

    @property
    def best(self) -> FrozenTrial | None:
        """The first of the best whole trainings."""
        whole = [t for t in self.trials if t.state == TrialState.COMPLETE]
        return max(whole, key=lambda t: t.value or 0.0, default=None)

    def folder(self, number: int) -> Path:
        """The work dir of a trial."""
        return self.out / 'trials' / str(number)

    def claim(
        self, total: int, propose: Callable[[list[FrozenTrial]], FrozenTrial]
    ) -> Iterator[Trial]:
        """Trials to run, until so many are finished by all processes."""
        while True:
            with self.lock:
                claimed = self._adopt()
                if claimed is None and len(self.trials) < total:
                    self.study.add_trial(propose(self.trials))
                    claimed = self._adopt()
            if claimed is not None:
                trial, lock = claimed
                try:
                    yield trial
                finally:
                    lock.release()
            elif len(self.finished) == len(self.trials):
                return
            else:
                time.sleep(POLL_SECONDS)

    def _adopt(self) -> tuple[Trial, FileLock] | None:
        """The first running trial without a process, locked."""
        for trial in self.trials:
            if trial.state != TrialState.RUNNING:
                continue
            folder = self.folder(trial.number)
            folder.mkdir(parents=True, exist_ok=True)
            lock = FileLock(folder / 'lock')
            try:
                lock.acquire(blocking=False)
            except Timeout:
                continue
            # Its process may have finished it between the two looks.
            if self.trials[trial.number].state == TrialState.RUNNING:
                return go_on_with_trial(self.study, trial), lock
            lock.release()
        return None

    def _check_identity(self, identity: dict[str, Any]) -> None:
        known = self.study.user_attrs.get(IDENTITY)
        if known is None:
            self.study.set_user_attr(IDENTITY, identity)
            return
        other = [name for name in identity if identity[name] != known[name]]
        if other:
            raise SettingError(
                f'{self.out} holds a search with another '
                f'{", ".join(other)}: choose another --out, or remove that '
                'folder to begin again.'
            )


def go_on_with_trial(study: Any, trial: Any) -> Any:
    """A running trial of an Optuna study, to report to and to finish.

    Optuna hands these out for new trials only.
    """
    return Trial(study, trial._trial_id)
