"""A study on disk that several processes work on, any of which may die.

What a process works on it holds locked, and the system unlocks it when the
process ends, however it ends. So a trial that is running and not locked has
lost its process, and whoever finds it goes on with it.
"""

import fcntl
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import optuna
from optuna.pruners import MedianPruner
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial, Trial, TrialState, create_trial

from mmseg_margin.errors import SettingError

from .space import Setting, Space

STUDY_FILE = 'study.db'
STUDY_LOCK = 'study.lock'
IDENTITY = 'identity'
# The pruner needs a few whole trainings to compare with, and the first part
# of a training says little about its end.
WHOLE_TRIALS = 4
WARM_UP = 0.3
# A database on a slow disk with many processes at work.
DATABASE_SECONDS = 120
POLL_SECONDS = 1.0


class SharedStudy:
    """The trials of one search.

    Args:
        out: Its folder.
        identity: Everything that must be the same for all trials.
        iterations: Of a whole training.
    """

    def __init__(
        self, out: Path, identity: dict[str, Any], iterations: int
    ) -> None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.out = out
        out.mkdir(parents=True, exist_ok=True)
        with self.locked():
            self.study = optuna.create_study(
                storage=RDBStorage(
                    f'sqlite:///{out / STUDY_FILE}',
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

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep the other processes out."""
        with open(self.out / STUDY_LOCK, 'wb') as lock:
            fcntl.lockf(lock, fcntl.LOCK_EX)
            yield

    def claim(
        self,
        total: int,
        space: Space,
        choose: Callable[[list[FrozenTrial]], Setting],
    ) -> Iterator[Trial]:
        """Trials to run, until so many are finished by all processes.

        Args:
            total: Trials in the end.
            space: Of the settings.
            choose: The setting to try after the trials so far.
        """
        while True:
            with self.locked():
                claimed = self._adopt()
                if claimed is None and len(self.trials) < total:
                    self.study.add_trial(
                        create_trial(
                            state=TrialState.RUNNING,
                            params=choose(self.trials),
                            distributions=space,
                        )
                    )
                    claimed = self._adopt()
            if claimed is not None:
                trial, lock = claimed
                with lock:
                    yield trial
            elif len(self.finished) == len(self.trials):
                return
            else:
                time.sleep(POLL_SECONDS)

    def _adopt(self) -> tuple[Trial, IO] | None:
        """The first running trial without a process, locked."""
        for trial in self.trials:
            if trial.state != TrialState.RUNNING:
                continue
            lock = _try_lock(self.folder(trial.number) / 'lock')
            if lock is None:
                continue
            # Its process may have finished it between the two looks.
            if self.trials[trial.number].state == TrialState.RUNNING:
                return Trial(self.study, trial._trial_id), lock
            lock.close()
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


def _try_lock(path: Path) -> IO | None:
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = open(path, 'wb')  # noqa: SIM115  (it is held during the trial)
    try:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return None
    return lock
