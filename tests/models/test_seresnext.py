"""SEResNeXt at output stride 8, as the paper uses it."""

import pytest
import torch
from mmseg.registry import MODELS

import mmseg_margin.models  # noqa: F401

STRIDE_8 = dict(
    type='SEResNeXt',
    strides=(1, 2, 1, 1),
    dilations=(1, 1, 2, 4),
    contract_dilation=True,
)
CLASSIFIER = 2048 * 1000 + 1000
# Few channels keep the comparison of gradients fast.
SMALL = dict(STRIDE_8, stem_channels=8, base_channels=8, groups=4)


def build(**settings: object) -> torch.nn.Module:
    return MODELS.build(dict(SMALL, **settings))


def saved_elements(backbone: torch.nn.Module) -> int:
    """How many numbers a forward pass keeps for the backward pass."""
    sizes = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        sizes.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda saved: saved):
        backbone(torch.rand(2, 3, 32, 32))
    return sum(sizes)


def test_design_at_output_stride_8():
    backbone = MODELS.build(STRIDE_8)
    backbone.eval()
    with torch.no_grad():
        stages = backbone(torch.rand(1, 3, 64, 96))
    assert [tuple(stage.shape) for stage in stages] == [
        (1, 256, 16, 24),
        (1, 512, 8, 12),
        (1, 1024, 8, 12),
        (1, 2048, 8, 12),
    ]
    parameters = sum(tensor.numel() for tensor in backbone.parameters())
    assert round(parameters / 1e6, 1) == 25.5
    assert round((parameters + CLASSIFIER) / 1e6, 2) == 27.56
    for stage in (1, 2, 3, 4):
        for block in getattr(backbone, f'layer{stage}'):
            squeeze = block.se.conv1.conv
            assert squeeze.in_channels == 128 * 2**stage
            assert squeeze.out_channels == squeeze.in_channels // 16


def test_channel_weights_change_the_output():
    torch.manual_seed(0)
    backbone = build()
    backbone.eval()
    image = torch.rand(1, 3, 32, 32)
    with torch.no_grad():
        before = backbone(image)[0]
        backbone.layer1[0].se.conv2.conv.bias.fill_(-100.0)
        after = backbone(image)[0]
    assert not torch.allclose(before, after)


@pytest.mark.parametrize(
    'norm', [dict(type='BN'), dict(type='GN', num_groups=4)]
)
def test_checkpointing_changes_nothing_but_memory(norm):
    torch.manual_seed(0)
    plain = build(norm_cfg=norm)
    recomputed = build(norm_cfg=norm, with_cp=True)
    recomputed.load_state_dict(plain.state_dict())
    image = torch.rand(2, 3, 32, 32)
    for backbone in (plain, recomputed):
        sum(stage.square().mean() for stage in backbone(image)).backward()
    others = dict(recomputed.named_parameters())
    for name, parameter in plain.named_parameters():
        torch.testing.assert_close(others[name].grad, parameter.grad)
    buffers = dict(recomputed.named_buffers())
    for name, buffer in plain.named_buffers():
        if not name.endswith('num_batches_tracked'):
            torch.testing.assert_close(buffers[name], buffer)
    assert saved_elements(recomputed) < saved_elements(plain) / 3
    if norm['type'] == 'BN':
        assert recomputed.layer4[0].norm1.momentum == 0.1
