"""Progress: a rewritten line in a terminal, a few lines in a file."""

import io
import sys

import pytest
from mmseg_margin.tooling.progress import PARTS, Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_few_lines_in_a_file(capsys):
    progress = Progress('iteration', 1000, done=400)
    for done in range(401, 1001):
        progress.step(done, lambda: ', loss 1')
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == PARTS * 600 // 1000
    assert lines[-1] == 'iteration 1000/1000, 0:00:00 left, loss 1'


@pytest.mark.parametrize('total', [1, 3])
def test_one_line_in_a_terminal(monkeypatch, total):
    screen = Terminal()
    monkeypatch.setattr(sys, 'stdout', screen)
    progress = Progress('batch', total)
    for done in range(total):
        progress.step(done + 1)
    assert screen.getvalue().count('\n') == 1
    assert screen.getvalue().endswith(f'batch {total}/{total}, 0:00:00 left\n')
