"""Every recipe loads, builds, trains a step and has three test modes."""

import json
from functools import lru_cache

import pytest
import torch
from mmengine.runner import Runner
from mmseg.registry import DATASETS, MODELS

from mmseg_margin.evaluation.tta import use_tta
from mmseg_margin.losses.objectives import OBJECTIVES
from mmseg_margin.losses.swap import set_objective
from tests.configs.reduced import (
    CONFIGS,
    ROOT,
    build_runner,
    one_of_each,
    read_config,
    reduced_config,
)

VIEWS = {'none': 1, 'flip': 2, 'ms-flip': 12}
COPLENET = ROOT / 'configs/paper' / 'coplenet_ce_1xb6-10k_endovis-768x768.py'
every_config = pytest.mark.parametrize(
    'path', CONFIGS, ids=[path.stem for path in CONFIGS]
)
one_of_each_kind = pytest.mark.parametrize(
    'path', one_of_each(), ids=lambda path: path.stem
)


@lru_cache
def assert_builds(settings: str) -> None:
    """Build a model at its full size, without memory for its weights."""
    with torch.device('meta'):
        MODELS.build(json.loads(settings))


def assert_learns(runner: Runner) -> None:
    """Train; the loss must be finite and every part must change."""
    before = {
        name: parameter.detach().clone()
        for name, parameter in runner.model.named_parameters()
    }
    runner.train()
    loss = runner.message_hub.get_scalar('train/loss').current()
    assert torch.isfinite(torch.tensor(loss))
    changed = {
        name.partition('.')[0]
        for name, parameter in runner.model.named_parameters()
        if not torch.equal(parameter, before[name])
    }
    assert changed == {name.partition('.')[0] for name in before}


def test_there_are_recipes_for_every_data_set():
    folders = {path.parent.name for path in CONFIGS}
    assert folders >= {
        'ade20k',
        'camvid',
        'cityscapes',
        'demo',
        'light',
        'mapillary',
        'paper',
        'voc12aug',
    }


@every_config
def test_full_size_model_fits_its_data(path, data_roots):
    model = dict(read_config(path).model, pretrained=None)
    dataset = reduced_config(path, data_roots).val_dataloader.dataset
    classes = DATASETS.build(dataset).metainfo['classes']
    for name in ('decode_head', 'auxiliary_head'):
        if head := model.get(name):
            assert head['num_classes'] == len(classes)
            # Models that differ only in these settings are built once.
            plain = dict(type='CrossEntropyLoss')
            model[name] = dict(head, num_classes=2, loss_decode=plain)
    model.pop('data_preprocessor')
    assert_builds(json.dumps(model, sort_keys=True))


@one_of_each_kind
def test_one_optimisation_step(path, data_roots, tmp_path):
    cfg = reduced_config(path, data_roots)
    cfg.load_from = None
    cfg.train_cfg.max_iters = 1
    runner = build_runner(cfg, tmp_path, validate=False)
    assert_learns(runner)


# The ablation's network with the objectives of its table, and weighted CE.
@pytest.mark.parametrize('loss', OBJECTIVES)
def test_one_optimisation_step_with_every_objective(
    loss, data_roots, tmp_path
):
    cfg = reduced_config(COPLENET, data_roots)
    cfg.train_cfg.max_iters = 1
    set_objective(cfg, loss)
    assert_learns(build_runner(cfg, tmp_path, validate=False))


@one_of_each_kind
def test_number_of_views_in_each_test_mode(path, data_roots):
    for mode, views in VIEWS.items():
        cfg = reduced_config(path, data_roots)
        if mode != 'none':
            use_tta(cfg, mode)
        inputs = DATASETS.build(cfg.test_dataloader.dataset)[0]['inputs']
        found = len(inputs) if isinstance(inputs, list) else 1
        if 'instrument-parts' in path.stem and mode == 'ms-flip':
            views = 6  # three scales are enough for small pictures
        assert found == views


@every_config
def test_recipes_stay_short(path):
    assert len(path.read_text().splitlines()) <= 15, path.relative_to(ROOT)
