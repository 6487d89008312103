"""The weights of timm's seresnext50_32x4d give the same network here.

timm needs torchvision, so its layers are built under its names, and its
forward pass is written out below from its description.
"""

import pytest
import torch
import torch.nn.functional as F
from mmseg.registry import MODELS
from torch import Tensor, nn

from mmseg_margin.models import convert_timm_seresnext

BLOCKS = (3, 4, 6, 3)
Layers = dict[str, nn.Module]


def conv(inputs: int, outputs: int, kernel: int = 1, **settings) -> nn.Conv2d:
    settings = {'padding': kernel // 2, 'bias': False} | settings
    return nn.Conv2d(inputs, outputs, kernel, **settings)


def timm_layers() -> Layers:
    """The layers of timm's network with random weights."""
    torch.manual_seed(0)
    layers = {'conv1': conv(3, 64, 7, stride=2), 'bn1': nn.BatchNorm2d(64)}
    before = 64
    for stage, blocks in enumerate(BLOCKS, 1):
        width, after = 64 * 2**stage, 128 * 2**stage
        for index in range(blocks):
            stride = 2 if stage > 1 and index == 0 else 1
            block = {
                'conv1': conv(before, width),
                'bn1': nn.BatchNorm2d(width),
                'conv2': conv(width, width, 3, stride=stride, groups=32),
                'bn2': nn.BatchNorm2d(width),
                'conv3': conv(width, after),
                'bn3': nn.BatchNorm2d(after),
                'se.fc1': conv(after, after // 16, bias=True),
                'se.fc2': conv(after // 16, after, bias=True),
            }
            if index == 0:
                block['downsample.0'] = conv(before, after, stride=stride)
                block['downsample.1'] = nn.BatchNorm2d(after)
            name = f'layer{stage}.{index}'
            layers |= {f'{name}.{key}': block[key] for key in block}
            before = after
    layers['fc'] = nn.Linear(2048, 1000)
    for layer in layers.values():
        if isinstance(layer, nn.BatchNorm2d):
            for positive in (layer.weight, layer.running_var):
                nn.init.uniform_(positive, 0.5, 1.5)
            for any_sign in (layer.bias, layer.running_mean):
                nn.init.normal_(any_sign)
        else:
            nn.init.kaiming_normal_(layer.weight)
    return {name: layer.eval() for name, layer in layers.items()}


def timm_features(layers: Layers, x: Tensor) -> list[Tensor]:
    """The four stages of timm's network in evaluation mode, stride 32."""
    x = layers['bn1'](layers['conv1'](x)).relu()
    x = F.max_pool2d(x, 3, stride=2, padding=1)
    stages = []
    for stage, blocks in enumerate(BLOCKS, 1):
        for index in range(blocks):
            name = f'layer{stage}.{index}.'
            block = {
                key.removeprefix(name): layers[key]
                for key in layers
                if key.startswith(name)
            }
            y = block['bn1'](block['conv1'](x)).relu()
            y = block['bn2'](block['conv2'](y)).relu()
            y = block['bn3'](block['conv3'](y))
            gate = block['se.fc1'](y.mean((2, 3), keepdim=True)).relu()
            y = y * block['se.fc2'](gate).sigmoid()
            if index == 0:
                x = block['downsample.1'](block['downsample.0'](x))
            x = (x + y).relu()
        stages.append(x)
    return stages


def test_converted_weights_give_timms_features():
    layers = timm_layers()
    sizes = [p.numel() for x in layers.values() for p in x.parameters()]
    assert sum(sizes) == 27_559_896  # as of timm's seresnext50_32x4d
    state = {
        f'{name}.{key}': tensor
        for name, layer in layers.items()
        for key, tensor in layer.state_dict().items()
    }
    converted = convert_timm_seresnext(state)
    assert len(converted) == len(state) - 2
    backbone = MODELS.build(dict(type='SEResNeXt'))
    backbone.load_state_dict(converted, strict=True)
    backbone.eval()
    torch.manual_seed(1)
    image = torch.rand(1, 3, 64, 64)
    with torch.no_grad():
        found, expected = backbone(image), timm_features(layers, image)
    for ours, timms in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, timms)
    # The tensors are passed on, not copied.
    for name in ('conv1.weight', 'layer3.5.bn3.running_var'):
        assert converted[name] is state[name]


@pytest.mark.parametrize(
    'name', ['conv1.0.weight', 'blocks.0.attn.qkv.weight']
)
def test_another_network_is_refused(name):
    with pytest.raises(ValueError, match='seresnext50_32x4d'):
        convert_timm_seresnext({name: torch.zeros(1)})
