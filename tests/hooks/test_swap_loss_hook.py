"""SwapLossHook in trainings, and the config that ``--loss`` leaves behind."""

import numpy as np
import pytest
from mmengine.config import Config
from mmengine.runner import Runner
from mmseg.apis import MMSegInferencer, init_model

from mmseg_margin.losses import MarginCalibrationLoss
from mmseg_margin.losses.swap import set_objective
from tests.small_training import (
    add_validation,
    same_weights,
    train,
    training_config,
)

EAGER = 'margin:backend=eager'


def plain_config(root, folder):
    """As upstream's: cross-entropy, and no hook of ours."""
    cfg = training_config(root, folder, 2, custom_hooks=[])
    cfg.model.decode_head.loss_decode = {'type': 'CrossEntropyLoss'}
    del cfg._cfg_dict['custom_imports']
    return cfg


@pytest.mark.parametrize('update_buffers', [False, True])
def test_with_an_average_of_the_weights(
    root, counts, tmp_path, update_buffers
):
    """Validation swaps the averages in and out again."""
    cfg = plain_config(root, tmp_path)
    # First in the list, as in a config that already had EMAHook.
    cfg.custom_hooks = [
        {'type': 'EMAHook', 'update_buffers': update_buffers},
        {'type': 'ClassStatsHook', 'cache_dir': str(tmp_path)},
        {'type': 'SwapLossHook', 'loss': EAGER},
    ]
    add_validation(cfg, 1)
    runner = Runner.from_cfg(cfg)
    runner.train()
    (ema,) = (hook for hook in runner.hooks if hasattr(hook, 'ema_model'))
    assert ema.ema_model.steps == 2
    for model in (runner.model, ema.ema_model.module):
        loss = model.decode_head.loss_decode
        assert isinstance(loss, MarginCalibrationLoss)
        # An average of the buffers has not yet reached the offsets.
        assert update_buffers or loss.rho_0k.min() > 0
    loss = runner.model.decode_head.loss_decode
    expected = loss.offset_settings.offsets(counts).rho_0k
    np.testing.assert_allclose(loss.rho_0k, expected, rtol=1e-6)


def test_cross_entropy_is_upstreams_baseline(root, tmp_path):
    """Void pixels, crops and dropout included, to the last bit."""
    plain, swapped = (plain_config(root, tmp_path / x) for x in 'ab')
    set_objective(swapped, 'ce')
    assert same_weights(train(plain), train(swapped))


def test_what_the_dumped_config_is_good_for(root, tmp_path):
    """Stock mmengine and mmseg resume it, test it and build its model."""
    cfg = plain_config(root, tmp_path)
    add_validation(cfg, 2)
    for key in ('cfg', 'dataloader', 'evaluator'):
        cfg[f'test_{key}'] = cfg[f'val_{key}']
    cfg.test_cfg = {'type': 'TestLoop'}
    cfg.visualizer = {'type': 'SegLocalVisualizer', 'name': str(tmp_path)}
    for _ in range(2):
        set_objective(cfg, EAGER)
    assert len(cfg.custom_hooks) == 2
    Runner.from_cfg(cfg).train()
    (path,) = tmp_path.glob('*.py')
    weights = str(tmp_path / 'iter_2.pth')
    init_model(str(path), weights, device='cpu')
    image = str(next(root.glob('img/*')))
    seen = MMSegInferencer(str(path), weights, device='cpu')(image)
    assert seen['predictions'].ndim == 2
    dumped = Config.fromfile(path)
    assert dumped.custom_imports['imports'] == ['mmseg_margin']
    dumped.resume, dumped.train_cfg.max_iters = True, 3
    runner = Runner.from_cfg(dumped)
    runner.train()
    loss = runner.model.decode_head.loss_decode
    assert runner.iter == 3
    assert isinstance(loss, MarginCalibrationLoss)
    assert runner.test()['mIoU'] >= 0
    assert runner.model.decode_head.loss_decode is loss
