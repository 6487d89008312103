"""Statistics and states to and from losses, under any wrapper."""

import pytest
import torch
from torch import nn

from mmseg_margin.hooks.class_stats_hook import (
    give_stats,
    margin_settings,
    modules_with,
)
from mmseg_margin.stats import ClassStats
from tests.hooks.builders import CountingLoss

STATS = ClassStats(['a', 'b'], [30, 70], [3, 4], [60, 90])


class Wrapper(nn.Module):
    """Like DistributedDataParallel, which keeps the model in ``module``."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module


def model_with(loss: nn.Module) -> nn.Module:
    return nn.ModuleDict({'head': nn.ModuleDict({'loss': loss})})


@pytest.fixture(params=['plain', 'wrapped', 'loss compiled', 'both'])
def loss_and_model(request):
    loss: nn.Module = CountingLoss()
    inner = loss
    if request.param in ('loss compiled', 'both'):
        inner = torch.compile(loss, backend='eager')
    model = model_with(inner)
    if request.param in ('wrapped', 'both'):
        model = Wrapper(Wrapper(model))
    return loss, model


def test_counts_arrive(loss_and_model):
    loss, model = loss_and_model
    receivers = give_stats(model, STATS)
    assert loss.counts == [30, 70]
    assert margin_settings(receivers) == {'tau': 5.0, 'upsilon': 2.0}


def test_losses_have_the_names_of_the_plain_model(loss_and_model):
    _, model = loss_and_model
    assert set(dict(modules_with(model, 'training_state'))) == {'head.loss'}


def test_whole_statistics_are_preferred_to_counts():
    class Both(CountingLoss):
        def set_class_stats(self, stats):
            self.stats = stats

    loss = Both()
    give_stats(model_with(loss), STATS)
    assert loss.stats is STATS
    assert loss.counts is None


def test_nobody_to_receive():
    model = model_with(nn.ReLU())
    assert give_stats(model, STATS) == []
    assert margin_settings([]) == {}
    assert list(modules_with(model, 'training_state')) == []
