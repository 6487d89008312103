"""The notebooks: their code runs, and the tutorial's outputs are kept."""

import json
from pathlib import Path

from tests.commands import output_of_python

DOCS = Path(__file__).parents[1] / 'docs'


def code_cells(name: str) -> list[dict]:
    notebook = json.loads((DOCS / name).read_text('utf-8'))
    return [cell for cell in notebook['cells'] if cell['cell_type'] == 'code']


def run_cells(name: str, folder: Path) -> str:
    """What the code of a notebook prints, run from top to bottom."""
    cells = [''.join(cell['source']) for cell in code_cells(name)]
    assert "'pip', 'install'" in cells[0]
    script = folder / 'cells.py'
    script.write_text('\n\n'.join(cells), 'utf-8')
    return output_of_python(
        folder, script, MPLBACKEND='Agg', TMPDIR=str(folder)
    )


def test_tutorial(tmp_path):
    output = run_cells('tutorial.ipynb', tmp_path)
    table = output[output.index('IoU, %') :].splitlines()
    means = [float(row.split()[-1]) for row in table[1:3]]
    # A network that predicts the background only has 18.
    assert all(15 < mean < 100 for mean in means), table


def test_gpu_check(tmp_path):
    """Ends with the block to paste, with and without a GPU."""
    block = run_cells('gpu_check.ipynb', tmp_path).split('```')[-2]
    assert block.startswith('\nGPU')
    assert 'jaccard' in block
    assert 'Traceback' not in block


def test_the_tutorial_is_committed_with_outputs_and_pictures():
    cells = code_cells('tutorial.ipynb')
    counts = [cell['execution_count'] for cell in cells]
    assert counts == [*range(1, len(cells) + 1)]
    outputs = [output for cell in cells for output in cell['outputs']]
    assert not [o for o in outputs if o['output_type'] == 'error']
    assert sum('image/png' in o.get('data', {}) for o in outputs) == 3
