"""Stage two starts from the checkpoint of stage one, cross-entropy."""

import copy
import re
from pathlib import Path

import pytest
import torch
from mmengine.config import Config
from mmengine.hooks import Hook
from mmengine.hub import get_config
from mmengine.runner import Runner, load_checkpoint
from torch import Tensor

from mmseg_margin.heads import heads_of_config
from tests.configs.reduced import (
    CONFIGS,
    ROOT,
    build_runner,
    read_config,
    reduced_config,
)
from tests.small_training import same_weights

FINE_TUNED = sorted((ROOT / 'configs' / 'paper').glob('*_margin_*.py'))
UPSTREAM_RECIPES = [
    path
    for path in CONFIGS
    if path.parent.name not in ('light', 'paper', 'camvid')
]
TUNED = 'deeplabv3plus_seresnext50-d8_margin_1xb8-40k_cityscapes-800x800'
State = dict[str, Tensor]


class KeepInitialState(Hook):
    """Keeps a copy of the weights before the first iteration."""

    def before_train_iter(self, runner, batch_idx, data_batch=None):
        if runner.iter == 0:
            weights = runner.model.state_dict()
            self.state = {k: v.clone() for k, v in weights.items()}


def without_losses(cfg: Config) -> dict:
    model = copy.deepcopy(cfg.model)
    model.pop('_scope_', None)  # names the package of the base config
    for head in heads_of_config(model).values():
        head.pop('loss_decode')
    return model


def stage_one(path: Path) -> Path:
    return path.with_name(path.name.replace('_margin_', '_ce_'))


def run_stage(path: Path, data_roots) -> tuple[Runner, State]:
    """Two iterations with validation, in the work_dirs of this folder."""
    cfg = reduced_config(path, data_roots)
    cfg.train_cfg.update(max_iters=2, val_interval=2)
    runner = build_runner(cfg, Path('work_dirs', path.stem), validate=True)
    keep = KeepInitialState()
    runner.register_hook(keep)
    runner.train()
    return runner, keep.state


@pytest.mark.parametrize('path', FINE_TUNED, ids=lambda path: path.stem)
def test_stage_two_differs_in_loss_and_start_only(path):
    first, second = read_config(stage_one(path)), read_config(path)
    differing = {key for key in second if second[key] != first.get(key, None)}
    assert differing == {'model', 'load_from'}
    folder = Path('work_dirs', stage_one(path).stem)
    assert Path(second.load_from) == folder / 'best_mIoU_checkpoint.pth'
    assert without_losses(second) == without_losses(first)


def test_stage_two_starts_from_stage_one(data_roots, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = ROOT / 'configs' / 'paper' / f'{TUNED}.py'
    runner, _ = run_stage(stage_one(path), data_roots)
    checkpoint = torch.load(read_config(path).load_from, weights_only=False)
    best = checkpoint['state_dict']
    assert best.keys() == runner.model.state_dict().keys()

    tuned, start = run_stage(path, data_roots)
    assert same_weights(start, best)
    assert not same_weights(tuned.model.state_dict(), best)

    # The checkpoint of stage two can be loaded into the model of stage one.
    last = f'work_dirs/{TUNED}/iter_2.pth'
    load_checkpoint(runner.model, last, map_location='cpu', strict=True)


@pytest.mark.parametrize('path', UPSTREAM_RECIPES, ids=lambda path: path.stem)
def test_only_the_loss_differs_from_upstream(path):
    name = re.sub('(margin|jaccard)_', '', path.name)
    # One of upstream's file names is misspelt.
    name = name.replace('mapillary', 'mapillay')
    upstream = get_config(f'mmseg::deeplabv3plus/{name}')
    assert without_losses(read_config(path)) == without_losses(upstream)
