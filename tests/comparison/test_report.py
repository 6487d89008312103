"""Records, tables, verdict and page of comparisons in every state."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from mmseg_margin.comparison import tables
from mmseg_margin.comparison.records import (
    Comparison,
    read_comparison,
    run_folder,
)
from mmseg_margin.comparison.report import (
    settings_of,
    warnings_about,
    write_report,
)
from tests.comparison import invented

# Two-sided 95 %, as printed in every table of Student's t.
PRINTED = {1: 12.706, 2: 4.303, 9: 2.262, 120: 1.980}
# The mIoU of seeds 0, 1, ... of each objective, and what is said about them.
SAID = {
    'margin wins for certain': (
        {'ce': [60, 61, 62], 'margin': [64, 65.2, 66.1], 'lovasz': [62, 64]},
        'margin has the highest mean mIoU (65.10), 2.10 above lovasz (63.00);',
        '[+3.85, +4.35]',
        'over 3 seed(s), so margin is better than ce here.',
    ),
    'margin wins perhaps': (
        {'ce': [60, 61, 62], 'margin': [60, 63, 61.5]},
        'which covers 0, so neither is shown to be better',
    ),
    'margin loses to ce': (
        {'margin': [58, 59.1, 60], 'ce': [60, 61, 62]},
        'ce has the highest mean mIoU (61.00), 1.97 above margin (59.03);',
        'so margin is worse than ce here.',
    ),
    'two seeds decide nothing': (
        {'margin': [58, 59], 'ce': [60, 61]},
        'over 2 seed(s), too few to tell it from chance',
    ),
    'a tie is called a tie': (
        {'ce': [23.3], 'jaccard': [23.301], 'lovasz': [20]},
        'ce and jaccard tie at a mean mIoU of 23.30;',
    ),
    'nothing to pair with': (
        {'margin': [61], 'lovasz': [60], 'ce': [None, 60]},
        'no seed has been run with both margin and ce',
    ),
    'a single objective': ({'margin': [61]}, 'Only margin has a result'),
    'no result': ({'margin': [None], 'ce': [None]}, 'No run has finished yet'),
}


@pytest.mark.parametrize('case', SAID)
def test_what_is_said(case):
    miou, *fragments = SAID[case]
    text = tables.verdict(invented.comparison_of(miou))
    for fragment in fragments:
        assert fragment in text


def test_networks_that_predict_one_class_only():
    made = invented.comparison_of({'ce': [20, 20], 'jaccard': [20, 20]})
    runs = [replace(run, predicted=[0]) for run in made.runs]
    said = tables.verdict(Comparison(made.common, runs))
    assert said == 'Every network predicts tissue only: train longer.'
    mixed = Comparison(made.common, [*made.runs[:3], runs[3]])
    assert 'tie' in tables.verdict(mixed)
    said = ['jaccard, seed 1 predicts tissue only: train longer.']
    assert warnings_about(mixed) == said


@pytest.mark.parametrize(('freedom', 'printed'), PRINTED.items())
def test_interval_is_that_of_the_printed_tables(freedom, printed):
    n = freedom + 1
    values = np.linspace(1, 3, n)
    found = tables.mean_difference([*values, math.nan])
    half = printed * np.std(values, ddof=1) / math.sqrt(n)
    assert (found.mean, found.n) == (pytest.approx(2), n)
    assert found.low == pytest.approx(2 - half, rel=5e-4)
    assert found.high == pytest.approx(2 + half, rel=5e-4)


@pytest.mark.parametrize(
    ('ce', 'margin', 'text'),
    [
        # The seeds differ by ten points, the pairs always by two.
        ([50, 60, 70], [52, 62, 72], '+2.00 [+2.00, +2.00] *'),
        ([50, 60], [52, 62], '+2.00 [+2.00, +2.00]'),
        ([50], [52], '+2.00'),
        ([50, None, 60], [52, 99, 64], '+3.00 [\u22129.71, +15.71]'),
    ],
)
def test_differences_are_paired(ce, margin, text):
    frame = invented.comparison_of({'ce': ce, 'margin': margin}).frame()
    table = tables.difference_table(frame)
    assert table.loc['margin', 'tail mIoU'] == text


def test_tables():
    made = invented.comparison_of({'ce': [50, 60], 'margin': [52, None]})
    for run in made.runs:
        run.class_iou[2:] = [0.0, 50.0, None] if run.metrics else []
    overall = tables.overall_table(made.frame())
    assert overall['mIoU'].tolist() == ['55.00 ± 7.07', '52.00']
    assert overall['seeds'].tolist() == [2, 1]
    assert overall.loc['ce', 's / iteration'] == '1.2'
    found = tables.class_table(made)
    names = ['tissue', 'shaft', 'claspers', 'wrist', 'probe']
    assert found.index.tolist() == names
    assert found.loc['tissue', 'share %'] == '91.291'
    assert found.loc['probe', 'ce'] == tables.ABSENT
    # A class that is never predicted has an IoU.
    assert found.loc['wrist', 'ce'] == '0.00 ± 0.00'
    fitted = invented.fit(invented.comparison_of({'ce': [50, 60]}), gain=1.5)
    overall = tables.overall_table(fitted.frame()).loc['ce']
    assert overall['mIoU with fitted offsets'] == '56.50 ± 7.07'
    assert overall['gain by fitting'] == '+1.50 [+1.50, +1.50]'


def test_the_report_of_a_complete_comparison(tmp_path):
    miou = {'ce': [60, 61, 62], 'margin:tau=2e-5': [64, 65, 66]}
    made = invented.fit(invented.comparison_of(miou), gain=1.0)
    made.runs[1].versions['torch'] = '2.14.0'
    invented.write_comparison(tmp_path, made)
    assert read_comparison(tmp_path).frame().equals(made.frame())
    samples = invented.write_samples(tmp_path, made, n=2)
    text = write_report(tmp_path, samples).read_text('utf-8')
    for said in ('Examples', 'MarginCalibrationLoss', 'has the highest'):
        assert said in text
    assert 'class="warning"' not in text
    # The versions of all runs, not only of the last one.
    assert settings_of(made)['torch'] == '2.13.0, 2.14.0'
    # Small settings are kept as they are.
    results = json.loads((tmp_path / 'report' / 'results.json').read_text())
    assert results['runs'][-1]['losses'][0]['tau'] == 2e-5


def test_the_page_of_an_unfinished_comparison(tmp_path):
    made = invented.comparison_of({'ce': [50, None], 'margin': [None]})
    made.runs[0] = replace(made.runs[0], resumed=[600])
    made.runs[2] = replace(made.runs[2], error='upsilon is too small')
    invented.write_comparison(tmp_path, made)
    text = write_report(tmp_path).read_text('utf-8')
    assert 'ce, seed 0 was interrupted and resumed at iteration 600' in text
    assert 'ce, seed 1 is incomplete: it has not finished' in text
    assert 'margin, seed 0 is incomplete: upsilon is too small' in text


@pytest.mark.parametrize('name', ['n' * 300, '..', 'a/b', 'a\\b', '\ud800'])
def test_any_name_has_a_folder_of_its_own(tmp_path, name):
    folder = run_folder(tmp_path, name, 0)
    assert folder.parents[1] == tmp_path / 'runs'
    assert folder != run_folder(tmp_path, f'{name}2', 0)
    folder.mkdir(parents=True)
