"""Arguments that the tools share."""

import argparse

import pytest

from mmseg_margin.evaluation.tta import MODES
from mmseg_margin.losses.objectives import OBJECTIVES
from mmseg_margin.offsets.fit_runner import NUM_IMAGES
from mmseg_margin.stats import WEIGHT_METHODS
from mmseg_margin.tooling import flags
from mmseg_margin.tooling.config_edits import ADDED_METRICS
from tests.commands import call


def test_repeated_values_are_those_of_the_package():
    assert tuple(OBJECTIVES) == flags.OBJECTIVE_NAMES
    assert flags.WEIGHT_METHODS == WEIGHT_METHODS
    assert flags.TTA_MODES == MODES
    assert flags.FIT_IMAGES == NUM_IMAGES
    assert ('tail', *ADDED_METRICS) == flags.METRICS


@pytest.mark.parametrize(
    ('arguments', 'meant'),
    [
        (('test', 'c.py', 'm.pth', '--tta', 'flp'), 'flip'),
        (('train', 'c.py', '--metrics', 'tail', 'bond'), 'bound'),
        (('train', 'c.py', '--launcher', 'pytorc'), 'pytorch'),
        (('class_stats', 'c.py', '--weights', 'medain'), 'median'),
    ],
)
def test_typos(capsys, arguments, meant):
    code, said = call(capsys, *arguments)
    assert code == 2
    assert f'Did you mean {meant}?' in said


def test_options_are_read_as_upstream_does():
    parser = argparse.ArgumentParser()
    flags.add_config_options(parser)
    options = ['a.b=[1,2]', 'c=True', 'd=text']
    args = parser.parse_args(['--cfg-options', *options])
    assert args.cfg_options == {'a.b': [1, 2], 'c': True, 'd': 'text'}
    assert parser.parse_args([]).cfg_options is None
