"""SEResNeXt against timm's seresnext50_32x4d, by names and features."""

from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from mmseg.registry import MODELS
from torch import Tensor

from tools.converters.timm_seresnext import convert_timm_seresnext

STRIDE_8 = dict(strides=(1, 2, 1, 1), dilations=(1, 1, 2, 4))


def timm_features(state: dict[str, Tensor], x: Tensor) -> Iterator[Tensor]:
    """The four stages of timm's network with its weights, in eval mode."""

    def conv(x: Tensor, name: str, **settings) -> Tensor:
        bias = state.get(f'{name}.bias')
        return F.conv2d(x, state[f'{name}.weight'], bias, **settings)

    def norm(x: Tensor, name: str) -> Tensor:
        kinds = ('running_mean', 'running_var', 'weight', 'bias')
        return F.batch_norm(x, *(state[f'{name}.{kind}'] for kind in kinds))

    x = norm(conv(x, 'conv1', stride=2, padding=3), 'bn1').relu()
    x = F.max_pool2d(x, 3, 2, padding=1)
    for stage, blocks in enumerate((3, 4, 6, 3), 1):
        for block in range(blocks):
            name = f'layer{stage}.{block}'
            stride = 2 if block == 0 and stage > 1 else 1
            y = norm(conv(x, f'{name}.conv1'), f'{name}.bn1').relu()
            grouped = dict(stride=stride, padding=1, groups=32)
            y = norm(conv(y, f'{name}.conv2', **grouped), f'{name}.bn2').relu()
            y = norm(conv(y, f'{name}.conv3'), f'{name}.bn3')
            gate = conv(y.mean((2, 3), keepdim=True), f'{name}.se.fc1').relu()
            y = y * conv(gate, f'{name}.se.fc2').sigmoid()
            if block == 0:
                x = conv(x, f'{name}.downsample.0', stride=stride)
                x = norm(x, f'{name}.downsample.1')
            x = (x + y).relu()
        yield x


def test_converted_weights_give_timms_features():
    torch.manual_seed(0)
    backbone = MODELS.build(dict(type='SEResNeXt'))
    backbone.eval()
    state = {'fc.weight': torch.ones(9, 2048), 'fc.bias': torch.ones(9)}
    for name, tensor in backbone.state_dict().items():
        timm_name = name.replace('.se.conv', '.se.fc').replace('.conv.', '.')
        if name.endswith(('running_mean', 'running_var')):
            tensor = torch.rand_like(tensor) + 0.5
        state[timm_name] = tensor.clone()
    backbone.load_state_dict(convert_timm_seresnext(state), strict=True)
    image = torch.rand(1, 3, 64, 64)
    with torch.no_grad():
        found, expected = backbone(image), timm_features(state, image)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs)
    with pytest.raises(ValueError, match='seresnext50_32x4d'):
        convert_timm_seresnext({'blocks.0.attn.qkv.weight': torch.zeros(1)})


def test_recomputed_blocks_at_output_stride_8():
    backbone = MODELS.build(dict(STRIDE_8, type='SEResNeXt', with_cp=True))
    # As of timm's network without its classifier.
    assert sum(p.numel() for p in backbone.parameters()) == 25_510_896
    last = backbone(torch.rand(2, 3, 32, 48))[-1]
    assert last.shape == (2, 2048, 4, 6)
    last.sum().backward()
    assert all(p.grad is not None for p in backbone.layer4.parameters())
