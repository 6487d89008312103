"""tools/benchmark.py as users call it."""

from tests.commands import TOOLS, call, output_of_python


def test_stages_by_the_names_of_their_objectives(tmp_path):
    """And without the lines of torch's profiler."""
    flags = ['--shapes', '1x3x8x8x2', '--repeats', 1]
    flags += ['--losses', 'margin', 'jaccard, eager, fused']
    tool = TOOLS / 'benchmark.py'
    said = output_of_python(tmp_path, tool, 'stage', *flags)
    assert 'USDT' not in said
    for name in ('ce', 'margin', 'jaccard, eager, fused'):
        (row,) = (x for x in said.splitlines() if x.startswith(f'│ {name} '))
        assert float(row.split('│')[2]) > 0, row


def test_mistakes_get_a_sentence(capsys, monkeypatch):
    monkeypatch.syspath_prepend(str(TOOLS))
    for flags, key_word in (
        (('--shapes', '1x3x8x8'), 'NxKxHxWxS'),
        (('--shapes', '1x3x8x8x2', '--losses', 'jacard'), 'jaccard?'),
    ):
        code, said = call(capsys, 'benchmark', 'stage', *flags)
        assert code == 1
        assert key_word in said
