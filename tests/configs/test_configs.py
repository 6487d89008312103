"""Every recipe loads, builds, trains a step and has three test modes."""

import json
import math
from functools import lru_cache

import pytest
import torch
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


@lru_cache
def assert_builds(settings: str) -> None:
    """Build a model at its full size, without memory for its weights."""
    with torch.device('meta'):
        MODELS.build(json.loads(settings))


@pytest.mark.parametrize('path', CONFIGS, ids=lambda path: path.stem)
def test_a_recipe_is_short_and_its_full_size_model_fits_its_data(
    path, data_roots
):
    assert len(path.read_text().splitlines()) <= 15
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


# Each kind with its own loss, and the ablation's network with all others.
@pytest.mark.parametrize(
    ('path', 'loss'),
    [
        *((path, None) for path in one_of_each()),
        *((COPLENET, loss) for loss in OBJECTIVES),
    ],
    ids=lambda value: getattr(value, 'stem', value),
)
def test_one_optimisation_step(path, loss, data_roots, tmp_path):
    """The loss must be finite and every part must change."""
    cfg = reduced_config(path, data_roots)
    cfg.load_from = None
    cfg.train_cfg.max_iters = 1
    if loss:
        set_objective(cfg, loss)
    runner = build_runner(cfg, tmp_path, validate=False)
    before = {
        name: parameter.detach().clone()
        for name, parameter in runner.model.named_parameters()
    }
    runner.train()
    assert math.isfinite(runner.message_hub.get_scalar('train/loss').current())
    changed = {
        name.partition('.')[0]
        for name, parameter in runner.model.named_parameters()
        if not torch.equal(parameter, before[name])
    }
    assert changed == {name.partition('.')[0] for name in before}


@pytest.mark.parametrize('path', one_of_each(), ids=lambda path: path.stem)
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
