"""Importing the package registers, and changes nothing else."""

import json
from pathlib import Path

from mmengine.config import Config
from mmengine.registry import MODELS
from mmseg.registry import HOOKS, METRICS

from tests.commands import output_of_python

ROOT = Path(__file__).parents[1]
RECIPE = next((ROOT / 'configs' / 'cityscapes').glob('*_r50*_margin_*.py'))
DEMO = next((ROOT / 'configs' / 'demo').glob('*_margin_*.py'))
STATE = """
import json, os, sys, matplotlib, torch
import mmseg.datasets, mmseg.engine, mmseg.evaluation, mmseg.models
from mmengine.config import Config, utils
from mmengine.fileio.backends import registry_utils
from mmengine.hooks import CheckpointHook
from mmengine.runner import CheckpointLoader

def state():
    return {
        'backends': str(registry_utils.backends),
        'prefixes': str(registry_utils.prefix_to_backends),
        'schemes': str(CheckpointLoader._schemes),
        'hook': str(vars(CheckpointHook)),
        'bases': str(utils.MODULE2PACKAGE) + str(Config._get_cfg_path),
        'safe': str(torch.serialization.get_safe_globals()),
        'matplotlib': matplotlib.get_backend(auto_select=False),
        'environment': dict(os.environ),
    }

states = [state()]
for name in ('mmseg_margin', 'mmseg_margin.patches'):
    __import__(name)
    states.append(state())
modules = [name for name in sys.modules if name.startswith(
    ('matplotlib.figure', 'matplotlib.pyplot', 'optuna', 'torch._dynamo',
     'mmseg_margin.tuning', 'mmseg_margin.tooling', 'mmseg_margin.report'))]
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


def test_all_names_are_registered():
    for name in ('SwapLossHook', 'ClassStatsHook', 'ExactResumeHook'):
        assert HOOKS.get(name).__module__.startswith('mmseg_margin')
    for name in ('TailIoUMetric', 'MarginBoundMetric'):
        assert METRICS.get(name).__module__.startswith('mmseg_margin')


def test_configs_inherit_from_ours(tmp_path):
    """And their types are found in the registries of mmseg."""
    path = tmp_path / 'mine.py'
    path.write_text(f"_base_ = 'mmseg_margin::demo/{DEMO.name}'\n")
    model = Config.fromfile(path).model
    assert MODELS.build(model).decode_head.num_classes == 5
    assert model.pop('_scope_') == 'mmseg'
    assert model == Config.fromfile(DEMO).model


def test_configs_inherit_from_an_installed_package(tmp_path, installed):
    """By the former name of the patches, which dumped configs import."""
    (tmp_path / 'mine.py').write_text(
        f"_base_ = 'mmseg_margin::cityscapes/{RECIPE.name}'\n"
    )
    program = """
from mmengine.config import Config
import mmseg_margin.safe_checkpoints
print(mmseg_margin.__file__, Config.fromfile('mine.py').model.type)
"""
    said = run(tmp_path, program, PYTHONPATH=str(installed))
    place = installed / 'mmseg_margin' / '__init__.py'
    assert said == f'{place} EncoderDecoder'
