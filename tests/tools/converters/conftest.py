"""The converters as users call them."""

import runpy
import sys

import pytest

from tests.commands import TOOLS


@pytest.fixture
def convert(monkeypatch, capsys):
    """Run a converter's file as the main program: its code and its words."""

    def run(name, source, target):
        path = str(TOOLS / 'converters' / f'{name}.py')
        monkeypatch.setattr(sys, 'argv', [path, str(source), str(target)])
        capsys.readouterr()
        code = 0
        try:
            runpy.run_path(path, run_name='__main__')
        except SystemExit as stop:
            code = stop.code
        said = capsys.readouterr()
        return code, said.out + said.err

    return run
