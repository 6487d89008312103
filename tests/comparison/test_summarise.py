"""docs/results/summarise.py gives the numbers that the pages show."""

from pathlib import Path

import pytest

from tests.commands import output_of_python

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / 'docs' / 'results'


@pytest.fixture(scope='module')
def said(tmp_path_factory):
    folder = tmp_path_factory.mktemp('pictures')
    code = (
        'from pathlib import Path; import summarise; '
        f'summarise.main(Path({str(folder)!r}))'
    )
    said = output_of_python(FOLDER, '-c', code)
    for name in ('lengths.png', 'offsets.png'):
        assert (folder / name).read_bytes().startswith(b'\x89PNG')
    return said


def cells(line):
    return [cell.strip(' *') for cell in line.strip().strip('|').split('|')]


def test_the_tables_of_the_page(said):
    """Every row with a deviation or an interval is one of the script's."""
    printed = [cells(line) for line in said.splitlines()]
    page = (FOLDER / 'README.md').read_text('utf-8').splitlines()
    shown = [cells(x) for x in page if x.startswith('| ')]
    shown = [row for row in shown if '\u00b1' in row[-1] or '[' in row[-1]]
    assert len(shown) > 25
    assert [row for row in shown if row not in printed] == []


@pytest.mark.parametrize(('column', 'schedule'), [(2, '600'), (3, '2400')])
def test_the_table_of_the_readme(said, column, schedule):
    """The mean of the most seeds that an objective was trained with."""
    means = {}
    for section in said.split('\n## '):
        if section.startswith(f'{schedule}: mIoU, '):
            for name, mean, *_ in map(cells, section.splitlines()[4:]):
                means.setdefault(name, mean)
    readme = (ROOT / 'README.md').read_text('utf-8')
    rows = [cells(x) for x in readme.splitlines() if x.startswith('| ')]
    table = {row[0].strip('`'): row[column] for row in rows if len(row) == 4}
    table.pop('--loss')
    assert len(table) == 6
    for name, mean in table.items():
        assert float(mean) == pytest.approx(float(means[name]), abs=0.056)
