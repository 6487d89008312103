"""COPLENet: shape, size, checkpointing, and whether it learns."""

import pytest
import torch
import torch.nn.functional as F
from mmseg.registry import MODELS
from torch import nn

import mmseg_margin.models  # noqa: F401
from tests.embedded import embedded_batch

HEAD = dict(type='COPLEHead', num_classes=5, align_corners=False)


def build(**settings: object) -> nn.Sequential:
    backbone = MODELS.build(dict(type='COPLENet', **settings))
    return nn.Sequential(backbone, MODELS.build(HEAD))


# 50 x 70 is not a multiple of 16, so up-sampling needs the sizes of the skips.
@pytest.mark.parametrize('size', [(64, 96), (50, 70)])
def test_scores_have_the_size_of_the_image(size):
    with torch.no_grad():
        assert build()(torch.rand(2, 3, *size)).shape == (2, 5, *size)


def test_size_of_the_authors_network():
    network = build()
    assert sum(p.numel() for p in network.parameters()) == 2_634_869
    with pytest.raises(ValueError, match='dropout'):
        build(dropout=(0.0, 0.5))
    with pytest.raises(ValueError, match='must double'):
        build(widths=(16, 32, 48, 64, 96))


def test_checkpointing_gives_the_same_gradients():
    networks = [build(with_cp=with_cp) for with_cp in (False, True)]
    networks[1].load_state_dict(networks[0].state_dict())
    image = torch.rand(2, 3, 32, 32)
    for network in networks:
        # The same dropout in both, and again when blocks are recomputed.
        torch.manual_seed(0)
        network(image).square().mean().backward()
    gradients = [[p.grad for p in net.parameters()] for net in networks]
    torch.testing.assert_close(gradients[1], gradients[0])


def test_learns_two_images_of_the_embedded_set():
    images, labels = embedded_batch(2, 48, 32)
    torch.manual_seed(0)
    network = build()
    optimizer = torch.optim.AdamW(network.parameters(), lr=4e-3)
    losses = []
    for _ in range(16):
        optimizer.zero_grad()
        losses.append(F.cross_entropy(network(images), labels))
        losses[-1].backward()
        optimizer.step()
    # Below the entropy of the class frequencies, which ignores the images.
    prior = labels.flatten().bincount(minlength=5) / labels.numel()
    assert losses[-1] < 0.8 * -prior.xlogy(prior).sum()
