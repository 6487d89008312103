"""The converters as users call them."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.layouts import make_camvid_segnet, make_endovis_challenge

CONVERTERS = Path(__file__).parents[2] / 'tools' / 'converters'


def convert(
    name: str, source: Path, target: Path
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, CONVERTERS / f'{name}.py', source, target],
        capture_output=True,
        text=True,
        check=False,
    )


def test_endovis(tmp_path):
    source = make_endovis_challenge(tmp_path / 'challenge')
    result = convert('endovis', source, tmp_path / 'endovis2017')
    assert result.returncode == 0, result.stderr
    assert 'train 6, val 6, test 6' in result.stdout
    assert len(list(tmp_path.glob('endovis2017/labels/*/*.png'))) == 18


def test_camvid(tmp_path):
    source = make_camvid_segnet(tmp_path / 'segnet')
    result = convert('camvid', source, tmp_path / 'camvid')
    assert result.returncode == 0, result.stderr
    assert 'train 2, val 2, test 2' in result.stdout


def test_timm_seresnext(tmp_path):
    state = {'conv1.weight': torch.rand(64, 3, 7, 7), 'fc.bias': torch.ones(9)}
    torch.save({'state_dict': state}, tmp_path / 'timm.pth')
    target = tmp_path / 'pretrain' / 'seresnext50_32x4d.pth'
    result = convert('timm_seresnext', tmp_path / 'timm.pth', target)
    assert result.returncode == 0, result.stderr
    converted = torch.load(target, weights_only=True)['state_dict']
    assert list(converted) == ['conv1.weight']
    assert torch.equal(converted['conv1.weight'], state['conv1.weight'])


@pytest.mark.parametrize('name', ['endovis', 'camvid', 'timm_seresnext'])
def test_a_missing_source_is_one_sentence(name, tmp_path):
    result = convert(name, tmp_path / 'missing', tmp_path / 'out')
    assert result.returncode == 1
    assert 'missing' in result.stderr
    assert 'Traceback' not in result.stderr


def test_a_file_that_holds_no_weights_is_one_sentence(tmp_path):
    (tmp_path / 'model.safetensors').write_bytes(b'no pickle')
    result = convert(
        'timm_seresnext', tmp_path / 'model.safetensors', tmp_path / 'out.pth'
    )
    assert result.returncode == 1
    assert 'not a PyTorch file' in result.stderr
    assert 'Traceback' not in result.stderr
