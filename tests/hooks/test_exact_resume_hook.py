"""ExactResumeHook: resumed from any checkpoint, the same weights."""

import random

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, SequentialSampler

from mmseg_margin.hooks.exact_resume_hook import (
    SeededBatchSampler,
    seed_generators,
)
from tests.hooks.builders import ON_CPU
from tests.processes import run_ranks
from tests.small_training import (
    add_validation,
    same_weights,
    train,
    training_config,
)


@pytest.fixture
def config(root, tmp_path):
    loss = {'type': 'JaccardLoss'}
    return training_config(root, tmp_path / 'whole', loss=loss)


def is_resumed(config, checkpoint='iter_5.pth', workers=(0,), **settings):
    """Whether trainings, resumed in new work dirs, have the same weights.

    With each of these numbers of workers, validating in between.
    """
    whole = train(config, **settings)
    start = f'{config.work_dir}/{checkpoint}'
    for number in workers:
        config = config.copy()
        config.work_dir += '_resumed'
        config.experiment_name += '_resumed'
        loading = {'num_workers': number, 'persistent_workers': number > 0}
        config.train_dataloader.update(loading)
        add_validation(config, interval=2)
        resumed = train(config, load_from=start, resume=True, **settings)
        if not same_weights(resumed, whole):
            return False
    return True


def test_resumed_weights_are_the_same_and_not_without_the_hook(config):
    """Also if another number of workers loads the rest."""
    assert is_resumed(config, workers=(0, 2))
    config.work_dir += '_without'
    config.experiment_name += '_without'
    config.custom_hooks.pop()
    assert not is_resumed(config)


def test_on_two_ranks(config, tmp_path):
    def train_twice():
        return is_resumed(config, **ON_CPU)

    assert run_ranks(2, train_twice, tmp_path / 'ranks') == [True, True]


def test_a_sampler_that_ends_and_a_random_seed(config):
    config.train_dataloader.sampler.type = 'DefaultSampler'
    config.randomness = {'seed': None}
    assert is_resumed(config)


def test_training_by_epochs(config):
    config.train_dataloader.sampler.type = 'DefaultSampler'
    config.train_cfg = {'type': 'EpochBasedTrainLoop', 'max_epochs': 3}
    config.default_hooks.checkpoint.by_epoch = True
    assert is_resumed(config, 'epoch_2.pth')


def test_what_it_cannot_number_is_refused(config):
    sampler = {'type': BatchSampler, 'drop_last': False}
    config.train_dataloader.batch_sampler = sampler
    with pytest.raises(ValueError, match='without a batch_sampler'):
        train(config)
    config.train_dataloader = DataLoader([0, 1])
    with pytest.raises(ValueError, match='given as a config'):
        train(config)


def draw():
    numpy = np.random.rand()  # noqa: NPY002  (the generator under test)
    return random.random(), numpy, torch.rand(()).item()


class Draws:
    """Samples that are nothing but random numbers."""

    def __len__(self):
        return 5

    def __getitem__(self, index):
        return (index, *draw())


def batches(count, workers=0, seed=7, **settings):
    draws = Draws()
    parts = SequentialSampler(draws), 2, False
    settings = {'first': 0, 'endless': True, **settings}
    sampler = SeededBatchSampler(*parts, seed=seed, **settings)
    loader = DataLoader(
        draws, batch_sampler=sampler, num_workers=workers, collate_fn=list
    )
    iterator = iter(loader)
    return [next(iterator) for _ in range(count)]


def test_generators_are_reset_and_keys_matter():
    seed_generators(1, 2)
    first = draw()
    seed_generators(1, 2)
    assert draw() == first
    for key in ((1, 3), (2, 2), (1, 2, 1), (1, 2, 0, 1)):
        seed_generators(*key)
        assert not set(draw()) & set(first)


def test_the_nth_batch_is_always_the_same():
    whole = batches(7)
    for workers in (0, 2):
        assert batches(4, first=3, workers=workers) == whole[3:]
    indices = [[sample[0] for sample in batch] for batch in whole]
    assert indices == [[0, 1], [2, 3], [4], [0, 1], [2, 3], [4], [0, 1]]
    numbers = {x for batch in whole for sample in batch for x in sample[1:]}
    assert len(numbers) == 36  # no two samples are alike
    assert batches(1, seed=8) != whole[:1]
    # An epoch ends, and the numbers of the next one go on.
    assert batches(3, endless=False) == whole[:3]
    assert batches(3, first=3, endless=False) == whole[3:6]
    with pytest.raises(StopIteration):
        batches(4, endless=False)
