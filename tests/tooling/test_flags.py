"""Edits of a config for the flags of the tools."""

import pytest
from mmengine.config import Config

from mmseg_margin.config_tools import as_list
from mmseg_margin.tooling import flags


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
        (['gap', 'bound'], ['PerClassIoUMetric', 'MarginBoundMetric']),
        (['cityscapes'], ['PerClassIoUMetric', 'CityscapesScoresMetric']),
    ],
)
def test_metrics_are_added_once(choices, expected):
    cfg = make_cfg()
    for _ in range(2):
        flags.add_metrics(cfg, choices, 'test')
    assert kinds(as_list(cfg.test_evaluator)) == expected
    hooks = ['TrainingCountsHook'] if choices else []
    hooks += ['GeneralisationGapHook'] if 'gap' in choices else []
    assert kinds(cfg.get('custom_hooks', [])) == hooks


def test_predictions_are_kept_by_the_metric_that_can():
    cfg = make_cfg()
    flags.add_metrics(cfg, ['bound', 'tail'], 'test')
    flags.keep_predictions(cfg, 'out')
    assert cfg.test_evaluator[0].output_dir == 'out'
    assert 'output_dir' not in cfg.test_evaluator[1]
    # Which would otherwise remove the folder.
    cfg = make_cfg(test_evaluator={'type': 'CityscapesMetric'})
    flags.keep_predictions(cfg, 'out')
    assert cfg.test_evaluator.keep_results
    cfg = make_cfg(test_evaluator={'type': 'MarginBoundMetric'})
    with pytest.raises(ValueError, match='no metric in test_evaluator writes'):
        flags.keep_predictions(cfg, 'out')


def test_showing_needs_the_hook():
    hook = {'type': 'SegVisualizationHook'}
    cfg = make_cfg(default_hooks={'visualization': hook}, visualizer={})
    flags.show_predictions(cfg, True, 'painted', 3.0)
    assert cfg.default_hooks.visualization.draw
    assert cfg.default_hooks.visualization.wait_time == 3.0
    assert cfg.visualizer.save_dir == 'painted'
    with pytest.raises(ValueError, match=r'default_hooks\.visualization'):
        flags.show_predictions(make_cfg(), True, None, 2.0)


def test_nothing_to_test():
    cfg = Config({'load_from': 'model.pth'})
    with pytest.raises(ValueError, match='no test_dataloader'):
        flags.check_test(cfg)
    cfg = make_cfg(test_dataloader={'a': 1}, load_from='nowhere.pth')
    with pytest.raises(FileNotFoundError, match=r'nowhere\.pth does not'):
        flags.check_test(cfg)
    cfg.load_from = 'https://example.org/model.pth'
    flags.check_test(cfg)
