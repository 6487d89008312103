"""Reports of comparisons in every state: tables, verdict and page."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from mmseg_margin.comparison.report import (
    class_table,
    cost_table,
    difference_table,
    overall_table,
    verdict,
    write_report,
)
from mmseg_margin.comparison.runs import load_results, run_folder
from mmseg_margin.errors import SettingError
from mmseg_margin.report.numbers import ABSENT
from mmseg_margin.report.pages import Bold
from tests.comparison.invented import (
    cells,
    comparison_of,
    fit,
    make_comparison,
    make_results,
    make_run,
    write_comparison,
    write_samples,
)

NAN = float('nan')
TITLES = (
    'Results',
    'IoU of each class',
    'Curves',
    'Examples',
    'Classes and margins',
    'Cost',
    'Settings',
)
HOSTILE = [
    '<script>alert(1)</script>',
    'pipe | and\nline\x00\x1b[2J',
    '"quoted" onload="x" & \u2028 \ud800',
    '$x$ `code` *bold* ![a](http://example.org/x.png)',
    '</td></table><img src=http://example.org/y.png>',
]


# The mIoU of seeds 0, 1, ... of each objective, and what is said about them.
SAID = {
    'margin wins for certain': (
        {'ce': [60, 61, 62], 'margin': [64, 65.2, 66.1], 'lovasz': [62, 64]},
        'margin has the highest mean mIoU (65.10), 2.10 above lovasz (63.00);',
        '[+3.85, +4.35] over 3 seeds',
        'so margin is better than ce here.',
    ),
    'margin wins perhaps': (
        {'ce': [60, 61, 62], 'margin': [60, 63, 61.5]},
        'margin has the highest',
        'which covers 0, so neither is shown to be better',
    ),
    'margin loses to ce': (
        {'margin': [58, 59.1], 'ce': [60, 61]},
        'ce has the highest mean mIoU (60.50), 1.95 above margin (58.55);',
        'of margin to ce is [\u22122.59, \u22121.31]',
        'so margin is worse than ce here.',
    ),
    'margin is named even when far behind': (
        {'ce': [60], 'focal': [62], 'lovasz': [63], 'margin': [50]},
        'lovasz has the highest mean mIoU (63.00)',
        '; margin is number 4 of 4 (50.00);',
        'margin to ce is \u221210.00 with a single seed',
        'no interval and may be chance',
    ),
    'the best of several margin objectives is compared': (
        {'margin': [60], 'margin:tau=20': [64], 'ce': [61]},
        'difference of margin:tau=20 to ce is +3.00',
    ),
    'without margin the best is compared': (
        {'ce': [60, 60], 'focal': [59, 59.5]},
        'paired difference of focal to ce',
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
    'nan is no result': (
        {'margin': [NAN], 'ce': [60]},
        'ce has a mean mIoU of 60.00; no other',
    ),
}


# The mIoU of the seeds, a cell of a table, its text, and whether it is bold.
OVERALL = [
    # Equal after rounding is equally bold.
    ({'margin': [60.001], 'ce': [59.999]}, 'margin', 'mIoU', '60.00', True),
    ({'margin': [60.001], 'ce': [59.999]}, 'ce', 'mIoU', '60.00', True),
    ({'margin': [60.001], 'ce': [59.999]}, 'ce', 'head mIoU', ABSENT, False),
    # Missing runs are left out, and nothing beats an objective without any.
    (
        {'margin': [61, 62], 'ce': [60.5]},
        'margin',
        'mIoU',
        '61.50 ± 0.71',
        True,
    ),
    ({'margin': [61, 62], 'ce': [60.5]}, 'ce', 'mIoU', '60.50', False),
    ({'margin': [61], 'ce': [None]}, 'margin', 'mIoU', '61.00', False),
    ({'margin': [61], 'ce': [None]}, 'ce', 'mIoU', ABSENT, False),
    ({'margin': [61], 'ce': [None]}, 'ce', 'seeds', '0', False),
]
DIFFERENCES = [
    # The seeds differ by ten points, the pairs always by two.
    ([50, 60, 70], [52, 62, 72], 'mIoU', '+2.00\n[+2.00, +2.00]', True),
    ([50, 60, 70], [52, 62, 72], 'head mIoU', ABSENT, False),
    # One seed has no interval.
    ([50], [52], 'tail mIoU', '+2.00', False),
]


def bold(table):
    return {key for key, cell in cells(table).items() if type(cell) is Bold}


def test_overall_is_mean_and_deviation():
    results = make_comparison()
    table = overall_table(results)
    values = [
        run.metrics['mIoU_tail'] for run in results.runs if run.name == 'ce'
    ]
    expected = f'{np.mean(values):.2f} ± {np.std(values, ddof=1):.2f}'
    assert cells(table)['ce', 'tail mIoU'] == expected
    assert cells(table)['ce', 'seeds'] == '3'
    assert ('margin', 'mIoU') in bold(table)
    assert ('ce', 'mIoU') not in bold(table)


@pytest.mark.parametrize(('miou', 'row', 'column', 'text', 'is_bold'), OVERALL)
def test_overall_of_given_runs(miou, row, column, text, is_bold):
    table = overall_table(comparison_of(miou))
    assert cells(table)[row, column] == text
    assert ((row, column) in bold(table)) == is_bold


@pytest.mark.parametrize(
    ('ce', 'margin', 'column', 'text', 'is_bold'), DIFFERENCES
)
def test_differences_are_paired(ce, margin, column, text, is_bold):
    table = difference_table(comparison_of({'ce': ce, 'margin': margin}))
    assert cells(table)['margin', column] == text
    assert (('margin', column) in bold(table)) == is_bold


@pytest.mark.parametrize('absent', [None, float('nan')])
def test_a_class_without_iou(absent):
    results = make_comparison(('margin', 'ce'), (0, 1))
    for run in results.runs:
        run.class_iou[4] = absent
    results.runs[0].class_iou[3] = absent
    table = cells(class_table(results))
    assert table['probe', 'margin'] == ABSENT
    assert table['probe', 'ce'] == ABSENT
    one = results.runs[2].class_iou[3]
    assert table['claspers', 'margin'] == f'{one:.2f}'


def test_a_class_that_is_never_predicted_counts_as_zero():
    results = make_comparison(('ce',), (0, 1))
    for run in results.runs:
        run.class_iou[4] = 0.0
    assert cells(class_table(results))['probe', 'ce'] == '0.00 ± 0.00'


def test_classes_by_their_fraction():
    table = class_table(make_comparison())
    names = [row[0] for row in table.rows]
    assert names == ['tissue', 'shaft', 'claspers', 'wrist', 'probe']
    assert cells(table)['tissue', 'share %'] == '91.291'


def test_fitted_offsets_have_columns_of_their_own():
    results = fit(comparison_of({'ce': [50, 60], 'margin': [52, 62]}), 1.5)
    overall = cells(overall_table(results))
    assert overall['ce', 'mIoU with fitted offsets'] == '56.50 ± 7.07'
    assert overall['ce', 'gain by fitting'] == '+1.50\n[+1.50, +1.50]'
    differences = cells(difference_table(results))
    column = 'mIoU with fitted offsets'
    assert differences['margin', column] == '+2.00\n[+2.00, +2.00]'
    table = cells(class_table(results))
    assert table['probe', 'ce'] == '50.00 ± 0.00'
    assert table['probe', 'ce, fitted'] == '51.50 ± 0.00'


@pytest.mark.parametrize(
    'miou', [{'margin': [5]}, {'margin': [5], 'ce': [None]}, {'ce': [5]}]
)
def test_no_baseline_no_differences(miou):
    assert difference_table(comparison_of(miou)) is None


def test_cost_is_relative_to_the_baseline():
    seconds = {'ce': (2, 1, 9), 'margin': (3, 3, 3), 'focal': (None,) * 3}
    results = make_comparison(seconds)
    results = make_results(
        [
            replace(
                run,
                seconds=seconds[run.name][run.seed],
                memory=1000.0 + run.seed,
            )
            for run in results.runs
        ]
    )
    ce, margin, focal = cost_table(results).rows
    assert [*ce] == ['ce', '2', '1.00', '1,002', '1.00']
    assert [*margin[1:3]] == ['3', '1.50']
    assert [*focal[1:3]] == [ABSENT, ABSENT]


@pytest.mark.parametrize('case', SAID)
def test_what_is_said(case):
    miou, *fragments = SAID[case]
    text = verdict(comparison_of(miou))
    for fragment in fragments:
        assert fragment in text
    assert text.startswith(fragments[0]) or len(fragments) == 1


class Elements(HTMLParser):
    """All elements of a page with their attributes."""

    def __init__(self, page):
        super().__init__()
        self.found = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))


def report(out, results, samples=()):
    """The page and its Markdown."""
    write_comparison(out, results)
    page = write_report(out, samples)
    assert page == out / 'report' / 'index.html'
    markdown = page.with_name('report.md')
    return page.read_text('utf-8'), markdown.read_text('utf-8')


def test_complete_report(tmp_path):
    results = make_comparison()
    samples = write_samples(tmp_path, results, n=2)
    html, markdown = report(tmp_path, results, samples)
    for text in (html, markdown):
        assert 'provisional' not in text
        assert [title for title in TITLES if title not in text] == []
        assert 'margin has the highest mean mIoU' in text
        assert 'MarginCalibrationLoss' in text
        assert results.runs[0].command in text
    # One file has all that is needed to make the tables again.
    kept = tmp_path / 'report' / 'results.json'
    assert kept.stat().st_size < 20_000
    again = load_results({'': kept})
    assert verdict(again) == verdict(results)
    for one, other in zip(again.runs, results.runs, strict=True):
        assert str(one) == str(other)
        assert one.losses == other.losses
        assert one.class_counts == other.class_counts
    files = re.findall(r'!\[.*\]\((.*)\)', markdown)
    assert len(files) == len(set(files)) == 6
    assert all((tmp_path / 'report' / file).is_file() for file in files)
    # Nothing but data is loaded.
    for tag, attributes in Elements(html).found:
        assert tag not in ('script', 'link', 'iframe', 'object')
        assert not attributes.get('src', 'data:').partition('data:')[0]
        assert attributes.get('href', '#').startswith('#')
    assert 'url(' not in html
    assert '@import' not in html


def test_hostile_names_are_only_names(tmp_path):
    pytest.importorskip('markdown_it')
    from markdown_it import MarkdownIt

    results = make_comparison(
        ('margin', 'ce'),
        (0,),
        classes=HOSTILE,
        command='<b>|',
        config='<i>.py',
    )
    samples = write_samples(tmp_path, results, n=1)
    html, markdown = report(tmp_path, results, samples)
    rendered = MarkdownIt('commonmark').enable('table').render(markdown)
    for text in (html, rendered):
        found = Elements(text).found
        tags = [tag for tag, _ in found]
        assert not {'script', 'b', 'i', 'em'} & set(tags)
        assert tags.count('table') == 6
        sources = [a['src'] for tag, a in found if tag == 'img']
        assert len(sources) == 5
        assert not any('example.org' in source for source in sources)
        assert '&lt;script&gt;alert(1)&lt;/script&gt;' in text
        assert '\x00' not in text
        assert '\x1b' not in text
    # Every row of a table has the cells that its header announces.
    for table in re.findall(r'(?:^\|.*\n)+', markdown, re.MULTILINE):
        rows = table.splitlines()
        bars = [len(re.findall(r'(?<!\\)\|', row)) for row in rows]
        assert len(set(bars)) == 1


def test_unfinished_comparison(tmp_path):
    skip = (('ce', 1), ('margin', 1))
    results = make_comparison(('margin', 'ce'), (0, 1), skip)
    for text in report(tmp_path, results):
        assert 'of 4 runs, 2 have no result' in text
        assert 'margin: seed 1; ce: seed 1' in text
        assert 'with a single seed' in text


def test_no_run_finished(tmp_path):
    html, _ = report(tmp_path, make_results([make_run('ce')]))
    assert 'No run has finished yet' in html
    assert 'No run has recorded any curves' in html
    assert 'There is no result of ce' in html


def test_classes_without_margins(tmp_path):
    """A class is absent, or the only one: dashes, and no picture of it."""
    absent = make_run('ce', class_counts=[5, 0, 7, 1, 1])
    _, markdown = report(tmp_path, make_results([absent]))
    assert '| shaft | 0 | 0.0000 | \u2013 | \u2013 |' in markdown
    assert 'for the default parameters' in markdown
    single = make_run('ce', class_counts=[5, 0, 0, 0, 0])
    _, markdown = report(tmp_path, make_results([single]))
    assert 'classes.png' not in markdown


def test_margins_are_those_of_the_objective(tmp_path):
    run = make_run('margin:tau=20')
    _, markdown = report(tmp_path, make_results([run]))
    rho = 20 * (sum(run.class_counts) - 912_000) ** 0.5 / 912_000
    assert f'| tissue | 912,000 | 91.2913 | {rho:.4g} |' in markdown
    assert 'of margin:tau=20 (tau = 20, upsilon = 1)' in markdown


def test_a_run_of_another_comparison(tmp_path):
    run = make_run('ce', class_iou=[1.0], metrics={'mIoU': 1.0})
    said = 'has the IoU of 1 classes and the comparison 5'
    with pytest.raises(ValueError, match=said):
        report(tmp_path, make_results([run]))


@pytest.mark.parametrize('text', ['{', '[]', '{"name": "ce"}', '\x00'])
def test_a_damaged_record_is_named(tmp_path, text):
    write_comparison(tmp_path, make_results([make_run('ce')]))
    path = run_folder(tmp_path, 'ce', 0) / 'record.json'
    path.write_text(text)
    with pytest.raises(SettingError, match=r'record\.json is damaged.*remove'):
        write_report(tmp_path)


@pytest.mark.parametrize(
    'name', ['n' * 300, '\u00fc' * 150, '..', '.', 'a/b', 'a\\b', '\ud800']
)
def test_any_name_has_a_folder_of_its_own(tmp_path, name):
    folder = run_folder(tmp_path, name, 0)
    assert folder.parents[1] == tmp_path / 'runs'
    assert folder != run_folder(tmp_path, f'{name}2', 0)
    folder.mkdir(parents=True)


def test_a_long_name_makes_a_report(tmp_path):
    name = f'long{"g" * 400}'
    runs = make_comparison(('margin', 'ce'), (0,)).runs
    runs.append(replace(runs[0], name=name))
    samples = write_samples(tmp_path, make_results(runs), n=1)
    html, _ = report(tmp_path, make_results(runs), samples)
    assert name in html
