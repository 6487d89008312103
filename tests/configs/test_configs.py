"""Every recipe loads, builds, trains a step and can be tested three ways."""

import pytest
import torch
from mmseg.registry import DATASETS, MODELS

from mmseg_margin.evaluation.tta import use_tta
from tests.configs.reduced import (
    CONFIGS,
    ROOT,
    build_runner,
    read_config,
    reduced_config,
)

VIEWS = {'none': 1, 'flip': 2, 'ms-flip': 12}
every_config = pytest.mark.parametrize(
    'path', CONFIGS, ids=[path.stem for path in CONFIGS]
)


def test_there_are_recipes_for_every_data_set():
    folders = {path.parent.name for path in CONFIGS}
    assert folders >= {
        'ade20k',
        'camvid',
        'cityscapes',
        'demo',
        'mapillary',
        'paper',
        'voc12aug',
    }


@every_config
def test_full_size_model_fits_its_data(path, data_roots):
    settings = dict(read_config(path).model, pretrained=None)
    with torch.device('meta'):
        model = MODELS.build(settings)
    dataset = reduced_config(path, data_roots).val_dataloader.dataset
    classes = DATASETS.build(dataset).metainfo['classes']
    assert model.num_classes == len(classes)
    if model.with_auxiliary_head:
        assert model.auxiliary_head.num_classes == len(classes)


@every_config
def test_one_optimisation_step(path, data_roots, tmp_path):
    cfg = reduced_config(path, data_roots)
    cfg.load_from = None
    cfg.train_cfg.max_iters = 1
    runner = build_runner(cfg, tmp_path, validate=False)
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
    parts = {name.partition('.')[0] for name in before}
    assert changed == parts


@every_config
def test_three_test_settings(path, data_roots):
    for mode, views in VIEWS.items():
        cfg = reduced_config(path, data_roots)
        if mode != 'none':
            use_tta(cfg, mode)
        inputs = DATASETS.build(cfg.test_dataloader.dataset)[0]['inputs']
        found = len(inputs) if isinstance(inputs, list) else 1
        if path.parent.name == 'demo' and mode == 'ms-flip':
            views = 6  # three scales are enough for small pictures
        assert found == views


@every_config
def test_recipes_stay_short(path):
    assert len(path.read_text().splitlines()) <= 15, path.relative_to(ROOT)
