"""Conversion of timm's SE-ResNeXt weights."""

import torch

from tests.commands import output_of

TOOL = 'converters/timm_seresnext'


def test_names_are_converted_and_values_kept(capsys, tmp_path):
    state = {'conv1.weight': torch.rand(64, 3, 7, 7), 'fc.bias': torch.ones(9)}
    source = tmp_path / 'timm.pth'
    target = tmp_path / 'pretrain' / 'seresnext50_32x4d.pth'
    assert 'exist' in output_of(capsys, TOOL, source, target, code=1)
    source.write_bytes(b'no weights')
    assert 'PyTorch' in output_of(capsys, TOOL, source, target, code=1)
    torch.save({'state_dict': state}, source)
    output_of(capsys, TOOL, source, target)
    converted = torch.load(target, weights_only=True)['state_dict']
    assert list(converted) == ['conv1.weight']
    assert torch.equal(converted['conv1.weight'], state['conv1.weight'])
