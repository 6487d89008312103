"""tools/benchmark.py as users call it."""

from tests.commands import TOOLS, call, run_python


def test_losses_by_the_names_of_their_objectives(tmp_path):
    """And without the lines of torch's profiler."""
    flags = ['--shapes', '1x3x8x8', '--repeats', 1, '--losses', 'margin']
    tool = TOOLS / 'benchmark.py'
    code, said = run_python(tmp_path, tool, 'loss', *flags)
    assert code == 0, said
    assert 'USDT' not in said
    row = next(line for line in said.splitlines() if '│ margin │' in line)
    assert float(row.split('│')[2]) > 0, row


def test_a_wrong_shape_gets_a_sentence(capsys, monkeypatch):
    monkeypatch.syspath_prepend(str(TOOLS))
    code, said = call(capsys, 'benchmark', 'stage', '--shapes', '1x3x8x8')
    assert code == 1
    assert "error: '1x3x8x8' is not a shape NxKxHxWxS." in said
