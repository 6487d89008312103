"""A study that several processes work on, any of which may die.

Every process holds a shared lock on one file, which the system releases when
the process ends. So a process that gets the file for itself is alone, and the
trials that are running elsewhere have lost their processes: they are queued
again, and whoever gets them resumes their training. Optuna's heartbeat would
notice a death later, when a restarted search has already chosen another trial.
"""

import fcntl
import json
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import optuna
from filelock import FileLock
from optuna.exceptions import ExperimentalWarning
from optuna.trial import FrozenTrial, Trial, TrialState, create_trial

from mmseg_margin.errors import SettingError

from .search_space import Setting, Space, suggest

IDENTITY, FIRST_NUMBER, HAS_SETTING = 'identity', 'first number', 'setting'
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
        # Held from the end of a trial until the next one is chosen.
        self.lock = FileLock(out / 'study.lock')
        with self.lock:
            self.study = optuna.create_study(
                storage=optuna.storages.RDBStorage(
                    f'sqlite:///{out / "study.db"}',
                    {'connect_args': {'timeout': DATABASE_SECONDS}},
                ),
                study_name='margin',
                direction='maximize',
                load_if_exists=True,
                pruner=optuna.pruners.MedianPruner(
                    WHOLE_TRIALS, int(WARM_UP * iterations)
                ),
            )
            identity = json.loads(json.dumps(identity))
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
        """Every trial, of those that were queued again the last."""
        trials = self.study.get_trials(deepcopy=False)
        last = {t.user_attrs.get(FIRST_NUMBER, t.number): t for t in trials}
        return list(last.values())

    @property
    def finished(self) -> list[FrozenTrial]:
        return [trial for trial in self.trials if trial.state.is_finished()]

    @property
    def best(self) -> int | None:
        return best_of(self.trials)

    def folder(self, place: int) -> Path:
        """The work dir of a trial, by its place among the trials."""
        return self.out / 'trials' / str(place)

    def optimize(
        self,
        total: int,
        first: Sequence[Setting],
        seed: int,
        space: Space,
        run: Callable[[Trial, Setting, Path], float],
        show: Callable[[int], None],
    ) -> None:
        """Run trials until so many are finished by all processes.

        Args:
            total: Number of finished trials, over all processes.
            first: The settings to begin with.
            seed: Of the search.
            space: All settings that may be chosen.
            run: Gives the value of a trial; resumes what is in its folder.
            show: Is told the place of every trial that has ended here.
        """
        place = 0

        def objective(trial: Trial) -> float:
            nonlocal place
            setting = suggest(trial, space)
            trial.set_user_attr(HAS_SETTING, True)
            place = [each.number for each in self.trials].index(trial.number)
            self.folder(place).mkdir(parents=True, exist_ok=True)
            self.lock.release()
            try:
                return run(trial, setting, self.folder(place))
            except optuna.TrialPruned:
                raise
            except BaseException:
                self._queue_again(self.trials[place])
                raise

        def after(study: optuna.Study, trial: FrozenTrial) -> None:
            show(place)
            if not self._claim(total, first, seed, file):
                study.stop()

        with open(self.out / 'processes.lock', 'wb') as file:
            try:
                if self._claim(total, first, seed, file):
                    self.study.optimize(objective, callbacks=[after])
            finally:
                self.lock.release()

    def _claim(
        self, total: int, first: Sequence[Setting], seed: int, file: IO
    ) -> bool:
        """Whether a trial is left to run; if so, the study stays locked."""
        while True:
            self.lock.acquire()
            if _is_alone(file):
                for trial in self.trials:
                    if trial.state == TrialState.RUNNING:
                        self._queue_again(trial)
                        self.study.tell(trial.number, state=TrialState.FAIL)
            states = [trial.state for trial in self.trials]
            is_waiting = TrialState.WAITING in states
            if is_waiting or len(states) < total:
                place = [*states, TrialState.WAITING].index(TrialState.WAITING)
                self.study.sampler = _sampler(seed, place)
                if not is_waiting and place < len(first):
                    self.study.enqueue_trial(first[place])
                return True
            self.lock.release()
            if TrialState.RUNNING not in states:
                return False
            time.sleep(POLL_SECONDS)

    def _queue_again(self, trial: FrozenTrial) -> None:
        kept = trial.user_attrs
        # A process may have died while the setting was chosen.
        whole = HAS_SETTING in kept
        self.study.add_trial(
            create_trial(
                state=TrialState.WAITING,
                params=trial.params if whole else {},
                distributions=trial.distributions if whole else {},
                intermediate_values=trial.intermediate_values,
                system_attrs=trial.system_attrs,
                user_attrs={FIRST_NUMBER: trial.number, **kept},
            )
        )


def best_of(trials: Sequence[FrozenTrial]) -> int | None:
    """The place of the best whole training among the trials."""
    values = {
        place: trial.value or 0.0
        for place, trial in enumerate(trials)
        if trial.state == TrialState.COMPLETE
    }
    return max(values, key=lambda place: values[place], default=None)


def _is_alone(file: IO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        fcntl.flock(file, fcntl.LOCK_SH)
    return True


def _sampler(seed: int, place: int) -> optuna.samplers.TPESampler:
    """For one trial, so that a search can be interrupted and repeated."""
    words = np.random.SeedSequence((seed, place)).generate_state(1)
    with warnings.catch_warnings():
        warnings.simplefilter('ignore', ExperimentalWarning)
        return optuna.samplers.TPESampler(
            seed=int(words[0]),
            multivariate=True,
            # The losses have different parameters.
            group=True,
            # Processes that run at the same time shall not try the same.
            constant_liar=True,
        )
