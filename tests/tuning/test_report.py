"""The report of a search, from trials that were never trained."""

import re

import pytest
from optuna.trial import TrialState

from mmseg_margin.tuning.report import Task, write_report
from mmseg_margin.tuning.study import SharedStudy
from tests.tuning.conftest import FIRST, MARGIN, add_trial

JACCARD, AUTHORS, PAPER = FIRST.values()
SAME_SPLIT = '> The config tests on its validation images.'


@pytest.fixture
def task(cfg):
    common = dict(
        config='small.py',
        iterations=100,
        init='start.pth',
        versions={'torch': '9.9'},
        command='tune.py small.py --trials 9',
    )
    loss = {**MARGIN, 'backend': 'eager'}
    return Task(cfg, loss, common, 0, 'start.pth', FIRST)


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
    add_trial(shared, JACCARD, 50.25)
    add_trial(shared, AUTHORS, None, TrialState.FAIL)
    add_trial(shared, PAPER, 40.0)
    for i in range(8):
        add_trial(shared, {**PAPER, 'largest_offset': 0.05 * 2**i}, 45.0 + i)
    add_trial(shared, PAPER, 30.0, TrialState.PRUNED, {40: 30.0})
    page = write_report(task, shared)
    text = markdown(page)
    assert (
        'The best of 12 trials is trial 10 with a validation mIoU of 52.00: '
        '1.75 above jaccard and 12.00 above margin.' in text
    )
    assert '30.00 when stopped at iteration 40' in text
    assert '**52.00**' in text
    assert 'tune.py small.py --trials 9' in text
    assert 'tuned=margin:backend=eager,pos_weight=1.0,' in text
    dashes = '\u2013 | ' * 5
    assert f'| 0 | jaccard | 1 | 2 | None | {dashes}50.25 |' in text
    assert re.search(r'^\| 1 \| margin .*\| failed \|$', text, re.MULTILINE)
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
