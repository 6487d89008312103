"""The report of a search, from trials that were never trained."""

import pytest
from optuna.trial import TrialState

from mmseg_margin.tuning.report import write_report
from mmseg_margin.tuning.search_space import setting_of
from mmseg_margin.tuning.shared_study import SharedStudy
from mmseg_margin.tuning.trial import Task
from tests.comparison.invented import make_setup
from tests.tuning.conftest import add_trial

PAPER = setting_of({}, [900, 100])
OWN = setting_of({'form': 'softmax'}, [900, 100])
STARTS = {"the paper's": PAPER, "the config's own": OWN}
SAME_SPLIT = '> The config tests on its validation images.'


@pytest.fixture
def task(cfg):
    setup = make_setup(
        iterations=100,
        versions={'torch': '9.9'},
        commands=['tune.py small.py --trials 9'],
    )
    loss = {'type': 'MarginCalibrationLoss', 'backend': 'eager'}
    return Task(cfg, loss, setup, 0, 'start.pth', STARTS)


@pytest.fixture
def shared(tmp_path):
    return SharedStudy(tmp_path / 'out', {}, 100)


def markdown(page):
    return page.with_name('report.md').read_text()


def test_a_search_without_a_trial(task, shared):
    task.cfg.test_dataloader = task.cfg.val_dataloader
    text = markdown(write_report(task, shared))
    assert 'No training has been finished yet' in text
    assert SAME_SPLIT in text


def test_a_whole_search(task, shared):
    add_trial(shared, PAPER, 40.0)
    add_trial(shared, OWN, 50.25)
    for i in range(8):
        add_trial(shared, {**PAPER, 'largest_offset': 0.05 * 2**i}, 45.0 + i)
    add_trial(shared, PAPER, 30.0, TrialState.PRUNED, {40: 30.0})
    page = write_report(task, shared)
    text = markdown(page)
    assert (
        'The best of 11 trials is trial 9 with a validation mIoU of 52.00: '
        "12.00 above the paper's and 1.75 above the config's own." in text
    )
    assert '30.00 when stopped at iteration 40' in text
    assert '**52.00**' in text
    assert 'tune.py small.py --trials 9' in text
    assert 'tuned=margin:backend=eager,form=paper,' in text
    assert '| 1 | softmax | \u2013 | 0 | 2 | None | 3 | 50.25 |' in text
    assert '| torch | 9.9 |' in text
    assert SAME_SPLIT not in text
    for name in ('history', 'slices', 'importance'):
        assert f']({name}.png)' in text
        png = (page.parent / f'{name}.png').read_bytes()
        assert png.startswith(b'\x89PNG')
    html = page.read_text()
    assert html.count('data:image/png;base64,') == 3
    assert '52.00' in html


def test_few_trials_have_no_importance(task, shared):
    add_trial(shared, PAPER, 40.0)
    text = markdown(write_report(task, shared))
    assert 'too few trials' in text
    assert 'importance.png' not in text
