"""Importing the package registers, and changes nothing else."""

import json
import shutil
from pathlib import Path

import pytest

from tests.commands import output_of_python

ROOT = Path(__file__).parents[1]
STATE = """
import json, os, sys, matplotlib, torch
import mmseg.datasets, mmseg.engine, mmseg.evaluation, mmseg.models
from mmengine.config import Config, utils
from mmcv.transforms import LoadImageFromFile
from mmengine.runner import CheckpointLoader

def state():
    return {
        'loader': str(vars(CheckpointLoader)),
        'images': str(vars(LoadImageFromFile)),
        'bases': str(utils.MODULE2PACKAGE) + str(Config._get_cfg_path),
        'safe': str(torch.serialization.get_safe_globals()),
        'matplotlib': matplotlib.get_backend(auto_select=False),
        'environment': dict(os.environ),
    }

states = [state()]
import mmseg_margin
states.append(state())
from mmseg_margin.compat import apply_patches
apply_patches()
states.append(state())
modules = [name for name in sys.modules if name.startswith(
    ('matplotlib.figure', 'matplotlib.pyplot', 'torch._dynamo',
     'mmseg_margin.tooling', 'mmseg_margin.pictures'))]
print(json.dumps([*states, modules]))
"""


def run(folder: Path, program: str, **environment: str) -> str:
    """The last line that a program prints."""
    arguments = ['-W', 'ignore', '-c', program]
    said = output_of_python(folder, *arguments, **environment)
    return said.splitlines()[-1]


def test_nothing_is_changed_by_an_import(tmp_path):
    said = run(tmp_path, STATE, TORCH_FORCE_WEIGHTS_ONLY_LOAD='')
    before, imported, safe, modules = json.loads(said)
    assert imported == before
    assert modules == []
    unchanged = ('matplotlib', 'environment')
    assert {key for key in safe if safe[key] == before[key]} == {*unchanged}


WITHOUT_MMSEG = """
import sys
sys.modules.update(dict.fromkeys(('mmseg', 'mmcv', 'mmengine')))
from mmseg_margin import functional
import mmseg_margin
try:
    mmseg_margin.JaccardLoss
except ImportError as error:
    print(functional.margin_offsets.__name__, error)
"""


def test_without_mmseg_only_the_functions_work(tmp_path):
    said = run(tmp_path, WITHOUT_MMSEG, PYTHONPATH=str(ROOT))
    assert said.startswith('margin_offsets')
    assert 'pip install' in said


@pytest.mark.parametrize(
    ('script', 'is_registered'), [('mine.py', True), ('tools/train.py', False)]
)
def test_only_our_tools_register_later(tmp_path, script, is_registered):
    """And a name that is asked for registers everything."""
    path = tmp_path / 'clone' / script
    shutil.copytree(ROOT / 'mmseg_margin', tmp_path / 'clone/mmseg_margin')
    path.parent.mkdir(exist_ok=True)
    path.write_text(
        'import mmseg_margin, sys\n'
        "print('mmseg_margin.hooks' in sys.modules)\n"
        'mmseg_margin.SwapLossHook\n'
        'from mmseg.registry import HOOKS\n'
        "print(HOOKS.get('ClassStatsHook').__name__)\n"
    )
    place = str(tmp_path / 'clone')
    said = output_of_python(tmp_path, '-W', 'ignore', path, PYTHONPATH=place)
    assert said.split() == [str(is_registered), 'ClassStatsHook']
