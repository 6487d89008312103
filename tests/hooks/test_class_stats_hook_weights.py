"""Class weights that ClassStatsHook sets in a real Runner."""

import pytest
from mmseg.models.losses import CrossEntropyLoss

from mmseg_margin.hooks import ClassStatsHook
from mmseg_margin.losses import (
    WeightedCrossEntropyLoss,
)
from mmseg_margin.stats import class_weights
from tests.hooks.builders import (
    head,
    log_of,
    losses,
    make_runner,
)
from tests.stats.builders import write_set


@pytest.mark.parametrize(
    ('method', 'avg_non_ignore'),
    [
        ('inverse', False),
        ('median', True),
    ],
)
def test_class_weight_of_cross_entropy(
    root, tmp_path, counts, method, avg_non_ignore
):
    loss = {'type': 'CrossEntropyLoss', 'avg_non_ignore': avg_non_ignore}
    runner = make_runner(
        root, tmp_path / 'w', loss, hook={'class_weight': method}
    )
    runner.train()
    (found,) = losses(runner.model, CrossEntropyLoss)
    # Every image shows every class, so that both kinds of share agree.
    expected = class_weights(counts, method)
    assert found.class_weight == pytest.approx(expected)
    (row,) = (x for x in log_of(runner).splitlines() if '| car ' in x)
    assert row.split('|')[-2].strip() == f'{expected[3]:.4g}'


def test_class_weight_leaves_others_alone(root, tmp_path):
    own = {'type': 'CrossEntropyLoss', 'class_weight': [1.0, 2.0, 3.0, 4.0]}
    model = {
        'decode_head': head({'type': 'CrossEntropyLoss'}),
        'auxiliary_head': [
            head(own),
            head({'type': 'CrossEntropyLoss', 'use_sigmoid': True}),
            head({'type': 'CrossEntropyLoss'}, type='STDCHead', num_classes=2),
        ],
    }
    hook = {'class_weight': 'inverse'}
    runner = make_runner(root, tmp_path / 'w', hook=hook, model=model)
    # mmseg's own weighted function may fail on ignored pixels.
    write_set(root, 5, values=(0, 1, 2, 3))
    runner.train()
    main, first, second, third = losses(runner.model, CrossEntropyLoss)
    assert main.class_weight is not None
    assert first.class_weight == [1.0, 2.0, 3.0, 4.0]
    assert second.class_weight is third.class_weight is None
    log = log_of(runner)
    assert 'auxiliary_head.0.loss_decode has a class_weight of its own' in log
    assert 'auxiliary_head.1.loss_decode is not a softmax' in log


def test_weighted_loss_of_this_package(root, tmp_path):
    loss = {'type': 'WeightedCrossEntropyLoss', 'class_weight': 'median'}
    runner = make_runner(root, tmp_path / 'w', loss)
    runner.train()
    (found,) = losses(runner.model, WeightedCrossEntropyLoss)
    (hook,) = (x for x in runner.hooks if isinstance(x, ClassStatsHook))
    expected = hook.stats.class_weights('median')
    assert found.class_weight.tolist() == pytest.approx(expected)
