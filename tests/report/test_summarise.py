"""docs/results/summarise.py gives the numbers that the page shows."""

from pathlib import Path

import pytest

from tests.commands import output_of_python

FOLDER = Path(__file__).parents[2] / 'docs' / 'results'
DATA = {
    '600': ['camvid', 'steel', 'clothing', 'instrument'],
    '2400': ['camvid', 'steel'],
}


@pytest.mark.parametrize('schedule', DATA)
def test_the_tables_of_the_page(schedule, tmp_path):
    program = FOLDER / 'summarise.py'
    flags = [schedule, *DATA[schedule], '--draw', tmp_path]
    said = output_of_python(FOLDER, program, *flags)
    page = (FOLDER / 'README.md').read_text('utf-8')
    section = page.partition(f'\n## {int(schedule):,} iterations')[2]
    shown = [
        cell.strip(' *')
        for line in section.partition('\n## ')[0].splitlines()
        if line.startswith('| ') and '\u00b1' in line
        for cell in line.replace('\\', '').strip('|').split('|')[1:]
    ]
    assert len(shown) > 30
    found = {c.strip(' *') for c in said.replace('\n', '|').split('|')}
    assert [cell for cell in shown if cell not in found] == []
    for name in ('summary.png', 'offsets.png'):
        assert (tmp_path / name).read_bytes().startswith(b'\x89PNG')
