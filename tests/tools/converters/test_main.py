"""The converters as users call them."""

import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.layouts import make_camvid_segnet, make_endovis_challenge

CONVERTERS = Path(__file__).parents[3] / 'tools' / 'converters'
Convert = Callable[[str, Path, Path], None]


@pytest.fixture
def convert(monkeypatch: pytest.MonkeyPatch) -> Convert:
    """Run a converter's file as the main program of this process."""

    def run(name: str, source: Path, target: Path) -> None:
        path = str(CONVERTERS / f'{name}.py')
        monkeypatch.setattr(sys, 'argv', [path, str(source), str(target)])
        runpy.run_path(path, run_name='__main__')

    return run


def test_endovis(convert, tmp_path, capsys):
    source = make_endovis_challenge(tmp_path / 'challenge')
    convert('endovis', source, tmp_path / 'endovis2017')
    assert 'train 6, val 6, test 6' in capsys.readouterr().out
    assert len(list(tmp_path.glob('endovis2017/labels/*/*.png'))) == 18


def test_camvid(convert, tmp_path, capsys):
    source = make_camvid_segnet(tmp_path / 'segnet')
    convert('camvid', source, tmp_path / 'camvid')
    assert 'train 2, val 2, test 2' in capsys.readouterr().out


def test_timm_seresnext(convert, tmp_path):
    state = {'conv1.weight': torch.rand(64, 3, 7, 7), 'fc.bias': torch.ones(9)}
    torch.save({'state_dict': state}, tmp_path / 'timm.pth')
    target = tmp_path / 'pretrain' / 'seresnext50_32x4d.pth'
    convert('timm_seresnext', tmp_path / 'timm.pth', target)
    converted = torch.load(target, weights_only=True)['state_dict']
    assert list(converted) == ['conv1.weight']
    assert torch.equal(converted['conv1.weight'], state['conv1.weight'])


@pytest.mark.parametrize('name', ['endovis', 'camvid', 'timm_seresnext'])
def test_a_missing_source_is_one_sentence(convert, name, tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        convert(name, tmp_path / 'missing', tmp_path / 'out')
    assert ended.value.code == 1
    assert str(tmp_path / 'missing') in capsys.readouterr().err


@pytest.mark.parametrize('content', [b'', b'no weights', bytes(400)])
def test_a_file_without_weights_is_one_sentence(
    convert, content, tmp_path, capsys
):
    (tmp_path / 'model.bin').write_bytes(content)
    with pytest.raises(SystemExit) as ended:
        convert('timm_seresnext', tmp_path / 'model.bin', tmp_path / 'out.pth')
    assert ended.value.code == 1
    assert 'cannot be read as weights' in capsys.readouterr().err
    assert not (tmp_path / 'out.pth').exists()
