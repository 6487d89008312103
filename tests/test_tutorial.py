"""The tutorial: its code runs from top to bottom, and its outputs are kept."""

import json
from pathlib import Path

from tests.commands import output_of_python

DOCS = Path(__file__).parents[1] / 'docs'
NOTEBOOK = json.loads((DOCS / 'tutorial.ipynb').read_text('utf-8'))
CELLS = [cell for cell in NOTEBOOK['cells'] if cell['cell_type'] == 'code']


def test_the_code_runs_from_top_to_bottom(tmp_path):
    script = tmp_path / 'tutorial.py'
    code = '\n\n'.join(''.join(cell['source']) for cell in CELLS)
    script.write_text(code, 'utf-8')
    output = output_of_python(
        DOCS, script, MPLBACKEND='Agg', TMPDIR=str(tmp_path)
    )
    table = output[output.index('IoU, %') :].splitlines()
    means = [float(row.split()[-1]) for row in table[1:3]]
    assert all(20 < mean < 100 for mean in means), table


def test_it_is_committed_with_outputs_and_pictures():
    counts = [cell['execution_count'] for cell in CELLS]
    assert counts == [*range(1, len(CELLS) + 1)]
    outputs = [output for cell in CELLS for output in cell['outputs']]
    assert not [o for o in outputs if o['output_type'] == 'error']
    assert sum('image/png' in o.get('data', {}) for o in outputs) == 3
