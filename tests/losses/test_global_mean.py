"""global_mean=True: one batch, shared by any number of ranks."""

import numpy as np
import pytest
import torch
from mmengine.hooks import Hook
from mmengine.runner import Runner
from torch import distributed, nn

from mmseg_margin.losses import MarginCalibrationLoss
from tests.processes import run_ranks
from tests.small_training import training_config
from tests.stats.builders import write_label_file, write_set

COUNTS = [900, 80, 15, 5]
DDP = {'type': 'MMDistributedDataParallel', 'device_ids': None}


class LossesHook(Hook):
    """What the ranks report, and the statistics they have."""

    def before_train(self, runner):
        self.losses = []

    def after_train_iter(self, runner, batch_idx, data_batch, outputs):
        self.losses.append(outputs['loss'].item())

    def after_train(self, runner):
        (loss,) = (
            module
            for module in runner.model.modules()
            if isinstance(module, MarginCalibrationLoss)
        )
        self.offsets = loss.rho_0k, loss.rho_k0
        self.state = torch.tensor(loss.training_state().get('errors', []))


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
    config.optim_wrapper.optimizer = {
        'type': 'SGD',
        'lr': 0.05,
        'momentum': 0.9,
    }
    config.default_hooks.checkpoint.interval = 100
    parts = config.to_dict()
    parts.pop('custom_imports')
    parts['custom_hooks'].append(hook)
    runner = Runner(
        **parts, launcher='pytorch', cfg={'model_wrapper_cfg': dict(DDP)}
    )
    model = runner.train().module
    return {
        'weights': model.state_dict(),
        'losses': torch.tensor(hook.losses),
        'offsets': hook.offsets,
        'state': hook.state,
    }


@pytest.mark.parametrize(
    'settings',
    [
        {'form': 'jaccard', 'log_share': 0.25},
        {'class_weight': [0.5, 1.0, 2.0, 4.0]},
    ],
    ids=['jaccard', 'class_weight'],
)
def test_any_number_of_ranks_trains_the_same(uneven, tmp_path, settings):
    loss = {'global_mean': True, **settings}
    whole, *others = (
        run_ranks(
            size, train_rank, tmp_path / str(size), uneven, tmp_path, 4, loss
        )
        for size in (1, 4)
    )
    for ranks in others:
        mean = torch.stack([rank['losses'] for rank in ranks]).mean(0)
        torch.testing.assert_close(
            mean, whole[0]['losses'], rtol=1e-5, atol=1e-5
        )
        for rank in ranks:
            torch.testing.assert_close(
                rank['weights'], whole[0]['weights'], rtol=0, atol=1e-4
            )
            for mine, one in zip(
                rank['offsets'], whole[0]['offsets'], strict=True
            ):
                assert torch.equal(mine, one)
            torch.testing.assert_close(rank['state'], whole[0]['state'])


def gradient(scores, labels, **settings):
    """Of this rank's part of a batch, averaged as DDP does."""
    rank, size = distributed.get_rank(), distributed.get_world_size()
    torch.manual_seed(0)
    model = nn.Conv2d(3, 4, 1)
    loss = MarginCalibrationLoss(
        class_counts=COUNTS, backend='eager', **settings
    )
    value = loss(model(scores[rank::size]), labels[rank::size])
    value.backward()
    results = [value.detach(), model.weight.grad, model.bias.grad]
    for result in results:
        distributed.all_reduce(result)
        result /= size
    return results


def test_it_is_the_mean_over_all_pixels_and_the_default_is_not(tmp_path):
    torch.manual_seed(1)
    batch = torch.randn(2, 3, 4, 4), torch.randint(0, 4, (2, 4, 4))
    batch[1][0, :3] = 255

    def run(size, **settings):
        def work():
            return gradient(*batch, **settings)

        name = f'{size}{len(list(tmp_path.iterdir()))}'
        first, *others = run_ranks(size, work, tmp_path / name)
        assert all(torch.equal(a[1], first[1]) for a in others)
        return first

    for settings in ({}, {'class_weight': [1.0, 2.0, 3.0, 4.0]}):
        whole = run(1, **settings)
        for a, b in zip(
            run(2, global_mean=True, **settings), whole, strict=True
        ):
            torch.testing.assert_close(a, b)
        local = run(2, **settings)
        assert not torch.allclose(local[1], whole[1], rtol=1e-2)


def test_a_rank_without_labels_contributes_nothing(tmp_path):
    torch.manual_seed(1)
    batch = torch.randn(2, 3, 4, 4), torch.randint(0, 4, (2, 4, 4))
    batch[1][1] = 255

    def work():
        return gradient(*batch, global_mean=True)

    torch.testing.assert_close(
        run_ranks(2, work, tmp_path / 'two')[0],
        run_ranks(1, work, tmp_path / 'one')[0],
    )


def test_on_one_process_it_changes_nothing():
    scores, labels = torch.randn(2, 4, 4, 4), torch.randint(0, 4, (2, 4, 4))
    labels[:, 0] = 255
    alone, together = (
        MarginCalibrationLoss(
            class_counts=COUNTS, backend='eager', global_mean=flag
        )
        for flag in (False, True)
    )
    assert alone(scores, labels) == together(scores, labels)
    assert together(scores, labels.fill_(255)) == 0
