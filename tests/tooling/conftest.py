"""The fake Cityscapes and the model of the evaluation tests."""

from tests.evaluation.conftest import checkpoint, cityscapes, config

__all__ = ['checkpoint', 'cityscapes', 'config']
