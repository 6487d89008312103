"""global_mean=True: one batch, split over any number of ranks."""

import numpy as np
import pytest
import torch
from mmengine.hooks import Hook
from torch import distributed

from tests.hooks.builders import ON_CPU
from tests.processes import run_ranks
from tests.small_training import PLAIN, train, training_config
from tests.stats.builders import write_label_file, write_set

close = torch.testing.assert_close


class LossesHook(Hook):
    """Records the losses of a rank."""

    def before_train(self, runner):
        self.losses = []

    def after_train_iter(self, runner, batch_idx, data_batch, outputs):
        self.losses.append(outputs['loss'].item())


@pytest.fixture
def uneven(tmp_path):
    """Images with very different numbers of labelled pixels; one with none."""
    root = write_set(tmp_path / 'data', 8)
    generator = np.random.default_rng(0)
    for index in range(8):
        labels = generator.integers(0, 4, (32, 48)).astype(np.uint8)
        labels[generator.random((32, 48)) < index / 7] = 255
        write_label_file(root, index, labels)
    return root


def train_rank(root, work_dir, loss):
    """Train on a part of batches of four."""
    hook = LossesHook()
    config = training_config(root, work_dir, 6, PLAIN, loss=loss)
    size = 4 // distributed.get_world_size()
    config.train_dataloader.batch_size = size
    sgd = {'type': 'SGD', 'lr': 0.05, 'momentum': 0.9}
    config.optim_wrapper.optimizer = sgd
    config.default_hooks.checkpoint.interval = 100
    config.custom_hooks.append(hook)
    weights = train(config, **ON_CPU)
    return weights, torch.tensor(hook.losses)


@pytest.mark.parametrize(
    'loss',
    [
        {'type': 'JaccardLoss', 'ce_ramp': 1},
        {'global_mean': True, 'class_weight': [0.5, 1.0, 2.0, 4.0]},
    ],
    ids=['jaccard', 'class_weight'],
)
def test_any_number_of_ranks_trains_the_same(uneven, tmp_path, loss):
    (whole,), ranks = (
        run_ranks(
            *(size, train_rank, tmp_path / f'ranks{size}'),
            *(uneven, tmp_path / str(size), loss),
        )
        for size in (1, 4)
    )
    mean = torch.stack([losses for _, losses in ranks]).mean(0)
    close(mean, whole[1], rtol=1e-5, atol=1e-5)
    for weights, _ in ranks:
        close(weights, whole[0], rtol=0, atol=1e-4)
