"""Several processes at work on one study, some of which are killed."""

import os
import random
import signal
import time
from collections import Counter

import pytest
from optuna.distributions import FloatDistribution
from optuna.trial import TrialState, create_trial

from mmseg_margin.tuning.shared_study import SharedStudy
from tests.processes import fork, wait_for

IDENTITY = {'config': 'a', 'seed': 0}


def propose(trials):
    return create_trial(
        state=TrialState.RUNNING,
        params={'tau': 1.0 + len(trials)},
        distributions={'tau': FloatDistribution(0.1, 1000)},
    )


def work(out, total, seconds=0.0):
    """Note every trial that was begun and every one that was finished."""
    shared = SharedStudy(out, IDENTITY, 100)
    for trial in shared.claim(total, propose):
        note(out, 'begun', trial.number)
        time.sleep(seconds)
        shared.study.tell(trial, trial.params['tau'])
        note(out, 'finished', trial.number)


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
    assert [t.params['tau'] for t in shared.trials] == [*range(1, 13)]
    assert len(shared.finished) == 12
    assert set(Counter(noted(out, 'begun')).values()) == {1}
    assert shared.best.number == 11


def test_a_killed_process_s_trial_is_gone_on_with(tmp_path):
    out = tmp_path / 'search'
    random.seed(0)
    for begun in (0, 2, 4):
        processes = [fork(work, out, 8, 0.1) for _ in range(2)]
        while not (out / 'begun').exists() or len(noted(out, 'begun')) < begun:
            time.sleep(0.01)
        time.sleep(random.uniform(0, 0.2))
        for process in processes:
            os.kill(process.pid, signal.SIGKILL)
            process.join()
    assert wait_for([fork(work, out, 8)], 600) == [0]
    shared = SharedStudy(out, IDENTITY, 100)
    assert [t.params['tau'] for t in shared.trials] == [*range(1, 9)]
    assert [t.value for t in shared.trials] == [*range(1, 9)]


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


def test_more_trials_are_added_to_what_is_there(tmp_path):
    out = tmp_path / 'search'
    for total, expected in ((2, 2), (4, 4), (3, 4)):
        work(out, total)
        assert len(SharedStudy(out, IDENTITY, 100).finished) == expected
    assert noted(out, 'finished') == [0, 1, 2, 3]


def test_another_search_in_the_same_folder_is_refused(tmp_path):
    SharedStudy(tmp_path, IDENTITY, 100)
    with pytest.raises(ValueError, match='another seed: choose another --out'):
        SharedStudy(tmp_path, {**IDENTITY, 'seed': 1}, 100)
