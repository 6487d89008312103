"""FusedLossHook: the numbers of mmseg, head by head and in a training."""

import copy
import pickle
from types import SimpleNamespace

import pytest
import torch
from mmengine.logging import MessageHub
from mmengine.structures import PixelData
from mmseg.registry import MODELS
from mmseg.structures import SegDataSample
from torch import nn

from mmseg_margin.hooks import FusedLossHook
from mmseg_margin.losses import fused_stage
from tests.hooks.builders import ON_CPU, head
from tests.processes import run_ranks
from tests.small_training import PLAIN, train, training_config

close = torch.testing.assert_close
MARGIN = {'type': 'MarginCalibrationLoss', 'class_counts': [900, 80, 15, 5]}
MARGIN['backend'] = 'eager'
CE = {'type': 'CrossEntropyLoss'}
WEIGHTS = [0.5, 1.0, 2.0, 4.0]
LOSSES = {
    'paper': MARGIN,
    'authors': {**MARGIN, 'preset': 'authors', 'loss_weight': 0.4},
    'jaccard': {'type': 'JaccardLoss', 'ce_ramp': 0, 'backend': 'eager'},
    'ce': CE,
    'ce of labelled pixels': {**CE, 'avg_non_ignore': True},
    'wce': {'type': 'WeightedCrossEntropyLoss', 'class_weight': WEIGHTS},
    'wfocal': {'type': 'SoftmaxFocalLoss', 'class_weight': WEIGHTS},
    'sum': {**MARGIN, 'reduction': 'sum'},
    'list': [CE, MARGIN, {**CE, 'loss_weight': 0.5}],
}


def fuse(*configs):
    """Heads, or the configs of heads, at the beginning of a training."""
    heads = nn.ModuleList(
        MODELS.build(x) if isinstance(x, dict) else x for x in configs
    )
    model = nn.ModuleDict({'decode_head': heads})
    hub = MessageHub.get_instance('fused')
    FusedLossHook().before_train(SimpleNamespace(model=model, message_hub=hub))
    return heads


def log_and_gradient(head, scores, labels):
    scores = scores.clone().requires_grad_()
    truth = (PixelData(data=label[None]) for label in labels)
    samples = [SegDataSample(gt_sem_seg=label) for label in truth]
    log = head.loss_by_feat(scores, samples)
    sum(value for key, value in log.items() if 'loss' in key).backward()
    return {**log, 'gradient': scores.grad}


@pytest.fixture
def batch():
    torch.manual_seed(0)
    labels = torch.randint(0, 4, (2, 24, 32))
    labels[0, :9] = 255
    return torch.randn(2, 4, 6, 8), labels


def check_stage(config, scores, labels):
    (fused,) = fuse(config)
    assert 'loss_by_feat' in vars(fused)
    actual = log_and_gradient(fused, scores, labels)
    expected = log_and_gradient(MODELS.build(config), scores, labels)
    close(actual, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize('name', LOSSES)
def test_it_is_mmsegs_stage(name, batch):
    check_stage(head(LOSSES[name]), *batch)
    batch[1].fill_(255)
    check_stage(head(LOSSES[name]), *batch)


@pytest.mark.parametrize('align_corners', [False, True])
def test_any_size(align_corners, batch):
    config = head(CE, align_corners=align_corners)
    for size in ((24, 32), (12, 16), (7, 9)):
        check_stage(config, torch.randn(2, 4, *size), batch[1])


def test_under_autocast_and_in_copies(batch):
    scores, labels = batch[0].bfloat16(), batch[1]
    (fused,) = fuse(head(MARGIN))
    full = log_and_gradient(fused, scores.float(), labels)
    with torch.autocast('cpu', dtype=torch.bfloat16):
        half = log_and_gradient(fused, scores, labels)
    assert half['gradient'].dtype == torch.bfloat16
    close(half['loss_margin'], full['loss_margin'])
    for twin in (copy.deepcopy(fused), pickle.loads(pickle.dumps(fused))):
        assert twin.loss_by_feat.args[0] is twin
        close(log_and_gradient(twin, scores.float(), labels), full)


def test_the_losses_are_read_in_every_step(batch):
    """A hook may change a weight, or a loss, after the stage was fused."""
    (fused,) = fuse(head(CE))
    before = log_and_gradient(fused, *batch)['loss_ce']
    fused.loss_decode.loss_weight = 0.5
    close(log_and_gradient(fused, *batch)['loss_ce'], before / 2)
    calls = []
    fused.loss_decode.register_forward_hook(lambda *_: calls.append(1))
    log_and_gradient(fused, *batch)
    assert calls == [1]
    for loss in (MARGIN, {'type': 'RegionLoss'}):
        fused.loss_decode = MODELS.build(loss)
        expected = log_and_gradient(MODELS.build(head(loss)), *batch)
        close(log_and_gradient(fused, *batch), expected)
    # As after an interrupted training, whose after_train was never called.
    (again,) = fuse(fused)
    assert 'loss_by_feat' not in vars(again)


def mine(*_):
    """A loss stage, or a forward hook, of the user's own."""


OWN_STAGE, OWN_HOOK, OWN_FORWARD = (MODELS.build(head(CE)) for _ in range(3))
OWN_STAGE.loss_by_feat = mine
OWN_HOOK.loss_decode.register_forward_hook(mine)
OWN_FORWARD.loss_decode.forward = mine
UNSERVED = [
    ('samples pixels', head(CE, sampler={'type': 'OHEMPixelSampler'})),
    ('trained with RegionLoss', head([CE, {'type': 'RegionLoss'}])),
    ('trained with Margin', head({**MARGIN, 'reduction': 'none'})),
    ('no softmax', head({**CE, 'use_sigmoid': True})),
    ('stage of its own', head(CE, type='STDCHead')),
    ('stage of its own', OWN_STAGE),
    ('has hooks or a forward', OWN_HOOK),
    ('has hooks or a forward', OWN_FORWARD),
]


def test_all_others_keep_their_stage(caplog):
    caplog.set_level('INFO', 'mmseg_margin')
    heads = fuse(*(module for _, module in UNSERVED), head(CE))
    *kept, fused = (record.message for record in caplog.records)
    for (reason, _), sentence in zip(UNSERVED, kept, strict=True):
        assert reason in sentence
    assert 'fused' in fused
    before = [dict(vars(module)) for module in heads]
    FusedLossHook().after_train(
        SimpleNamespace(model=nn.ModuleDict({'decode_head': heads}))
    )
    fused = before[-1].pop('loss_by_feat')
    assert fused.func is fused_stage.fused_loss_by_feat
    assert [vars(module) for module in heads] == before


def small_config(root, work_dir, fused):
    # Not the Jaccard loss, whose levels turn a rounding into a step.
    loss = 'margin-authors:largest_offset=1.0,backend=eager'
    config = training_config(root, work_dir, 20, PLAIN)
    config.model.auxiliary_head = copy.deepcopy(config.model.decode_head)
    config.model.auxiliary_head.loss_decode = {**CE, 'loss_weight': 0.4}
    # AdamW turns a rounding of a small gradient into a step.
    config.optim_wrapper.optimizer = {'type': 'SGD', 'lr': 0.01}
    config.optim_wrapper.accumulative_counts = 2
    config.default_hooks.checkpoint.interval = 10
    config.custom_hooks += [
        {'type': 'SwapLossHook', 'loss': loss, 'heads': 'decode_head'},
        {'type': 'EMAHook'},
        *[{'type': 'FusedLossHook'}] * fused,
    ]
    return config


def train_thrice(root, folder):
    """Without the hook, with it, and resumed with it."""
    plain, fused, resumed = (
        small_config(root, folder / name, name != 'plain')
        for name in ('plain', 'fused', 'resumed')
    )
    weights = [train(plain, **ON_CPU), train(fused, **ON_CPU)]
    resume = {'load_from': str(folder / 'fused/iter_10.pth'), 'resume': True}
    return [*weights, train(resumed, **resume, **ON_CPU)]


@pytest.mark.parametrize('ranks', [1, 2])
def test_a_training_ends_with_the_same_weights(root, tmp_path, ranks):
    folder = tmp_path / 'ranks'
    for plain, fused, resumed in run_ranks(
        ranks, train_thrice, folder, root, tmp_path
    ):
        close(fused, plain, rtol=0, atol=1e-5)
        close(resumed, fused, rtol=0, atol=1e-6)
