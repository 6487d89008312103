"""Whole reports, of comparisons in every state."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from mmseg_margin.comparison.records import run_folder
from mmseg_margin.comparison.report import verdict, write_report
from mmseg_margin.comparison.results import load_results
from mmseg_margin.errors import SettingError
from tests.comparison.invented import (
    make_comparison,
    make_results,
    make_run,
    write_comparison,
    write_samples,
)

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
