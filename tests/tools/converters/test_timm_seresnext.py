"""Conversion of timm's SE-ResNeXt weights."""

import pytest
import torch

from tests.commands import output_of

TOOL = 'converters/timm_seresnext'


def test_names_are_converted_and_values_kept(capsys, tmp_path):
    state = {'conv1.weight': torch.rand(64, 3, 7, 7), 'fc.bias': torch.ones(9)}
    source = tmp_path / 'timm.pth'
    torch.save({'state_dict': state}, source)
    target = tmp_path / 'pretrain' / 'seresnext50_32x4d.pth'
    output = output_of(capsys, TOOL, source, target)
    assert output == f'1 tensors in {target}.\n'
    converted = torch.load(target, weights_only=True)['state_dict']
    assert list(converted) == ['conv1.weight']
    assert torch.equal(converted['conv1.weight'], state['conv1.weight'])


@pytest.mark.parametrize('content', [None, b'', b'no weights', bytes(400)])
def test_a_file_without_weights_is_refused(capsys, content, tmp_path):
    source, target = tmp_path / 'model.bin', tmp_path / 'out.pth'
    if content is not None:
        source.write_bytes(content)
    output = output_of(capsys, TOOL, source, target, code=1)
    problem = 'does not exist' if content is None else 'cannot be read as'
    assert f"'{source}' {problem}" in output
    assert not target.exists()
