"""Reports and summaries of comparisons in every state."""

import json
import re
from html.parser import HTMLParser

import pytest

from mmseg_margin.comparison.report import verdict, write_report
from mmseg_margin.comparison.runs import save_runs
from tests.commands import load_tool
from tests.comparison import invented
from tests.comparison.test_runs import MIOU

NAN = float('nan')
TITLES = (
    *('Results', 'IoU of each class', 'Curves', 'Examples'),
    *('Fitted offsets', 'Classes and margins', 'Cost', 'Settings'),
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


@pytest.mark.parametrize('case', SAID)
def test_what_is_said(case):
    miou, *fragments = SAID[case]
    text = verdict(invented.comparison_of(miou))
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
    invented.write_comparison(out, results)
    page = write_report(out, samples)
    assert page == out / 'report' / 'index.html'
    markdown = page.with_name('report.md')
    return page.read_text('utf-8'), markdown.read_text('utf-8')


def summarise(*arguments):
    load_tool('summarise')['main']([str(each) for each in arguments])


def test_complete_report(tmp_path):
    results = invented.fit(invented.make_comparison())
    samples = invented.write_samples(tmp_path, results, n=2)
    html, markdown = report(tmp_path, results, samples)
    for text in (html, markdown):
        assert 'provisional' not in text
        assert [title for title in TITLES if title not in text] == []
        assert 'margin has the highest mean mIoU' in text
        assert 'MarginCalibrationLoss' in text
        assert results.runs[0].command in text
    assert (tmp_path / 'report' / 'results.json').stat().st_size < 20_000
    files = re.findall(r'!\[.*\]\((.*)\)', markdown)
    assert len(files) == len(set(files)) == 7
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

    hostile = {'classes': HOSTILE, 'command': '<b>|', 'config': '<i>.py'}
    long = f'margin:tau=1.{"0" * 400}'
    results = invented.make_comparison((long, 'ce'), (0,), **hostile)
    samples = invented.write_samples(tmp_path, results, n=1)
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
        assert long in text.replace('<wbr>', '')
        assert '\x00' not in text
        assert '\x1b' not in text
    # Every row of a table has the cells that its header announces.
    for table in re.findall(r'(?:^\|.*\n)+', markdown, re.MULTILINE):
        rows = table.splitlines()
        bars = [len(re.findall(r'(?<!\\)\|', row)) for row in rows]
        assert len(set(bars)) == 1


def test_unfinished_comparison(tmp_path):
    skip = (('ce', 1), ('margin', 1))
    results = invented.make_comparison(('margin', 'ce'), (0, 1), skip)
    for text in report(tmp_path, results):
        assert 'of 4 runs, 2 have no result' in text
        assert 'margin (seed 1), ce (seed 1)' in text
        assert 'with a single seed' in text


def test_no_run_finished(tmp_path):
    html, _ = report(tmp_path, invented.comparison_of({'ce': [None]}))
    assert 'No run has recorded any curves' in html
    assert 'There is no result of ce' in html
    summarise(tmp_path, '--out', tmp_path / 'summary')
    summary = (tmp_path / 'summary' / 'index.html').read_text('utf-8')
    for text in (html, summary):
        assert 'No run has finished yet' in text


@pytest.fixture
def places(tmp_path):
    """Folders, but the last as one file, as it is kept beside a report."""
    for label, miou in MIOU.items():
        results = invented.fit(invented.comparison_of(miou))
        invented.write_comparison(tmp_path / label, results)
    file = tmp_path / label / 'results.json'
    save_runs(results.runs, file)
    folders = [f'{key}={tmp_path / key}' for key in MIOU]
    return [*folders[:-1], f'{label}={file}']


def test_summary(places, tmp_path, capsys):
    out = tmp_path / 'summary'
    summarise(*places, '--out', out)
    assert f'The summary is {out / "index.html"}' in capsys.readouterr().out
    text = (out / 'report.md').read_text('utf-8')
    assert (
        'Over 3 comparisons the best average rank is that of lovasz (1.33, '
        '+1.67 to ce in the mean' in text
    )
    assert '> long/a lacks ce (seed 1), margin.' in text
    for picture in ('summary.png', 'offsets.png'):
        assert f']({picture})' in text
        assert (out / picture).read_bytes().startswith(b'\x89PNG')
    assert len((out / 'summary.csv').read_text().splitlines()) == 16
    figures = json.loads((out / 'summary.json').read_text())
    assert [*figures] == ['lovasz', 'margin', 'ce']


@pytest.mark.parametrize(
    ('second', 'said'),
    [
        ('other={0}', 'short/a is given twice: leave one out.'),
        ('{0}/report', 'report is given twice'),
        ('short/a={1}', "Two comparisons are called 'short/a': write LABEL="),
        ('nowhere', 'nowhere holds no comparison: give the --out folder'),
    ],
)
def test_what_cannot_be_summed_up(places, capsys, second, said):
    folders = [place.rpartition('=')[2] for place in places]
    with pytest.raises(SystemExit):
        summarise(places[0], second.format(*folders))
    assert said in capsys.readouterr().err
