"""A study that several processes work on, any of which may die.

A process holds the folder of its trial locked, and the system unlocks it when
the process ends. So a trial that is running and not locked has lost its
process: it is queued again, and whoever gets it resumes its training.
"""

import json
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from filelock import FileLock, Timeout
from optuna.exceptions import ExperimentalWarning
from optuna.trial import FrozenTrial, Trial, TrialState, create_trial

from mmseg_margin.errors import SettingError

from .search_space import Setting

IDENTITY = 'identity'
FIRST_NUMBER = 'first number'
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
        # Held from the end of a trial until the next one has its folder.
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
            known = self.study.user_attrs.get(IDENTITY)
            identity = json.loads(json.dumps(identity))
            if known is None:
                self.study.set_user_attr(IDENTITY, identity)
        other = [k for k in identity if known and identity[k] != known[k]]
        if other:
            raise SettingError(
                f'{out} holds a search with another {", ".join(other)}: '
                'choose another --out, or remove that folder to begin again.'
            )

    @property
    def trials(self) -> list[FrozenTrial]:
        """Every trial, of those that were queued again the last."""
        return list(
            {
                trial.user_attrs.get(FIRST_NUMBER, trial.number): trial
                for trial in self.study.get_trials(deepcopy=False)
            }.values()
        )

    @property
    def finished(self) -> list[FrozenTrial]:
        return [trial for trial in self.trials if trial.state.is_finished()]

    @property
    def best(self) -> int | None:
        """The place of the best whole training among the trials."""
        values = {
            i: trial.value or 0.0
            for i, trial in enumerate(self.trials)
            if trial.state == TrialState.COMPLETE
        }
        return max(values, key=lambda i: values[i], default=None)

    def folder(self, place: int) -> Path:
        """The work dir of a trial, by its place among the trials."""
        return self.out / 'trials' / str(place)

    def optimize(
        self,
        total: int,
        first: Sequence[Setting],
        seed: int,
        suggest: Callable[[Trial], Setting],
        run: Callable[[Trial, Setting, Path], float],
        show: Callable[[int], None],
    ) -> None:
        """Run trials until so many are finished by all processes.

        Args:
            total: Number of finished trials, over all processes.
            first: The settings to begin with.
            seed: Of the search.
            suggest: Chooses the setting of a trial.
            run: Gives the value of a trial; resumes what is in its folder.
            show: Is told the place of every trial that has ended here.
        """
        held: list[tuple[int, FileLock]] = []

        def objective(trial: Trial) -> float:
            setting = suggest(trial)
            place = [each.number for each in self.trials].index(trial.number)
            self.folder(place).mkdir(parents=True, exist_ok=True)
            held.append((place, FileLock(self.folder(place) / 'lock')))
            held[-1][1].acquire()
            self.lock.release()
            try:
                return run(trial, setting, self.folder(place))
            except optuna.TrialPruned:
                raise
            except BaseException:
                self._queue_again(self.trials[place], has_setting=True)
                raise

        def after(study: optuna.Study, _: FrozenTrial) -> None:
            # Only now, when the study knows the outcome.
            place, lock = held.pop()
            lock.release()
            show(place)
            if not self._claim(total, first, seed):
                study.stop()

        try:
            if self._claim(total, first, seed):
                self.study.optimize(objective, callbacks=[after])
        finally:
            for _, lock in held:
                lock.release()
            self.lock.release()

    def _claim(self, total: int, first: Sequence[Setting], seed: int) -> bool:
        """Whether a trial is left to run; if so, the study stays locked."""
        while True:
            self.lock.acquire()
            self._queue_lost()
            trials = self.trials
            waiting = [
                place
                for place, trial in enumerate(trials)
                if trial.state == TrialState.WAITING
            ]
            if waiting or len(trials) < total:
                place = min(waiting, default=len(trials))
                self.study.sampler = _sampler(seed, place)
                if not waiting and place < len(first):
                    self.study.enqueue_trial(first[place])
                return True
            self.lock.release()
            if len(self.finished) == len(trials):
                return False
            time.sleep(POLL_SECONDS)

    def _queue_lost(self) -> None:
        """Queue the running trials that have lost their processes."""
        for place, trial in enumerate(self.trials):
            if trial.state != TrialState.RUNNING:
                continue
            folder = self.folder(place)
            # Without a folder its setting may be incomplete.
            has_setting = folder.exists()
            folder.mkdir(parents=True, exist_ok=True)
            with suppress(Timeout), FileLock(folder / 'lock', timeout=0):
                # Its process may have finished it in the meantime.
                if self.trials[place].state == TrialState.RUNNING:
                    self._queue_again(self.trials[place], has_setting)
                    self.study.tell(trial.number, state=TrialState.FAIL)

    def _queue_again(self, trial: FrozenTrial, has_setting: bool) -> None:
        first = trial.user_attrs.get(FIRST_NUMBER, trial.number)
        self.study.add_trial(
            create_trial(
                state=TrialState.WAITING,
                params=trial.params if has_setting else {},
                distributions=trial.distributions if has_setting else {},
                intermediate_values=trial.intermediate_values,
                system_attrs=trial.system_attrs,
                user_attrs={FIRST_NUMBER: first},
            )
        )


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
