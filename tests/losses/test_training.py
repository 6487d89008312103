"""A small network learns the embedded data with every form of the loss."""

import numpy as np
import pytest
import torch
from torch import nn

from mmseg_margin.losses import MarginCalibrationLoss
from tools.instrument_synthesis import Settings
from tools.instrument_synthesis.writer import draw

K = 5
FORMS = {
    'paper': dict(),
    'authors': dict(pos_weight='num_classes', log_base='e', class_mean=True),
    'target': dict(form='target'),
    'paper, iou': dict(class_balance='iou'),
    'target, iou': dict(form='target', class_balance='iou'),
    'softmax': dict(form='softmax', focus=2.0, class_weight=0.2, log_base='e'),
}
# It finds even the rare classes within the few steps of the test.
SOONEST = 'target, iou'


@pytest.fixture(scope='module')
def data():
    """Images (N, 3, H, W) around zero, and labels (N, H, W)."""
    settings = Settings(width=64, height=56, train=16, val=1, test=1)
    pairs = [(image, label) for _, image, label in draw(settings)][:16]
    images = torch.stack(
        [torch.from_numpy(np.ascontiguousarray(i)) for i, _ in pairs]
    )
    labels = torch.stack([torch.from_numpy(label) for _, label in pairs])
    return images.permute(0, 3, 1, 2).float() / 64 - 2, labels.long()


def network():
    layers, width = [], 3
    for dilation in (1, 1, 2, 4, 8, 1):
        layers += [
            nn.Conv2d(width, 16, 3, padding=dilation, dilation=dilation),
            nn.BatchNorm2d(16),
            nn.ReLU(),
        ]
        width = 16
    return nn.Sequential(*layers, nn.Conv2d(16, K, 1))


@torch.no_grad()
def iou(model, images, labels):
    predicted = model(images).argmax(1)
    return torch.stack(
        [
            ((predicted == k) & (labels == k)).sum()
            / ((predicted == k) | (labels == k)).sum()
            for k in range(K)
        ]
    )


@pytest.mark.parametrize('form', FORMS)
def test_it_trains(form, data):
    images, labels = data
    torch.manual_seed(0)
    model = network()
    loss = MarginCalibrationLoss(
        class_counts=labels.flatten().bincount(minlength=K).tolist(),
        backend='eager',
        **FORMS[form],
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    before = iou(model, images, labels)
    for step in range(120):
        batch = [(4 * step + i) % len(images) for i in range(4)]
        optimizer.zero_grad()
        loss(model(images[batch]), labels[batch]).backward()
        optimizer.step()
    after = iou(model, images, labels)
    assert after.mean() > before.mean() + 0.1
    if form == SOONEST:
        assert (after > 0).all()
