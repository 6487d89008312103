"""A small network learns the embedded data with each of our losses."""

from functools import partial

import pytest
import torch
from torch import nn

from mmseg_margin.losses import JaccardLoss, MarginCalibrationLoss
from tests.embedded import embedded_batch

K = 5
LOSSES = {
    'paper': MarginCalibrationLoss,
    'authors': partial(MarginCalibrationLoss, 'authors'),
    'jaccard': JaccardLoss,
}


def network():
    layers = []
    for dilation in (1, 1, 2, 4, 8, 1):
        layers.append(nn.LazyConv2d(16, 3, padding='same', dilation=dilation))
        layers += [nn.BatchNorm2d(16), nn.ReLU()]
    return nn.Sequential(*layers, nn.Conv2d(16, K, 1))


@torch.no_grad()
def mean_iou(model, images, labels):
    predicted, shown = (
        torch.nn.functional.one_hot(x.flatten(), K).bool()
        for x in (model(images).argmax(1), labels)
    )
    return ((predicted & shown).sum(0) / (predicted | shown).sum(0)).mean()


@pytest.mark.parametrize('name', LOSSES)
def test_it_trains(name):
    images, labels = embedded_batch(8)
    torch.manual_seed(0)
    model = network()
    loss = LOSSES[name](backend='eager')
    loss.set_class_counts(labels.flatten().bincount(minlength=K).tolist())
    if name == 'jaccard':
        loss.set_progress(0.5)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    before = mean_iou(model, images, labels)
    for step in range(60):
        batch = [(4 * step + i) % len(images) for i in range(4)]
        optimizer.zero_grad()
        loss(model(images[batch]), labels[batch]).backward()
        optimizer.step()
    assert mean_iou(model, images, labels) > before + 0.1
