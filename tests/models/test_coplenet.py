"""COPLENet: shape and size."""

import pytest
import torch
from mmseg.registry import MODELS
from torch import nn

import mmseg_margin.models  # noqa: F401

HEAD = dict(type='COPLEHead', num_classes=5, align_corners=False)


def build(**settings: object) -> nn.Sequential:
    backbone = MODELS.build(dict(type='COPLENet', **settings))
    return nn.Sequential(backbone, MODELS.build(HEAD))


def test_size_of_the_authors_network_and_of_its_scores():
    network = build(with_cp=True)
    assert sum(p.numel() for p in network.parameters()) == 2_634_869
    # Not a multiple of 16, so up-sampling needs the sizes of the skips.
    scores = network(torch.rand(2, 3, 50, 70))
    assert scores.shape == (2, 5, 50, 70)
    scores.sum().backward()
    assert all(p.grad is not None for p in network.parameters())
    with pytest.raises(ValueError, match='dropout'):
        build(dropout=(0.0, 0.5))
