"""The search space, and what is tried in which order."""

import optuna
import pytest

from mmseg_margin.losses.margin_calibration_loss import expand_preset
from mmseg_margin.losses.objectives import build_loss, parse_objective
from mmseg_margin.tuning.search_space import (
    CLASSES,
    LARGEST_OFFSET,
    PARAMETERS,
    SearchSpace,
    setting_of,
)
from tests.tuning.conftest import COUNTS, MARGIN, SPACE

JACCARD = {'type': 'JaccardLoss'}


def test_a_setting_has_the_defaults_of_the_loss():
    assert setting_of(MARGIN, COUNTS) == {
        'objective': 'margin',
        'pos_weight': 1.0,
        'log_base': 2,
        'class_mean': False,
        'class_weight': None,
        # 10 sqrt(900) / 100
        'largest_offset': pytest.approx(3.0),
        'upsilon': 1.0,
    }
    own = setting_of({**MARGIN, 'tau': 5, 'upsilon': 0.5}, COUNTS)
    assert own['largest_offset'] == pytest.approx(1.5)
    assert own['upsilon'] == 0.5
    without = setting_of({**MARGIN, 'tau': 0}, COUNTS)
    assert without['largest_offset'] == LARGEST_OFFSET[0]
    assert setting_of({**JACCARD, 'ce_ramp': 1.0}, COUNTS) == {
        'objective': 'jaccard',
        'ce_weight': 1.0,
        'ce_ramp': 1.0,
        'softness': 0.0,
        'class_weight': None,
    }


def test_the_most_valuable_settings_come_first():
    """Nothing of a preset is lost, class_mean of the authors included."""
    assert [*SPACE.first] == ['jaccard', 'margin-authors', 'margin']
    for name, setting in SPACE.first.items():
        (named,) = map(expand_preset, parse_objective(name))
        named.pop('preset', None)
        assert SPACE.loss(setting).items() >= named.items()
    assert SPACE.first['margin-authors']['class_mean'] is True


def test_a_setting_of_the_config_extends_the_search():
    own = {**MARGIN, 'pos_weight': 3.0, 'largest_offset': 50.0}
    space = SearchSpace(own, COUNTS)
    assert [*space.first][3:] == ["the config's own"]
    choices = space.distributions['pos_weight'].choices
    assert choices == (1.0, 'num_classes', 3.0)
    offsets = space.distributions['largest_offset']
    assert offsets.low == LARGEST_OFFSET[0]
    assert offsets.high == pytest.approx(50.0)


def test_only_parameters_of_a_loss_are_tried():
    """And the loss accepts every setting that is tried."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    own = {**MARGIN, 'tau': 3.0, 'backend': 'eager', 'class_counts': COUNTS}
    space = SearchSpace(own, COUNTS)
    objectives = set()
    for _ in range(30):
        setting = space.suggest(study.ask())
        objective = setting['objective']
        objectives.add(objective)
        assert [*setting] == ['objective', *PARAMETERS[objective]]
        loss = space.loss(setting)
        assert loss['type'] == CLASSES[objective]
        assert loss['backend'] == 'eager'
        assert 'tau' not in loss
        assert ('class_counts' in loss) == (objective == 'margin')
        built = build_loss(loss)
        if objective == 'margin':
            largest = setting['largest_offset']
            assert built.rho_0k.max() == pytest.approx(largest)
    assert objectives == {*PARAMETERS}


def test_absent_classes_matter_only_to_a_margin_loss_of_the_config():
    space = SearchSpace(JACCARD, [900, 100, 0])
    setting = space.first['margin']
    assert setting['largest_offset'] == pytest.approx(3.0)
    assert space.loss(setting)['absent_class'] == 'zero'


@pytest.mark.parametrize(
    ('settings', 'counts', 'said'),
    [
        ({'upsilon': 1e-9}, COUNTS, 'choose upsilon above'),
        ({}, [900, 0], 'has no labelled pixel'),
        ({'class_weight': [1.0, 2.0]}, COUNTS, 'class_weight as a list'),
    ],
)
def test_a_loss_that_cannot_be_tuned(settings, counts, said):
    with pytest.raises(ValueError, match=said):
        SearchSpace({**MARGIN, **settings}, counts)
