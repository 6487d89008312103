"""The examples run, and learn what they are meant to show."""

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

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
