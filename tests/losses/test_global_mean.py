"""global_mean=True: one batch, split over any number of ranks."""

import numpy as np
import pytest
import torch
from mmengine.hooks import Hook
from torch import distributed, nn

from tests.hooks.builders import ON_CPU
from tests.losses.builders import margin
from tests.processes import run_ranks
from tests.small_training import train, training_config
from tests.stats.builders import write_label_file, write_set

COUNTS = [900, 80, 15, 5]
close = torch.testing.assert_close


class LossesHook(Hook):
    """Records the losses of a rank, and the buffers of its loss."""

    def before_train(self, runner):
        self.losses = []

    def after_train_iter(self, runner, batch_idx, data_batch, outputs):
        self.losses.append(outputs['loss'].item())

    def after_train(self, runner):
        loss = runner.model.module.decode_head.loss_decode
        self.buffers = list(loss.buffers())


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


def train_rank(root, work_dir, batch_size, loss):
    hook = LossesHook()
    size = distributed.get_world_size()
    config = training_config(
        root,
        work_dir / f'ranks{size}',
        max_iters=6,
        batch_size=batch_size // size,
        loss=loss,
    )
    config.model.decode_head.dropout_ratio = 0
    sgd = {'type': 'SGD', 'lr': 0.05, 'momentum': 0.9}
    config.optim_wrapper.optimizer = sgd
    config.default_hooks.checkpoint.interval = 100
    config.custom_hooks.append(hook)
    weights = train(config, **ON_CPU)
    return weights, torch.tensor(hook.losses), hook.buffers


@pytest.mark.parametrize(
    'settings',
    [
        {'type': 'JaccardLoss', 'ce_ramp': 1},
        {'global_mean': True, 'class_weight': [0.5, 1.0, 2.0, 4.0]},
    ],
    ids=['jaccard', 'class_weight'],
)
def test_any_number_of_ranks_trains_the_same(uneven, tmp_path, settings):
    arguments = uneven, tmp_path, 4, settings
    (whole,), ranks = (
        run_ranks(size, train_rank, tmp_path / str(size), *arguments)
        for size in (1, 4)
    )
    mean = torch.stack([losses for _, losses, *_ in ranks]).mean(0)
    close(mean, whole[1], rtol=1e-5, atol=1e-5)
    for weights, _, buffers in ranks:
        close(weights, whole[0], rtol=0, atol=1e-4)
        close(buffers, whole[2], rtol=0, atol=0)


def gradient(scores, labels, **settings):
    """Loss and gradients of a rank's part of a batch, averaged as by DDP."""
    rank, size = distributed.get_rank(), distributed.get_world_size()
    torch.manual_seed(0)
    model = nn.Conv2d(3, 4, 1)
    loss = margin(class_counts=COUNTS, **settings)
    value = loss(model(scores[rank::size]), labels[rank::size])
    value.backward()
    results = [value.detach(), model.weight.grad, model.bias.grad]
    for result in results:
        distributed.all_reduce(result)
        result /= size
    return results


@pytest.mark.parametrize('ignored_rows', [3, 4])
def test_it_is_the_mean_over_all_pixels_and_the_default_is_not(
    tmp_path, ignored_rows
):
    """Also if one of the ranks has no labels at all."""
    torch.manual_seed(1)
    batch = torch.randn(2, 3, 4, 4), torch.randint(0, 4, (2, 4, 4))
    batch[1][0, :ignored_rows] = 255

    def run(size, **settings):
        def work():
            return gradient(*batch, **settings)

        name = f'{size}{len(list(tmp_path.iterdir()))}'
        first, *others = run_ranks(size, work, tmp_path / name)
        assert all(torch.equal(a[1], first[1]) for a in others)
        return first

    for settings in ({}, {'class_weight': [1.0, 2.0, 3.0, 4.0]}):
        whole = run(1, **settings)
        close(run(2, global_mean=True, **settings), whole)
        local = run(2, **settings)
        assert not torch.allclose(local[1], whole[1], rtol=1e-2)


def test_on_one_process_it_changes_nothing():
    scores, labels = torch.randn(2, 4, 4, 4), torch.randint(0, 4, (2, 4, 4))
    labels[:, 0] = 255
    alone, together = (
        margin(class_counts=COUNTS, global_mean=flag) for flag in (False, True)
    )
    assert alone(scores, labels) == together(scores, labels)
    assert together(scores, labels.fill_(255)) == 0
