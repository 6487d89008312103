"""Edits of a config for the flags of the tools."""

import pytest
from mmengine.config import Config

from mmseg_margin.config_tools import as_list
from mmseg_margin.errors import SettingError
from mmseg_margin.tooling import config_edits


def make_cfg(**kwargs) -> Config:
    return Config({'test_evaluator': {'type': 'IoUMetric'}, **kwargs})


def kinds(configs: list) -> list[str]:
    return [config['type'] for config in configs]


@pytest.mark.parametrize(
    ('choices', 'expected'),
    [
        ([], ['IoUMetric']),
        (['tail'], ['TailIoUMetric']),
        (['bound'], ['PerClassIoUMetric', 'MarginBoundMetric']),
        (['cityscapes'], ['PerClassIoUMetric', 'CityscapesScoresMetric']),
    ],
)
def test_metrics_are_added_once(choices, expected):
    cfg = make_cfg()
    for _ in range(2):
        config_edits.add_metrics(cfg, choices, 'test')
    assert kinds(as_list(cfg.test_evaluator)) == expected
    hooks = ['TrainingCountsHook'] if choices else []
    assert kinds(cfg.get('custom_hooks', [])) == hooks


def test_predictions_are_kept_by_the_metric_of_the_iou():
    cfg = make_cfg()
    config_edits.add_metrics(cfg, ['bound', 'tail'], 'test')
    config_edits.keep_predictions(cfg, 'out')
    assert cfg.test_evaluator[0].output_dir == 'out'
    assert 'output_dir' not in cfg.test_evaluator[1]


def test_showing_needs_the_hook():
    hook = {'type': 'SegVisualizationHook'}
    cfg = make_cfg(default_hooks={'visualization': hook}, visualizer={})
    config_edits.show_predictions(cfg, True, 'painted', 3.0)
    assert cfg.default_hooks.visualization.draw
    assert cfg.default_hooks.visualization.wait_time == 3.0
    assert cfg.visualizer.save_dir == 'painted'


@pytest.mark.parametrize(
    ('edit', 'cfg', 'key_word'),
    [
        (config_edits.check_test, {}, 'test_dataloader'),
        (
            lambda cfg: config_edits.keep_predictions(cfg, 'out'),
            {'test_evaluator': {'type': 'MarginBoundMetric'}},
            'IoUMetric',
        ),
        (
            lambda cfg: config_edits.show_predictions(cfg, True, None, 2.0),
            {},
            'visualization',
        ),
        (config_edits.scale_learning_rate, {}, 'base_batch_size'),
        (
            config_edits.use_amp,
            {'optim_wrapper': {'type': 'ApexOptimWrapper'}},
            'ApexOptimWrapper',
        ),
    ],
)
def test_configs_that_a_flag_does_not_fit(edit, cfg, key_word):
    with pytest.raises(SettingError, match=key_word):
        edit(Config(cfg))
