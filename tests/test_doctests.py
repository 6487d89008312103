"""The examples in docstrings show what the code prints."""

import doctest
import importlib
import pkgutil

from mmseg_margin import functional, losses, offsets

PACKAGES = (functional, losses, offsets)


def test_examples():
    attempted = 0
    for package in PACKAGES:
        for module in pkgutil.iter_modules(package.__path__):
            if not module.name.startswith('triton'):
                name = f'{package.__name__}.{module.name}'
                result = doctest.testmod(importlib.import_module(name))
                assert result.failed == 0, name
                attempted += result.attempted
    assert attempted > 10
