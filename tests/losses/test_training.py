"""A small network learns the embedded data with every form of the loss."""

import numpy as np
import pytest
import torch
from torch import nn

from mmseg_margin.losses import MarginCalibrationLoss
from tools.instrument_synthesis import Settings
from tools.instrument_synthesis.writer import draw

K = 5
SETTINGS = {
    'paper': dict(),
    'authors': dict(preset='authors'),
    'recommended': dict(preset='recommended'),
    'jaccard': dict(form='jaccard', log_base='e', largest_offset=0.4),
}


@pytest.fixture(scope='module')
def data():
    """Images (N, 3, H, W) around zero, and labels (N, H, W)."""
    settings = Settings(width=48, height=40, train=8, val=1, test=1)
    pairs = [(image, label) for _, image, label in draw(settings)][:8]
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


@pytest.mark.parametrize('name', SETTINGS)
def test_it_trains(name, data):
    images, labels = data
    torch.manual_seed(0)
    model = network()
    loss = MarginCalibrationLoss(
        class_counts=labels.flatten().bincount(minlength=K).tolist(),
        backend='eager',
        **SETTINGS[name],
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    before = iou(model, images, labels)
    for step in range(60):
        batch = [(4 * step + i) % len(images) for i in range(4)]
        optimizer.zero_grad()
        loss(model(images[batch]), labels[batch]).backward()
        optimizer.step()
    after = iou(model, images, labels)
    assert after.mean() > before.mean() + 0.1
