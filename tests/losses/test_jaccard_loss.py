"""JaccardLoss: its progress, its parts, and what it does not need."""

import json

import pytest
import torch
from mmengine.hooks import Hook
from mmengine.logging import MessageHub, MMLogger
from mmengine.runner import Runner

from mmseg_margin.functional import jaccard_loss
from mmseg_margin.losses import JaccardLoss
from tests.small_training import train, training_config
from tests.stats.builders import write_set


@pytest.fixture(scope='module')
def root(tmp_path_factory):
    return write_set(tmp_path_factory.mktemp('jaccard') / 'data')


class Watch(Hook):
    """Records the weight of the cross-entropy in every iteration."""

    def __init__(self):
        self.weights = []

    def after_train_iter(self, runner, *_, **__):
        loss = runner.model.decode_head.loss_decode
        self.weights.append(loss.current_ce_weight())


def config_of(root, work_dir, **loss):
    """JaccardLoss without any hook of this package."""
    loss = {'type': 'JaccardLoss', 'ce_ramp': 1.0, **loss}
    config = training_config(root, work_dir, max_iters=4, loss=loss)
    config.pop('custom_hooks')
    config.pop('custom_imports')
    config.visualizer = {
        'type': 'SegLocalVisualizer',
        'vis_backends': [{'type': 'LocalVisBackend'}],
        'name': str(work_dir),
    }
    # Every iteration is logged by itself, without a window.
    config.log_processor = {'window_size': 1, 'by_epoch': False}
    return config


@pytest.mark.parametrize(
    ('ramp', 'expected'),
    [
        (0.0, [0.5, 0.5, 0.5, 0.5]),
        (1.0, [0, 0.125, 0.25, 0.375]),
        (2.0, [0, 0.03125, 0.125, 0.28125]),
    ],
)
def test_the_cross_entropy_grows_with_the_progress(
    root, tmp_path, ramp, expected
):
    watch = Watch()
    config = config_of(root, tmp_path, ce_weight=0.5, ce_ramp=ramp)
    train(config, custom_hooks=[watch])
    assert watch.weights == expected


@pytest.mark.parametrize('first', [0, 1])
def test_each_runner_has_its_own_progress(root, tmp_path, first):
    watches = Watch(), Watch()
    runners = [
        Runner(**config_of(root, tmp_path / str(i)), custom_hooks=[watch])
        for i, watch in enumerate(watches)
    ]
    for i in (first, 1 - first):
        runners[i].train()
        assert watches[i].weights == [0, 0.25, 0.5, 0.75]


def test_a_second_runner_of_the_same_name(root, tmp_path):
    """mmengine names a Runner by the second and gives both one hub."""
    for i in range(2):
        config = config_of(root, tmp_path / str(i))
        config.experiment_name = f'{tmp_path.name}_twice'
        watch = Watch()
        Runner(**config, custom_hooks=[watch]).train()
        assert watch.weights == [0, 0.25, 0.5, 0.75]


def test_a_second_runner_on_the_same_model(root, tmp_path):
    config = config_of(root, tmp_path)
    swap = {'type': 'SwapLossHook', 'loss': 'jaccard:ce_ramp=1.0'}
    watch = Watch()
    first = Runner(**config, custom_hooks=[swap, watch])
    first.train()
    again = {**config_of(root, tmp_path / 'again'), 'model': first.model}
    Runner(**again, custom_hooks=[swap, watch]).train()
    assert watch.weights == 2 * [0, 0.25, 0.5, 0.75]


def test_a_resume_continues_with_a_new_number_of_iterations(root, tmp_path):
    train(config_of(root, tmp_path / 'first'))
    watch = Watch()
    config = config_of(root, tmp_path / 'second')
    config.train_cfg.max_iters = 8
    checkpoint = str(tmp_path / 'first' / 'iter_4.pth')
    train(config, custom_hooks=[watch], load_from=checkpoint, resume=True)
    assert watch.weights == [0.5, 0.625, 0.75, 0.875]


def test_without_a_runner_the_progress_has_to_be_set(batch, caplog):
    MMLogger.get_current_instance().addHandler(caplog.handler)
    # A Runner that has trained earlier in this process is ignored.
    hub = MessageHub.get_instance('an_earlier_runner')
    hub.update_info('iter', 9)
    hub.update_info('max_iters', 10)
    loss = JaccardLoss(softness=0.0, backend='eager')
    without = jaccard_loss(*batch, ce_weight=0.0)
    for _ in range(2):
        torch.testing.assert_close(loss(*batch), without)
    assert caplog.text.count('call loss.set_progress(step / steps)') == 1
    loss.set_progress(0.5)
    expected = jaccard_loss(*batch, ce_weight=0.25)
    torch.testing.assert_close(loss(*batch), expected)
    loss.softness = 0.6
    expected = jaccard_loss(*batch, ce_weight=0.25, softness=0.3)
    torch.testing.assert_close(loss(*batch), expected)
    with pytest.raises(ValueError, match='progress=2 must be from 0 to 1'):
        loss.set_progress(2)


def test_a_compiled_model_is_not_compiled_anew_in_every_step(batch):
    scores, labels = batch
    loss = JaccardLoss(ce_ramp=1.0, backend='eager')
    step = torch.compile(lambda s: loss(2 * s, labels), backend='eager')
    values = []
    for iteration in range(4):
        loss.set_progress(iteration / 4)
        # The second step may still recompile, because the first sets state.
        with torch._dynamo.config.patch(error_on_recompile=iteration > 1):
            values.append(step(scores))
        assert values[-1] == loss(2 * scores, labels)
    assert values == sorted(values)
    assert values[0] < values[-1]


def scalars_of(work_dir):
    (path,) = work_dir.rglob('scalars.json')
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_parts_are_among_the_scalars(root, tmp_path):
    """Those of a step are written in the next one."""
    loss = 'jaccard:ce_ramp=1.0,softness=1,backend=eager'
    hook = {'type': 'SwapLossHook', 'loss': loss}
    train(config_of(root, tmp_path), custom_hooks=[hook])
    log = scalars_of(tmp_path)
    weights = [line.get('decode.ce_weight') for line in log]
    assert weights == [None, 0, 0.25, 0.5]
    for line, before in zip(log[1:], log, strict=False):
        jaccard, ce, weight = (
            line[f'decode.{part}'] for part in ('jaccard', 'ce', 'ce_weight')
        )
        total = before['decode.loss_jaccard']
        assert 0 < total - weight * ce <= jaccard <= 1


def test_the_logged_part_is_one_minus_the_soft_iou(batch):
    """Whatever the softness."""
    scores, labels = batch
    p = scores.softmax(1).movedim(1, -1)[labels != 255]
    truth = torch.nn.functional.one_hot(labels[labels != 255], p.shape[1])
    shown = truth.sum(0) > 0
    intersection = (p * truth).sum(0)
    iou = intersection / (p.sum(0) + truth.sum(0) - intersection)
    expected = float(1 - iou[shown].mean())
    for softness in (0.0, 1.0):
        loss = JaccardLoss(softness=softness)
        loss.set_progress(0.5)
        loss.follow(MessageHub.get_instance('any'), 'decode')
        loss.set_progress(0.5)
        loss(*batch)
        found = loss.last_parts()['jaccard']
        assert found == pytest.approx(expected, rel=1e-4)


def test_a_second_runner_without_a_hook_is_followed(root, tmp_path):
    """Whether or not a hook of ours was in the first one."""
    for hooks in (
        [],
        [{'type': 'SwapLossHook', 'loss': 'jaccard:ce_ramp=1.0'}],
    ):
        work_dir = tmp_path / str(len(hooks))
        first = Runner(**config_of(root, work_dir), custom_hooks=hooks)
        first.train()
        watch = Watch()
        again = {**config_of(root, work_dir / 'again'), 'model': first.model}
        Runner(**again, custom_hooks=[watch]).train()
        assert watch.weights == [0, 0.25, 0.5, 0.75]
        # The first one goes on.
        first.register_hook(watch)
        first.train_loop._iter = 0
        first.train()
        assert watch.weights[4:] == [0, 0.25, 0.5, 0.75]


@pytest.mark.parametrize(
    ('settings', 'message'),
    [
        ({'ce_weight': -1}, 'ce_weight=-1 must be'),
        ({'ce_ramp': 'late'}, "ce_ramp='late' must be"),
        ({'softness': 2}, 'softness=2 must be from 0 to 1'),
    ],
)
def test_bad_settings(settings, message):
    with pytest.raises(ValueError, match=message):
        JaccardLoss(**settings)
