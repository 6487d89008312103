"""The weights of timm's seresnext50_32x4d give the same network here.

timm needs torchvision, so its state dict is rebuilt from its key names and
shapes, and its forward pass is written out below from its description.
"""

import pytest
import torch
import torch.nn.functional as F
from mmseg.registry import MODELS
from torch import Tensor

from mmseg_margin.models import convert_timm_seresnext

BLOCKS = (3, 4, 6, 3)
State = dict[str, Tensor]


def timm_state() -> State:
    """Random tensors under timm's names, with timm's shapes."""
    generator = torch.Generator().manual_seed(0)
    state: State = {}

    def conv(name: str, *shape: int, bias: bool = False) -> None:
        fan_in = shape[1] * shape[2] * shape[3]
        weight = torch.randn(shape, generator=generator)
        state[f'{name}.weight'] = weight * (2 / fan_in) ** 0.5
        if bias:
            state[f'{name}.bias'] = torch.randn(shape[0], generator=generator)

    def norm(name: str, channels: int) -> None:
        def positive() -> Tensor:
            return 0.5 + torch.rand(channels, generator=generator)

        state[f'{name}.weight'] = positive()
        state[f'{name}.bias'] = torch.randn(channels, generator=generator)
        state[f'{name}.running_mean'] = state[f'{name}.bias'].flip(0)
        state[f'{name}.running_var'] = positive()
        state[f'{name}.num_batches_tracked'] = torch.tensor(7)

    conv('conv1', 64, 3, 7, 7)
    norm('bn1', 64)
    before = 64
    for stage, blocks in enumerate(BLOCKS, 1):
        width, after = 64 * 2**stage, 128 * 2**stage
        for index in range(blocks):
            block = f'layer{stage}.{index}'
            conv(f'{block}.conv1', width, before, 1, 1)
            norm(f'{block}.bn1', width)
            conv(f'{block}.conv2', width, width // 32, 3, 3)
            norm(f'{block}.bn2', width)
            conv(f'{block}.conv3', after, width, 1, 1)
            norm(f'{block}.bn3', after)
            conv(f'{block}.se.fc1', after // 16, after, 1, 1, bias=True)
            conv(f'{block}.se.fc2', after, after // 16, 1, 1, bias=True)
            if index == 0:
                conv(f'{block}.downsample.0', after, before, 1, 1)
                norm(f'{block}.downsample.1', after)
            before = after
    state['fc.weight'] = torch.zeros(1000, 2048)
    state['fc.bias'] = torch.zeros(1000)
    return state


def timm_features(state: State, x: Tensor) -> list[Tensor]:
    """The four stages of timm's network in evaluation mode, stride 32."""

    def norm(x: Tensor, name: str) -> Tensor:
        keys = ('running_mean', 'running_var', 'weight', 'bias')
        return F.batch_norm(x, *(state[f'{name}.{key}'] for key in keys))

    x = F.conv2d(x, state['conv1.weight'], stride=2, padding=3)
    x = F.max_pool2d(norm(x, 'bn1').relu(), 3, stride=2, padding=1)
    stages = []
    for stage, blocks in enumerate(BLOCKS, 1):
        for index in range(blocks):
            block = f'layer{stage}.{index}'
            stride = 2 if stage > 1 and index == 0 else 1
            y = F.conv2d(x, state[f'{block}.conv1.weight'])
            y = norm(y, f'{block}.bn1').relu()
            weight = state[f'{block}.conv2.weight']
            y = F.conv2d(y, weight, stride=stride, padding=1, groups=32)
            y = norm(y, f'{block}.bn2').relu()
            y = F.conv2d(y, state[f'{block}.conv3.weight'])
            y = norm(y, f'{block}.bn3')
            gate = y.mean((2, 3), keepdim=True)
            for layer, activation in (('fc1', F.relu), ('fc2', F.sigmoid)):
                name = f'{block}.se.{layer}'
                weight, bias = state[f'{name}.weight'], state[f'{name}.bias']
                gate = activation(F.conv2d(gate, weight, bias))
            y = y * gate
            if index == 0:
                weight = state[f'{block}.downsample.0.weight']
                x = F.conv2d(x, weight, stride=stride)
                x = norm(x, f'{block}.downsample.1')
            x = (x + y).relu()
        stages.append(x)
    return stages


def test_converted_weights_give_timms_features():
    state = timm_state()
    sizes = {
        name: tensor.numel()
        for name, tensor in state.items()
        if not name.endswith(('mean', 'var', 'tracked'))
    }
    assert sum(sizes.values()) == 27_559_896  # as of timm's seresnext50_32x4d
    converted = convert_timm_seresnext(state)
    assert len(converted) == len(state) - 2
    backbone = MODELS.build(dict(type='SEResNeXt'))
    backbone.load_state_dict(converted, strict=True)
    backbone.eval()
    torch.manual_seed(1)
    image = torch.rand(1, 3, 64, 64)
    with torch.no_grad():
        found, expected = backbone(image), timm_features(state, image)
    for ours, timms in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, timms)
    # The values are not touched.
    for name in ('conv1.weight', 'layer3.5.bn3.running_var'):
        assert converted[name] is state[name]


@pytest.mark.parametrize(
    'name', ['conv1.0.weight', 'blocks.0.attn.qkv.weight']
)
def test_another_network_is_refused(name):
    with pytest.raises(ValueError, match='seresnext50_32x4d'):
        convert_timm_seresnext({name: torch.zeros(1)})
