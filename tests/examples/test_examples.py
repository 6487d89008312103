"""The examples run, and learn what they are meant to show."""

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.commands import output_of_python

EXAMPLES = Path(__file__).parents[2] / 'examples'


def load(name: str) -> Callable[[], Any]:
    return runpy.run_path(str(EXAMPLES / f'{name}.py'))['main']


def test_plain_pytorch():
    assert load('plain_pytorch')() > 0.9


def test_transformers_segformer():
    for package in ('transformers', 'accelerate'):
        pytest.importorskip(package, reason=f'needs {package}')
    assert load('transformers_segformer')() > 0.7


def test_offsets_any_network():
    before, after = load('offsets_any_network')()
    assert after > before + 0.03


@pytest.mark.parametrize('name', ['plain_pytorch', 'offsets_any_network'])
def test_with_torch_and_numpy_alone(name, tmp_path, installed):
    """From an installed package, without MMSegmentation and the rest."""
    absent = ('mmseg', 'mmcv', 'mmengine', 'PIL', 'matplotlib', 'rich')
    program = (
        f'import runpy, sys; sys.modules.update(dict.fromkeys({absent}))\n'
        f"runpy.run_path({str(EXAMPLES / name) + '.py'!r}, None, '__main__')"
    )
    said = output_of_python(tmp_path, '-c', program, PYTHONPATH=str(installed))
    assert 'mIoU on new images' in said
