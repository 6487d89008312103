"""A study that several processes work on, any of which may die.

A process holds a lock on the trial that it runs, which the system releases
when the process ends. A running trial that is not locked has lost its process:
it is queued again, and whoever gets it resumes its training. Optuna's
heartbeat would notice a death later, when a restarted search has already
chosen another trial, and ``Study.optimize`` would end the trial as failed.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

import optuna
from filelock import FileLock, Timeout
from optuna.trial import FrozenTrial, Trial, TrialState

from mmseg_margin.errors import SettingError

from .search_space import SearchSpace

IDENTITY = 'identity'
# The pruner needs a few whole trainings to compare with, and the first part
# of a training says little about its end.
WHOLE_TRIALS, WARM_UP = 4, 0.3
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
        self.lock = FileLock(out / 'study.lock')
        with self.lock:
            self.storage = optuna.storages.RDBStorage(
                f'sqlite:///{out / "study.db"}',
                {'connect_args': {'timeout': DATABASE_SECONDS}},
            )
            self.study = optuna.create_study(
                storage=self.storage,
                study_name='margin',
                direction='maximize',
                load_if_exists=True,
                pruner=optuna.pruners.MedianPruner(
                    WHOLE_TRIALS, int(WARM_UP * iterations)
                ),
            )
            known = self.study.user_attrs.get(IDENTITY, identity)
            self.study.set_user_attr(IDENTITY, known)
        other = [name for name in identity if identity[name] != known[name]]
        if other:
            raise SettingError(
                f'{out} holds a search with another {", ".join(other)}: '
                'choose another --out, or remove that folder to begin again.'
            )

    @property
    def trials(self) -> list[FrozenTrial]:
        return self.study.get_trials(deepcopy=False)

    def folder(self, number: int) -> Path:
        """The work dir of a trial."""
        return self.out / 'trials' / str(number)

    def optimize(
        self,
        total: int,
        space: SearchSpace,
        run: Callable[[Trial, Path], float],
    ) -> Iterator[FrozenTrial]:
        """Run trials until so many are finished, over all processes.

        Args:
            total: Number of finished trials.
            space: Chooses their settings.
            run: Gives the value of a trial; resumes what is in its folder.

        Yields:
            Every trial that was finished by this process.
        """
        while claimed := self._claim(total, space):
            trial, lock = claimed
            value, state = None, TrialState.COMPLETE
            with lock:
                try:
                    value = run(trial, self.folder(trial.number))
                except optuna.TrialPruned:
                    state = TrialState.PRUNED
                if value is not None and math.isnan(value):
                    value, state = None, TrialState.FAIL
                with self.lock:  # not while others look for lost trials
                    finished = self.study.tell(trial, value, state)
            yield finished

    def _claim(
        self, total: int, space: SearchSpace
    ) -> tuple[Trial, AbstractContextManager] | None:
        """The next trial, locked until the context ends, if any is left."""
        while True:
            with self.lock:
                self._queue_lost_trials()
                trials = self.trials
                states = {trial.state for trial in trials}
                is_waiting = TrialState.WAITING in states
                if is_waiting or len(trials) < total:
                    if not is_waiting:
                        self.study.add_trial(space.choose(trials))
                    trial = self.study.ask()
                    return trial, self._trial_lock(trial).acquire()
            if TrialState.RUNNING not in states:
                return None
            time.sleep(POLL_SECONDS)

    def _queue_lost_trials(self) -> None:
        for trial in self.trials:
            if trial.state == TrialState.RUNNING:
                with suppress(Timeout), self._trial_lock(trial).acquire(0):
                    self.storage.set_trial_state_values(
                        trial._trial_id, TrialState.WAITING
                    )

    def _trial_lock(self, trial: Trial | FrozenTrial) -> FileLock:
        return FileLock(self.folder(trial.number) / 'lock')


def is_whole(trial: FrozenTrial) -> bool:
    return trial.state == TrialState.COMPLETE


def best_of(trials: Sequence[FrozenTrial]) -> FrozenTrial | None:
    """The best whole training."""
    whole = filter(is_whole, trials)
    return max(whole, key=lambda trial: trial.value or 0.0, default=None)


def count_finished(trials: Sequence[FrozenTrial]) -> int:
    """How many trials are whole, stopped early or failed."""
    return sum(trial.state.is_finished() for trial in trials)
