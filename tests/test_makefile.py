"""make in a copy, with an interpreter that only records its calls."""

from pathlib import Path

import pytest

from tests.commands import run

ROOT = Path(__file__).parents[1]
# ``python -m venv DIR`` puts it there as well; anything else is written down.
INTERPRETER = """#!/usr/bin/env bash
if [ "$2" = venv ]; then
  mkdir -p "$3/bin" && cp "$0" "$3/bin/python"
else
  echo "${XDG_CACHE_HOME:-default}: $*" >> calls.txt
fi
"""


@pytest.fixture
def clone(tmp_path) -> Path:
    """A clone in a folder with spaces in its name."""
    folder = tmp_path / 'my own clone'
    folder.mkdir()
    for name in ('Makefile', 'setup.py', 'requirements', 'configs'):
        (folder / name).symlink_to(ROOT / name)
    python = folder / 'python'
    python.write_text(INTERPRETER)
    python.chmod(0o755)
    return folder


def make(clone: Path, *arguments: str, home: str) -> list[str]:
    """The recorded calls of the interpreter."""
    # An outer make would pass its flags and its STACK on.
    unset = ('XDG_CACHE_HOME', 'MAKEFLAGS', 'STACK')
    clean = ['env', *(f'--unset={name}' for name in unset)]
    command = [*clean, 'make', *arguments]
    code, said = run(command, clone, HOME=home, PYTHON='./python')
    assert code == 0, said
    calls = clone / 'calls.txt'
    return calls.read_text().splitlines() if calls.exists() else []


def test_spaces_in_paths(clone, tmp_path, monkeypatch):
    monkeypatch.setenv('STACK', 'openmmlab')  # of an outer make
    home = tmp_path / 'my home'
    home.mkdir()
    calls = make(clone, 'install', home=str(home))
    assert calls == [
        f'default: -m pip install --quiet {what}'
        for what in ('-r requirements/onedl.txt', '--no-deps -e .')
    ]
    calls = make(clone, 'demo', home=str(home))
    trained = [call for call in calls if ' train configs/light/' in call]
    losses = {call.split()[-1] for call in trained}
    assert losses == {'jaccard', 'margin'}
    assert calls[-1].endswith('--out work_dirs/demo-onedl/mosaic.png')
    wheels = home / '.cache' / 'mmseg_margin' / 'wheels'
    calls = make(clone, 'install', 'STACK=openmmlab', home=str(home))
    assert (
        f'default: -m pip wheel --quiet --no-deps --no-build-isolation -w '
        f'{wheels} mmcv==2.1.0' in calls
    )
    assert wheels.is_dir()
