"""The examples in docstrings show what the code prints."""

import doctest
import importlib
import pkgutil

import pytest

import mmseg_margin
from mmseg_margin import functional, losses, offsets

PACKAGES = (functional, losses, offsets)
MODULES = [
    f'{package.__name__}.{module.name}'
    for package in PACKAGES
    for module in pkgutil.iter_modules(package.__path__)
    if not module.name.startswith('triton')
]


@pytest.mark.parametrize('name', MODULES)
def test_examples(name):
    failed, _ = doctest.testmod(importlib.import_module(name))
    assert failed == 0


def test_some_are_run():
    tried = [doctest.testmod(importlib.import_module(n)) for n in MODULES]
    assert sum(result.attempted for result in tried) > 10
    assert mmseg_margin.__version__
