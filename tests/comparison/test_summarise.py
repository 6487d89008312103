"""docs/results/summarise.py gives the numbers that the page shows."""

import json
from pathlib import Path

import pytest

from tests.commands import output_of_python

FOLDER = Path(__file__).parents[2] / 'docs' / 'results'
PROGRAM = FOLDER / 'summarise.py'
DATA = {
    '600': ['camvid', 'steel', 'clothing', 'instrument'],
    '2400': ['camvid', 'steel'],
}


@pytest.mark.parametrize('schedule', DATA)
def test_the_tables_of_the_page(schedule, tmp_path):
    flags = [schedule, *DATA[schedule], '--draw', tmp_path]
    said = output_of_python(FOLDER, PROGRAM, *flags)
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


def test_further_records(tmp_path):
    """They add seeds and objectives, and replace runs that were there."""
    record = json.loads((FOLDER / 'light' / '600-steel.json').read_text())
    (run,) = (r for r in record['runs'] if (r['name'], r['seed']) == ('ce', 0))
    runs = [
        {**run, 'name': name, 'seed': seed, 'metrics': metrics}
        for name, seed, metrics in (
            ('ce', 0, {'mIoU': 10.0}),
            ('ce', 1, {'mIoU': 20.0}),
            ('ce', 2, {'mIoU': 30.0}),
            ('new', 2, {'mIoU': 33.0}),
            ('new', 3, {}),  # has not finished
        )
    ]
    path = tmp_path / 'results.json'
    path.write_text(json.dumps({**record, 'runs': runs}))
    flags = ['600', 'steel', f'steel={path}']
    said = output_of_python(tmp_path, PROGRAM, *flags)
    rows = [line.split(' | ') for line in said.splitlines()]
    cells = {row[0].strip('| '): row for row in reversed(rows)}
    assert cells['ce'][-1].rstrip(' |') == '20.00 \u00b1 10.00'
    assert cells['new'][2] == '+3.00'
    flags = ['600', 'camvid', f'camvid={path}']
    said = output_of_python(tmp_path, PROGRAM, *flags, code=1)
    assert 'class_counts' in said
