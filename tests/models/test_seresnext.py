"""SEResNeXt at output stride 8, as the paper uses it, and timm's weights."""

import pytest
import torch
import torch.nn.functional as F
from mmseg.registry import MODELS
from torch import Tensor, nn

from mmseg_margin.models import convert_timm_seresnext

STRIDE_8 = dict(
    type='SEResNeXt',
    strides=(1, 2, 1, 1),
    dilations=(1, 1, 2, 4),
    contract_dilation=True,
)
# Few channels keep the comparison of gradients fast.
SMALL = dict(STRIDE_8, stem_channels=8, base_channels=8, groups=4)


def saved_elements(backbone: nn.Module) -> int:
    """How many numbers a forward pass keeps for the backward pass."""
    sizes = []

    def pack(tensor: Tensor) -> Tensor:
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


@pytest.mark.parametrize(
    'norm', [dict(type='BN'), dict(type='GN', num_groups=4)]
)
def test_checkpointing_changes_nothing_but_memory(norm):
    torch.manual_seed(0)
    plain = MODELS.build(dict(SMALL, norm_cfg=norm))
    recomputed = MODELS.build(dict(SMALL, norm_cfg=norm, with_cp=True))
    recomputed.load_state_dict(plain.state_dict())
    image = torch.rand(2, 3, 32, 32)
    results = []
    for backbone in (plain, recomputed):
        sum(stage.square().mean() for stage in backbone(image)).backward()
        buffers = dict(backbone.named_buffers())
        kept = [x for name, x in buffers.items() if 'tracked' not in name]
        results.append([*kept, *(p.grad for p in backbone.parameters())])
    torch.testing.assert_close(*results)
    assert saved_elements(recomputed) < saved_elements(plain) / 3
    if norm['type'] == 'BN':
        assert recomputed.layer4[0].norm1.momentum == 0.1


def conv(inputs: int, outputs: int, kernel: int = 1, **settings) -> nn.Conv2d:
    settings = {'padding': kernel // 2, 'bias': False} | settings
    return nn.Conv2d(inputs, outputs, kernel, **settings)


class TimmBlock(nn.Module):
    """A block of timm's network, which needs torchvision to be installed."""

    def __init__(self, inputs: int, stage: int, first: bool) -> None:
        super().__init__()
        width, outputs = 64 * 2**stage, 128 * 2**stage
        stride = 2 if first and stage > 1 else 1
        self.conv1, self.bn1 = conv(inputs, width), nn.BatchNorm2d(width)
        self.conv2 = conv(width, width, 3, stride=stride, groups=32)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3, self.bn3 = conv(width, outputs), nn.BatchNorm2d(outputs)
        self.se = nn.Module()
        self.se.fc1 = conv(outputs, outputs // 16, bias=True)
        self.se.fc2 = conv(outputs // 16, outputs, bias=True)
        self.downsample = nn.Sequential()
        if first:
            self.downsample.append(conv(inputs, outputs, stride=stride))
            self.downsample.append(nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn1(self.conv1(x)).relu()
        y = self.bn2(self.conv2(y)).relu()
        y = self.bn3(self.conv3(y))
        gate = self.se.fc1(y.mean((2, 3), keepdim=True)).relu()
        y = y * self.se.fc2(gate).sigmoid()
        return (self.downsample(x) + y).relu()


class TimmNetwork(nn.Module):
    """timm's seresnext50_32x4d with random weights; gives its four stages."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv(3, 64, 7, stride=2), nn.BatchNorm2d(64)
        inputs = 64
        for stage, blocks in enumerate((3, 4, 6, 3), 1):
            layer = nn.Sequential()
            for index in range(blocks):
                layer.append(TimmBlock(inputs, stage, index == 0))
                inputs = 128 * 2**stage
            self.add_module(f'layer{stage}', layer)
        self.fc = nn.Linear(2048, 1000)
        for name, tensor in self.state_dict().items():
            if tensor.dim() > 1:
                nn.init.kaiming_normal_(tensor)
            elif name.endswith(('weight', 'running_var')):
                nn.init.uniform_(tensor, 0.5, 1.5)
            elif 'bn' in name and tensor.is_floating_point():
                nn.init.normal_(tensor)

    def forward(self, x: Tensor) -> list[Tensor]:
        x = F.max_pool2d(self.bn1(self.conv1(x)).relu(), 3, 2, padding=1)
        layers = (self.layer1, self.layer2, self.layer3, self.layer4)
        return [x := layer(x) for layer in layers]


def test_converted_weights_give_timms_features():
    torch.manual_seed(0)
    timms = TimmNetwork().eval()
    # As of timm's seresnext50_32x4d.
    assert sum(p.numel() for p in timms.parameters()) == 27_559_896
    state = timms.state_dict()
    converted = convert_timm_seresnext(state)
    assert len(converted) == len(state) - 2
    backbone = MODELS.build(dict(type='SEResNeXt'))
    backbone.load_state_dict(converted, strict=True)
    backbone.eval()
    image = torch.rand(1, 3, 64, 64)
    with torch.no_grad():
        found, expected = backbone(image), timms(image)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs)
    with pytest.raises(ValueError, match='seresnext50_32x4d'):
        convert_timm_seresnext({'blocks.0.attn.qkv.weight': torch.zeros(1)})
