"""Configs by path and by package, and edits of them for the flags."""

import argparse

import pytest
from mmengine.config import Config

from mmseg_margin.config_tools import as_list
from mmseg_margin.errors import MarginError
from mmseg_margin.evaluation.tta import MODES
from mmseg_margin.stats import WEIGHT_METHODS
from mmseg_margin.tooling import flags, launch
from tests.commands import load_tool

UPSTREAM = 'deeplabv3plus_r50-d8_4xb2-80k_cityscapes-512x1024.py'
OURS = 'deeplabv3plus_efficientnet-lite0_ce_1xb4-600_camvid-112x144.py'


def test_flags():
    """Values of the package, and options that are read as upstream does."""
    assert flags.WEIGHT_METHODS == WEIGHT_METHODS
    assert flags.TTA_MODES == MODES
    assert ('tail', 'foreground', *launch.ADDED_METRICS) == flags.METRICS
    parser = argparse.ArgumentParser()
    flags.add_config_options(parser)
    options = ['a.b=[1,2]', 'c=True', 'd=text']
    args = parser.parse_args(['--cfg-options', *options])
    assert args.cfg_options == {'a.b': [1, 2], 'c': True, 'd': 'text'}


@pytest.mark.parametrize(
    ('config', 'num_classes'),
    [
        (f'mmseg::deeplabv3plus/{UPSTREAM}', 19),
        (f'mmseg_margin::light/{OURS}', 11),
    ],
)
def test_configs_of_installed_packages(tmp_path, config, num_classes):
    """The same as a config that inherits from them."""
    path = tmp_path / 'mine.py'
    path.write_text(f"_base_ = '{config}'\n")
    inherited = Config.fromfile(path)
    found = launch.load_config(config, {'train_cfg.max_iters': 3})
    assert found.model.decode_head.num_classes == num_classes
    assert found.model.keys() == inherited.model.keys() - {'_scope_'}
    assert found.train_cfg.max_iters == 3


@pytest.mark.parametrize(
    ('config', 'text', 'options', 'key_word'),
    [
        ('mmseg::fcn/nowhere.py', None, {}, 'nowhere.py does not exist'),
        ('mmsg::fcn/any.py', None, {}, 'Did you mean mmseg'),
        ('config.py', 'a = = 1', {}, 'cannot be read'),
        ('config.py', "_base_ = 'nowhere.py'", {}, 'nowhere.py'),
        ('config.py', 'a = [1]', {'a.7': 2}, '--cfg-options'),
    ],
)
def test_configs_that_cannot_be_read(
    tmp_path, monkeypatch, config, text, options, key_word
):
    monkeypatch.chdir(tmp_path)
    if text is not None:
        (tmp_path / config).write_text(text)
    with pytest.raises(MarginError, match=key_word):
        launch.load_config(config, options)


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
    cfg = Config({'test_evaluator': {'type': 'IoUMetric'}})
    for _ in range(2):
        launch.add_metrics(cfg, choices, 'test')
    assert [m['type'] for m in as_list(cfg.test_evaluator)] == expected
    hooks = ['TrainingCountsHook'] if choices else []
    assert [hook['type'] for hook in cfg.get('custom_hooks', [])] == hooks
    load_tool('test')['keep_predictions'](cfg, 'out')
    assert as_list(cfg.test_evaluator)[0]['output_dir'] == 'out'


def test_predictions_are_shown():
    cfg = Config({'visualizer': {}})
    args = argparse.Namespace(show=True, show_dir='painted', wait_time=3.0)
    load_tool('test')['show_predictions'](cfg, args)
    hook = cfg.default_hooks.visualization
    assert (hook.draw, hook.show, hook.wait_time) == (True, True, 3.0)
    assert cfg.visualizer.save_dir == 'painted'
