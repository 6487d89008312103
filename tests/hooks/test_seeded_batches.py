"""Batches that seed: the same sample, the same numbers, whoever loads it."""

import random

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, SequentialSampler

from mmseg_margin.hooks.exact_resume_hook import (
    SeededBatchSampler,
    seed_generators,
)


def draw():
    numpy = np.random.rand()  # noqa: NPY002  (the generator under test)
    return random.random(), numpy, torch.rand(()).item()


class Draws:
    """Samples that are nothing but random numbers."""

    def __len__(self):
        return 5

    def __getitem__(self, index):
        return (index, *draw())


def batches(count, first=0, workers=0, endless=True, seed=7):
    sampler = SeededBatchSampler(
        SequentialSampler(Draws()), 2, False, seed, first, endless
    )
    loader = iter(
        DataLoader(
            Draws(),
            batch_sampler=sampler,
            num_workers=workers,
            collate_fn=list,
        )
    )
    return [next(loader) for _ in range(count)]


def test_generators_are_reset_and_keys_matter():
    seed_generators(1, 2)
    first = draw()
    seed_generators(1, 2)
    assert draw() == first
    for key in ((1, 3), (2, 2), (1, 2, 1), (1, 2, 0, 1)):
        seed_generators(*key)
        assert not set(draw()) & set(first)


@pytest.mark.parametrize('workers', [0, 2])
def test_the_nth_batch_is_always_the_same(workers):
    whole = batches(7)
    assert batches(4, first=3, workers=workers) == whole[3:]
    indices = [[sample[0] for sample in batch] for batch in whole]
    assert indices == [[0, 1], [2, 3], [4], [0, 1], [2, 3], [4], [0, 1]]


def test_no_two_samples_are_alike():
    samples = [sample[1:] for batch in batches(7) for sample in batch]
    assert len({number for sample in samples for number in sample}) == 36
    assert batches(1, seed=8) != batches(1)


def test_an_epoch_ends_and_its_numbers_go_on():
    assert batches(3, endless=False) == batches(3)
    with pytest.raises(StopIteration):
        batches(4, endless=False)
    assert batches(3, first=3, endless=False) == batches(6)[3:]
