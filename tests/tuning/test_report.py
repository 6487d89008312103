"""The report of a search, from trials that were never trained."""

import re

import pytest
from optuna.trial import TrialState

from mmseg_margin.tuning.report import Task, write_report
from mmseg_margin.tuning.search_space import SearchSpace
from mmseg_margin.tuning.study import SharedStudy
from tests.tuning.conftest import COUNTS, MARGIN, SPACE, add_trial

JACCARD, AUTHORS, PAPER = SPACE.first.values()
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
    space = SearchSpace({**MARGIN, 'backend': 'eager'}, COUNTS)
    return Task(cfg, common, space)


@pytest.fixture
def shared(tmp_path):
    return SharedStudy(tmp_path / 'out', {}, 100)


def markdown(page):
    return page.with_name('report.md').read_text()


def test_searches_that_have_just_begun(task, shared):
    task.cfg.test_dataloader = task.cfg.val_dataloader
    text = markdown(write_report(task, shared))
    assert 'No training has been finished yet' in text
    assert SAME_SPLIT in text
    add_trial(shared, PAPER, 40.0)
    text = markdown(write_report(task, shared))
    assert 'too few trials' in text
    assert 'importance.png' not in text


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
    for name in ('0', 'jaccard'):
        settings = '1 | 2 | 0 | None'
        row = f'| {name} | jaccard | {settings} | {dashes}50.25 | +1.75 |'
        assert row in text
    assert re.search(r'\| 1 \| margin .*\| failed \| \u2013 \|', text)
    assert '| torch | 9.9 |' in text
    assert SAME_SPLIT not in text
    for name in ('history', 'slices', 'importance'):
        assert f']({name}.png)' in text
        png = (page.parent / f'{name}.png').read_bytes()
        assert png.startswith(b'\x89PNG')
    html = page.read_text()
    assert html.count('data:image/png;base64,') == 3
    assert '52.00' in html
