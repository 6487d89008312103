"""Run the converters as users do."""

import runpy
import sys

import pytest

from tests.commands import TOOLS


@pytest.fixture
def convert(monkeypatch, capsys):
    """Run a converter as the main program; returns exit code and output."""

    def run(name, source, target):
        path = str(TOOLS / 'converters' / f'{name}.py')
        monkeypatch.setattr(sys, 'argv', [path, str(source), str(target)])
        capsys.readouterr()
        code = 0
        try:
            runpy.run_path(path, run_name='__main__')
        except SystemExit as stop:
            code = stop.code
        captured = capsys.readouterr()
        return code, captured.out + captured.err

    return run
