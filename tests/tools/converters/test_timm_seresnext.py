"""Conversion of timm's SE-ResNeXt weights."""

import torch

from tests.commands import output_of


def test_the_classifier_is_dropped_and_values_are_kept(capsys, tmp_path):
    state = {'conv1.weight': torch.rand(64, 3, 7, 7), 'fc.bias': torch.ones(9)}
    source, target = tmp_path / 'timm.pth', tmp_path / 'new' / 'seresnext.pth'
    torch.save({'state_dict': state}, source)
    output_of(capsys, 'converters/timm_seresnext', source, target)
    converted = torch.load(target, weights_only=True)['state_dict']
    assert list(converted) == ['conv1.weight']
    assert torch.equal(converted['conv1.weight'], state['conv1.weight'])
