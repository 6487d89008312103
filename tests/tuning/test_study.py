"""Several processes at work on one study, some of which are killed."""

import math
import os
import random
import signal
import time
from collections import Counter

import pytest
from optuna.trial import TrialState

from mmseg_margin.tuning.study import SharedStudy, best_of, count_finished
from tests.processes import fork, wait_for
from tests.tuning.conftest import SPACE

IDENTITY = {'config': 'a', 'seed': 0}


def work(out, total, seconds=0.0, value=lambda number: number):
    """Note every trial that was begun and every one that was finished."""
    shared = SharedStudy(out, IDENTITY, 100)

    def run(trial, folder):
        note(out, 'begun', folder.name)
        time.sleep(seconds)
        return value(trial.number)

    for trial in shared.optimize(total, SPACE, run):
        note(out, 'finished', trial.number)
    return shared


def note(out, what, number):
    with open(out / what, 'a') as file:
        file.write(f'{number}\n')


def noted(out, what):
    return [int(line) for line in (out / what).read_text().split()]


def test_processes_share_the_trials(tmp_path):
    out = tmp_path / 'search'
    processes = [fork(work, out, 12, 0.02) for _ in range(3)]
    assert wait_for(processes, 600) == [0, 0, 0]
    shared = SharedStudy(out, IDENTITY, 100)
    assert [t.value for t in shared.trials] == [*range(12)]
    assert [t.params for t in shared.trials[:3]] == [*SPACE.first.values()]
    assert set(Counter(noted(out, 'begun')).values()) == {1}
    assert best_of(shared.trials).number == 11


def test_killed_processes_leave_no_gap(tmp_path):
    """A trial keeps its place, its setting and its folder."""
    out, alone = tmp_path / 'search', tmp_path / 'alone'
    expected = [t.params for t in work(alone, 8).trials]
    random.seed(0)
    for begun in (1, 3, 5):
        process = fork(work, out, 8, 0.1)
        while not (out / 'begun').exists() or len(noted(out, 'begun')) < begun:
            time.sleep(0.01)
        time.sleep(random.uniform(0, 0.2))
        os.kill(process.pid, signal.SIGKILL)
        process.join()
    shared = work(out, 8)
    assert [t.value for t in shared.trials] == [*range(8)]
    assert [t.params for t in shared.trials] == expected


def test_whoever_waits_takes_over_from_the_dead(tmp_path):
    """The last trial is running elsewhere when its process is killed."""
    out = tmp_path / 'search'
    slow = fork(work, out, 1, 600)
    while not (out / 'begun').exists():
        time.sleep(0.05)
    waiting = fork(work, out, 1)
    time.sleep(0.5)
    assert waiting.is_alive()
    slow.kill()
    assert wait_for([waiting], 600) == [0]
    assert noted(out, 'finished') == [0]


def test_an_error_ends_the_process_and_not_the_trial(tmp_path):
    """More trials can be added; one without a number has failed."""

    def fail(number):
        raise OSError('disk full')

    with pytest.raises(OSError, match='disk full'):
        work(tmp_path, 2, value=fail)
    for total, expected in ((2, 2), (4, 4), (3, 4)):
        shared = work(tmp_path, total, value=lambda number: math.nan)
        assert count_finished(shared.trials) == expected
    assert noted(tmp_path, 'finished') == [0, 1, 2, 3]
    assert {trial.state for trial in shared.trials} == {TrialState.FAIL}
    assert best_of(shared.trials) is None


def test_another_search_in_the_same_folder_is_refused(tmp_path):
    SharedStudy(tmp_path, IDENTITY, 100)
    with pytest.raises(ValueError, match='another seed: choose another --out'):
        SharedStudy(tmp_path, {**IDENTITY, 'seed': 1}, 100)
