"""The log-loss of the Jaccard form comes as the training proceeds."""

import uuid

import pytest
import torch
from mmengine.hooks import Hook
from mmengine.logging import MessageHub

from mmseg_margin.losses.progress import training_progress
from tests.losses.builders import margin
from tests.small_training import train, training_config
from tests.stats.builders import write_set

LATE = dict(form='jaccard', log_base='e', log_share=0.5, memory=0)


class Watch(Hook):
    """Notes the share of the log-loss in every iteration."""

    def __init__(self):
        self.shares = []

    def after_train_iter(self, runner, *_, **__):
        self.shares.append(runner.model.decode_head.loss_decode.log_share())


@pytest.mark.parametrize(
    ('delay', 'expected'),
    [
        (0.0, [0.5, 0.5, 0.5, 0.5]),
        (1.0, [0, 0.125, 0.25, 0.375]),
        (2.0, [0, 0.03125, 0.125, 0.28125]),
    ],
)
def test_it_grows_with_the_progress_of_the_runner(tmp_path, delay, expected):
    write_set(tmp_path / 'data')
    watch = Watch()
    loss = dict(LATE, log_delay=delay)
    config = training_config(
        tmp_path / 'data', tmp_path / 'work', max_iters=4, loss=loss
    )
    train(config, custom_hooks=[*config.pop('custom_hooks', []), watch])
    assert watch.shares == expected


@pytest.fixture
def hub():
    """A training of ten iterations, without its Runner."""
    # The newest is the current one.
    hub = MessageHub.get_instance(f'progress_{uuid.uuid4().hex}')
    hub.update_info('max_iters', 10)
    yield hub
    hub.runtime_info.clear()


def test_without_a_runner_there_is_no_progress(hub, batch):
    hub.pop_info('max_iters')
    assert training_progress() == 0
    alone = margin(**LATE | dict(log_share=0))
    assert margin(**LATE, log_delay=1)(*batch) == alone(*batch)


def test_the_loss_is_the_one_of_that_share(hub, batch):
    hub.update_info('iter', 4)
    late = margin(**LATE, log_delay=1)
    now = margin(**LATE | dict(log_share=0.2))
    torch.testing.assert_close(late(*batch), now(*batch))


def test_a_compiled_model_is_not_compiled_anew_in_every_step(hub, batch):
    scores, labels = batch
    loss = margin(**LATE, log_delay=1)
    step = torch.compile(lambda s: loss(2 * s, labels), backend='eager')
    values = []
    for iteration in range(4):
        hub.update_info('iter', iteration)
        # What the first step leaves behind may be compiled in the second.
        with torch._dynamo.config.patch(error_on_recompile=iteration > 1):
            values.append(step(scores))
        assert values[-1] == loss(2 * scores, labels)
    assert values == sorted(values)
    assert values[0] < values[-1]
