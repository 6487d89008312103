"""What the losses share, in a training that averages its weights."""

import pytest
import torch
from mmengine.runner import Runner

from mmseg_margin.losses import MarginCalibrationLoss
from tests.small_training import PLAIN, add_validation, training_config
from tests.stats.builders import write_set


@pytest.mark.parametrize('update_buffers', [False, True])
def test_an_average_of_the_weights(tmp_path, update_buffers):
    root = write_set(tmp_path / 'data', 4)
    config = training_config(
        root,
        tmp_path / 'work',
        max_iters=3,
        pipeline=PLAIN,
        loss={'preset': 'recommended'},
    )
    # First in the list, as a config that had it before has it.
    config.custom_hooks.insert(
        0, {'type': 'EMAHook', 'update_buffers': update_buffers}
    )
    add_validation(config, interval=2)
    parts = {key: config[key] for key in config if key != 'custom_imports'}
    runner = Runner(**parts)
    runner.train()
    (loss,) = (
        x
        for x in runner.model.modules()
        if isinstance(x, MarginCalibrationLoss)
    )
    # Validation swaps the averages in and out again.
    expected = loss.offset_settings.offsets(loss.class_counts).rho_0k
    torch.testing.assert_close(loss.rho_0k.double().numpy(), expected)
    (averages,) = (
        hook.ema_model for hook in runner.hooks if hasattr(hook, 'ema_model')
    )
    assert averages.steps == 3
