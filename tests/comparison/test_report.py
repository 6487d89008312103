"""Verdict, tables and page of comparisons in every state."""

import re

import pytest

from mmseg_margin.comparison import tables
from mmseg_margin.comparison.report import (
    settings_of,
    verdict,
    warnings_about,
    write_report,
)
from mmseg_margin.report.numbers import ABSENT
from mmseg_margin.report.pages import Bold
from tests.comparison import invented

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
        'margin has the highest',
        'which covers 0, so neither is shown to be better',
    ),
    'margin loses to ce': (
        {'margin': [58, 59.1, 60], 'ce': [60, 61, 62]},
        'ce has the highest mean mIoU (61.00), 1.97 above margin (59.03);',
        'difference of margin to ce',
        'so margin is worse than ce here.',
    ),
    'two seeds decide nothing': (
        {'margin': [58, 59], 'ce': [60, 61]},
        'ce has the highest mean mIoU (60.50), 2.00 above margin (58.50);',
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
    'no baseline': (
        {'margin': [61], 'lovasz': [60]},
        'no seed has been run with both margin and ce',
    ),
    'a single objective wins nothing': (
        {'margin': [61]},
        'margin has a mean mIoU of 61.00; no other objective has a result',
    ),
    'no result at all': (
        {'margin': [None], 'ce': [None]},
        'No run has finished yet',
    ),
}


@pytest.mark.parametrize('case', SAID)
def test_what_is_said(case):
    miou, *fragments = SAID[case]
    text = verdict(invented.comparison_of(miou))
    for fragment in fragments:
        assert fragment in text


def test_networks_that_predict_one_class_only():
    both = invented.comparison_of({'ce': [20, 20], 'jaccard': [20, 20]})
    same = invented.change(both, predicted=[0])
    assert verdict(same) == 'Every network predicts tissue only: train longer.'
    some = invented.comparison_of({'ce': [20]})
    mixed = invented.change(both, predicted=[2]).runs[2:] + some.runs
    found = invented.Comparison(invented.COMMON, mixed)
    assert 'tie' in verdict(found)
    assert 'jaccard, seed 0 predicts wrist only: train longer.' in (
        warnings_about(found)
    )


def cells(table):
    """The cells of a table by the names of row and column."""
    return {
        (row[0], column): cell
        for row in table.rows
        for column, cell in zip(table.columns, row, strict=True)
    }


@pytest.mark.parametrize(
    ('ce', 'margin', 'text', 'is_bold'),
    [
        # The seeds differ by ten points, the pairs always by two.
        ([50, 60, 70], [52, 62, 72], '+2.00 [+2.00, +2.00]', True),
        ([50, 60], [52, 62], '+2.00 [+2.00, +2.00]', False),
        ([50], [52], '+2.00', False),
        ([50, None, 60], [52, 99, 64], '+3.00 [\u22129.71, +15.71]', False),
    ],
)
def test_differences_are_paired(ce, margin, text, is_bold):
    frame = invented.comparison_of({'ce': ce, 'margin': margin}).frame()
    cell = cells(tables.difference_table(frame))['margin', 'tail mIoU']
    assert (cell, isinstance(cell, Bold)) == (text, is_bold)


@pytest.mark.parametrize(
    'miou', [{'margin': [5]}, {'margin': [5], 'ce': [None]}, {'ce': [5]}]
)
def test_no_baseline_no_differences(miou):
    frame = invented.comparison_of(miou).frame()
    assert tables.difference_table(frame) is None


def test_tables_with_fitted_offsets():
    made = invented.comparison_of({'ce': [50, 60], 'margin': [52, None]})
    for run in made.runs:
        run.class_iou[2:] = [0.0, 50.0, None] if run.metrics else []
    overall = cells(tables.overall_table(made.frame()))
    assert overall['ce', 'mIoU'] == '55.00 ± 7.07'
    assert overall['margin', 'mIoU'] == '52.00'
    assert (overall['ce', 'seeds'], overall['margin', 'seeds']) == ('2', '1')
    assert overall['ce', 's / iteration'] == '1.2'
    by_class = tables.class_table(made, made.frame())
    names = [row[0] for row in by_class.rows]
    assert names == ['tissue', 'shaft', 'claspers', 'wrist', 'probe']
    found = cells(by_class)
    assert found['tissue', 'share %'] == '91.291'
    assert found['probe', 'ce'] == ABSENT
    # A class that is never predicted has an IoU.
    assert found['wrist', 'ce'] == '0.00 ± 0.00'
    fitted = invented.fit(invented.comparison_of({'ce': [50, 60]}), gain=1.5)
    overall = cells(tables.overall_table(fitted.frame()))
    assert overall['ce', 'mIoU with fitted offsets'] == '56.50 ± 7.07'
    assert overall['ce', 'gain by fitting'] == '+1.50 [+1.50, +1.50]'
    found = cells(tables.class_table(fitted, fitted.frame()))
    assert found['probe', 'fitted ce'] == '49.50 ± 7.07'


def test_the_page_of_a_complete_comparison(tmp_path):
    miou = {'ce': [60, 61, 62], 'margin': [64, 65, 66]}
    made = invented.fit(invented.comparison_of(miou), gain=1.0)
    made.runs[1].versions['torch'] = '2.14.0'
    invented.write_comparison(tmp_path, made)
    samples = invented.write_samples(tmp_path, made, n=2)
    text = write_report(tmp_path, samples).read_text('utf-8')
    for said in ('Curves', 'Examples', 'MarginCalibrationLoss', 'compare.py'):
        assert said in text
    assert 'margin has the highest mean mIoU' in text
    assert 'provisional' not in text
    # The versions of all runs, not only of the last one.
    assert settings_of(made)['torch'] == '2.13.0, 2.14.0'
    assert text.count('src="data:image/png;base64,') == 2
    assert (tmp_path / 'report' / 'results.json').is_file()


def test_the_page_of_an_unfinished_comparison(tmp_path):
    made = invented.comparison_of({'ce': [50, None], 'margin': [None]})
    fields = [{'resumed': [600]}, {}, {'error': 'upsilon is too small'}]
    made.runs[:] = [
        invented.make_run(run.name, run.seed, miou, **changed)
        for run, miou, changed in zip(
            made.runs, (50, None, None), fields, strict=True
        )
    ]
    invented.write_comparison(tmp_path, made)
    text = write_report(tmp_path).read_text('utf-8')
    assert 'of 3 runs, 2 have no result' in text
    assert re.search('ce, seed 0 was interrupted and resumed .* 600', text)
    assert 'ce, seed 1 is incomplete: it has not finished' in text
    assert 'margin, seed 0 is incomplete: upsilon is too small' in text


def test_the_page_without_any_result(tmp_path):
    made = invented.comparison_of({'ce': [None]})
    invented.write_comparison(tmp_path, made)
    assert 'No run has finished yet' in write_report(tmp_path).read_text()
