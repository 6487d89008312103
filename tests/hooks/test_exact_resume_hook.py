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

JACCARD = {'type': 'JaccardLoss'}


@pytest.fixture
def config(root, tmp_path):
    return training_config(root, tmp_path / 'whole', loss=JACCARD)


def is_resumed(config, checkpoint='iter_5.pth', other=None, **settings):
    """Whether a training, resumed in a new work dir, has the same weights."""
    whole = train(config, **settings)
    config = config.copy()
    config.load_from = f'{config.work_dir}/{checkpoint}'
    config.resume = True
    config.work_dir += '_resumed'
    config.experiment_name += '_resumed'
    config.train_dataloader.update(other or {})
    return same_weights(train(config, **settings), whole)


@pytest.mark.parametrize('workers', [0, 2])
def test_resumed_weights_are_the_same(config, workers):
    """Also if another number of workers loads the rest."""
    other = {'num_workers': workers, 'persistent_workers': workers > 0}
    assert is_resumed(config, other=other)


def test_on_two_ranks(config, tmp_path):
    def train_twice():
        return is_resumed(config, **ON_CPU)

    assert run_ranks(2, train_twice, tmp_path / 'ranks') == [True, True]


def test_without_the_hook_they_are_not(config):
    config.custom_hooks.pop()
    assert not is_resumed(config)


def test_a_sampler_that_ends_and_a_random_seed(config):
    config.train_dataloader.sampler.type = 'DefaultSampler'
    config.randomness = {'seed': None}
    assert is_resumed(config)


def test_training_by_epochs(config):
    config.train_dataloader.sampler.type = 'DefaultSampler'
    config.train_cfg = {'type': 'EpochBasedTrainLoop', 'max_epochs': 3}
    config.default_hooks.checkpoint.by_epoch = True
    assert is_resumed(config, 'epoch_2.pth')


def test_validation_in_between_changes_nothing(config, tmp_path):
    config.train_cfg.max_iters = 4
    plain = train(config)
    config.work_dir = str(tmp_path / 'validated')
    config.experiment_name += '_validated'
    add_validation(config, interval=2)
    assert same_weights(train(config), plain)


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


def batches(count, first=0, workers=0, endless=True, seed=7):
    draws = Draws()
    parts = SequentialSampler(draws), 2, False
    sampler = SeededBatchSampler(
        *parts, seed=seed, first=first, endless=endless
    )
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


@pytest.mark.parametrize('workers', [0, 2])
def test_the_nth_batch_is_always_the_same(workers):
    whole = batches(7)
    assert batches(4, first=3, workers=workers) == whole[3:]
    indices = [[sample[0] for sample in batch] for batch in whole]
    assert indices == [[0, 1], [2, 3], [4], [0, 1], [2, 3], [4], [0, 1]]
    numbers = {x for batch in whole for sample in batch for x in sample[1:]}
    assert len(numbers) == 36  # no two samples are alike
    assert batches(1, seed=8) != whole[:1]


def test_an_epoch_ends_and_its_numbers_go_on():
    assert batches(3, endless=False) == batches(3)
    with pytest.raises(StopIteration):
        batches(4, endless=False)
    assert batches(3, first=3, endless=False) == batches(6)[3:]
