"""Every family of upstream's configs, as ``docs/heads.md`` says."""

import shutil
from types import SimpleNamespace

import mmcv
import pytest
from mmengine.config import Config
from mmseg.registry import HOOKS, MODELS
from torch import nn

import mmseg_margin  # noqa: F401  (registers hooks and losses)
from mmseg_margin.errors import SettingError
from mmseg_margin.heads import heads_of_model
from mmseg_margin.hooks.class_stats_hook import give_stats
from mmseg_margin.hooks.swap_loss_hook import SwapLossHook
from mmseg_margin.losses import MarginCalibrationLoss
from mmseg_margin.stats import ClassStats
from tests.hooks.builders import losses
from tests.upstream import (
    CONFIGS,
    LARGER,
    SIZE,
    documented,
    first_python_block,
    small_model,
    training_batch,
)

ROWS = documented()
SERVED = [row for row in ROWS if row.heads != 'refused']
REFUSED = [row for row in ROWS if row.heads == 'refused']
BUILDABLE = [row for row in SERVED if 'mmpretrain' not in row.remark]
NONE = nn.ModuleList()
EVERY = 6
EAGER = 'margin:backend=eager'


def counted(num_classes):
    names = [str(k) for k in range(num_classes)]
    counts = [10**6 // (k + 1) for k in range(num_classes)]
    return ClassStats(names, counts, [1] * num_classes, [10**7] * num_classes)


def train_step(model, size=SIZE):
    """The losses of one step, after the hook and the statistics."""
    hook = SwapLossHook(EAGER)
    hook.before_run(SimpleNamespace(model=model))
    give_stats(model, counted(model.num_classes))
    model.train()
    terms = model(**training_batch(model, size), mode='loss')
    total, log = model.parse_losses(terms)
    total.backward()
    assert total > 0
    for parameter in model.parameters():
        assert parameter.grad is None or parameter.grad.isfinite().all()
    return log


def test_every_family_is_in_the_table():
    folders = {path.parent.name for path in CONFIGS.glob('*/*.py')}
    assert {row.config.split('/')[0] for row in ROWS} == folders - {'_base_'}


def test_the_readmes_lines_go_with_any_config(tmp_path):
    """Appended to more than a hundred, read by stock mmengine."""
    every = sorted(CONFIGS.glob('[!_]*/*.py'))
    chosen = {*every[::EVERY], *(row.path for row in ROWS)}
    assert len(chosen) >= 100
    assert len(first_python_block().splitlines()) == 2
    shutil.copytree(CONFIGS, tmp_path / 'configs')
    for path in chosen:
        copied = tmp_path / 'configs' / path.relative_to(CONFIGS)
        copied.write_text(f'{copied.read_text()}\n{first_python_block()}')
    for path in chosen:
        cfg = Config.fromfile(tmp_path / 'configs' / path.relative_to(CONFIGS))
        swap, stats = map(HOOKS.build, cfg.custom_hooks)
        assert type(swap).__name__ == 'SwapLossHook'
        assert type(stats).__name__ == 'ClassStatsHook'


@pytest.mark.parametrize('row', BUILDABLE, ids=lambda row: row.family)
def test_one_step_of_each_family(row):
    size = LARGER.get(row.family, SIZE)
    cfg = Config.fromfile(row.path)
    try:
        model = MODELS.build(small_model(cfg, size))
        log = train_step(model, size)
    except RuntimeError as error:
        if 'compiled' in row.remark and 'mmcv' in str(error):
            pytest.skip(f'mmcv {mmcv.__version__} is not compiled')
        raise
    heads = heads_of_model(model)
    swapped = [
        name
        for name, head in heads.items()
        if losses(getattr(head, 'loss_decode', NONE), MarginCalibrationLoss)
    ]
    assert sorted(swapped) == sorted(row.heads.split(', '))
    if 'semantic encoding' in row.remark:
        assert 'decode.loss_se' in log
    if row.family == 'STDC':
        assert {'aux_2.loss_ce', 'aux_2.loss_dice'} <= log.keys()


@pytest.mark.parametrize('row', REFUSED, ids=lambda row: row.family)
def test_the_others_are_refused(row):
    kind = MODELS.get(Config.fromfile(row.path).model.decode_head.type)
    # Its type alone decides; to build it may need mmdet or large weights.
    head = kind.__new__(kind)
    nn.Module.__init__(head)
    runner = SimpleNamespace(model=nn.ModuleDict({'decode_head': head}))
    with pytest.raises(SettingError, match=kind.__name__):
        SwapLossHook().before_run(runner)
