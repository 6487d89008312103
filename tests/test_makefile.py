"""make in a copy, with an interpreter that only records its calls."""

import shutil
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
    assert not wheels.exists()
    calls = make(clone, 'install', 'STACK=openmmlab', home=str(home))
    assert (
        f'default: -m pip wheel --quiet --no-deps --no-build-isolation -w '
        f'{wheels} mmcv==2.1.0' in calls
    )
    assert wheels.is_dir()


def test_a_home_that_cannot_be_written(clone):
    for stack, venv in (('onedl', '.venv'), ('openmmlab', '.venv-openmmlab')):
        calls = make(clone, 'install', f'STACK={stack}', home='/dev/null/me')
        assert calls[-1].startswith(f'{clone}/{venv}/cache: -m pip install')
    assert (clone / venv / 'cache' / 'mmseg_margin' / 'wheels').is_dir()


def test_clean_removes_what_make_has_built(clone, tmp_path):
    built = (
        '.venv/bin/python',
        'build/lib/x.py',
        'mmseg_margin.egg-info/PKG-INFO',
        'data/instrument_parts/images/train/00000.png',
        'data/instrument_parts/labels/train/00000.png',
        'data/instrument_parts/settings.json',
        'work_dirs/demo-onedl/jaccard/iter_300.pth',
        'work_dirs/demo-openmmlab/mosaic.png',
    )
    mine = (
        'data/cityscapes/gtFine/a.png',
        'data/instrument_parts/notes.txt',
        'data/list.txt',
        'work_dirs/demo-of-mine/iter_80000.pth',
        'work_dirs/deeplabv3plus/iter_80000.pth',
        'mine.egg-info/PKG-INFO',
    )
    for name in (*built, *mine):
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
        (clone / name).write_text(name)
    make(clone, 'clean', home=str(tmp_path))
    assert [name for name in built if (clone / name).exists()] == []
    assert [name for name in mine if not (clone / name).exists()] == []
    # Not made by the generator.
    shutil.rmtree(clone / 'data' / 'instrument_parts')
    (clone / built[3]).parent.mkdir(parents=True)
    (clone / built[3]).write_text('mine')
    make(clone, 'clean', home=str(tmp_path))
    assert (clone / built[3]).read_text() == 'mine'
