"""ExactResumeHook: resumed from any checkpoint, the same weights."""

import pytest
from torch.utils.data import BatchSampler, DataLoader

from tests.processes import run_ranks
from tests.small_training import (
    add_validation,
    same_weights,
    train,
    training_config,
)

JACCARD = {'form': 'jaccard'}


def train_in_two_parts(config, checkpoint, **settings):
    """Resume from a checkpoint of an earlier run, in a new work dir."""
    config = config.copy()
    config.load_from = f'{config.work_dir}/{checkpoint}'
    config.resume = True
    config.work_dir += '_resumed'
    config.experiment_name += '_resumed'
    return train(config, **settings)


@pytest.mark.parametrize('workers', [0, 2])
def test_resumed_weights_are_the_same(root, tmp_path, workers):
    """Also if another number of workers loads the rest."""
    config = training_config(root, tmp_path / 'whole', loss=JACCARD)
    whole = train(config)
    config.train_dataloader.num_workers = workers
    config.train_dataloader.persistent_workers = workers > 0
    assert same_weights(train_in_two_parts(config, 'iter_5.pth'), whole)


def test_on_two_ranks(root, tmp_path):
    ddp = {'type': 'MMDistributedDataParallel', 'device_ids': None}
    settings = {'launcher': 'pytorch', 'cfg': {'model_wrapper_cfg': ddp}}

    def train_twice():
        config = training_config(root, tmp_path / 'whole', loss=JACCARD)
        whole = train(config, **settings)
        return whole, train_in_two_parts(config, 'iter_5.pth', **settings)

    for whole, resumed in run_ranks(2, train_twice, tmp_path / 'ranks'):
        assert same_weights(resumed, whole)


def test_without_the_hook_they_are_not(root, tmp_path):
    config = training_config(root, tmp_path / 'whole', loss=JACCARD)
    config.custom_hooks.pop()
    whole = train(config)
    assert not same_weights(train_in_two_parts(config, 'iter_5.pth'), whole)


def test_a_sampler_that_ends_and_a_seed_that_nobody_chose(root, tmp_path):
    config = training_config(root, tmp_path / 'whole')
    config.train_dataloader.sampler.type = 'DefaultSampler'
    config.randomness = {'seed': None}
    whole = train(config)
    assert same_weights(train_in_two_parts(config, 'iter_5.pth'), whole)


def test_training_by_epochs(root, tmp_path):
    config = training_config(root, tmp_path / 'whole')
    config.train_dataloader.sampler.type = 'DefaultSampler'
    config.train_cfg = {'type': 'EpochBasedTrainLoop', 'max_epochs': 3}
    config.default_hooks.checkpoint.by_epoch = True
    whole = train(config)
    assert same_weights(train_in_two_parts(config, 'epoch_2.pth'), whole)


def test_validation_in_between_changes_nothing(root, tmp_path):
    config = training_config(root, tmp_path / 'plain', max_iters=4)
    plain = train(config)
    config.work_dir = str(tmp_path / 'validated')
    config.experiment_name += '_validated'
    add_validation(config, interval=2)
    assert same_weights(train(config), plain)


def test_what_it_cannot_number_is_refused(root, tmp_path):
    config = training_config(root, tmp_path / 'work')
    config.train_dataloader.batch_sampler = {
        'type': BatchSampler,
        'drop_last': False,
    }
    with pytest.raises(ValueError, match='without a batch_sampler'):
        train(config)


def test_a_loader_that_is_already_built_is_refused(root, tmp_path):
    config = training_config(root, tmp_path / 'work')
    config.train_dataloader = DataLoader([0, 1])
    with pytest.raises(ValueError, match='given as a config'):
        train(config)
