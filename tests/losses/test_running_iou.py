"""class_balance='iou': the weights, the running rates, and their survival."""

import subprocess
import sys
from ast import literal_eval

import pytest
import torch

from mmseg_margin.functional import (
    calibrated_log_loss,
    margin_calibration_loss,
    pixel_margins,
)
from mmseg_margin.losses import MarginCalibrationLoss
from mmseg_margin.losses.running_iou import RunningIoU, iou_weights

K = 4


def frozen_set(form):
    """Scores of a data set that a model is half done with."""
    generator = torch.Generator().manual_seed(1)
    P = 300
    labels = torch.multinomial(
        torch.tensor([0.7, 0.2, 0.07, 0.03]), P, True, generator=generator
    )
    scores = torch.randn(P, K, generator=generator, dtype=torch.float64)
    scores[torch.arange(P), labels] += 6.0
    rho_0k, rho_k0 = torch.rand(2, K, generator=generator).double() / 10
    return scores, labels, rho_0k, rho_k0


def bound_rates(scores, labels, rho_0k, rho_k0, form):
    """l_k0 and l_0k of the whole set, with the log-loss as surrogate."""
    lam = pixel_margins(scores)
    if form == 'target':
        own_score = scores.gather(1, labels[:, None])
        is_label = torch.arange(K) == labels[:, None]
        lam = torch.where(is_label, lam, scores - own_score)
    rates = []
    for k in range(K):
        own = labels == k
        rates.append(
            (
                own.double().mean(),
                calibrated_log_loss(lam[own, k], rho_k0[k]).sum() / len(own),
                calibrated_log_loss(-lam[~own, k], rho_0k[k]).sum() / len(own),
            )
        )
    return torch.stack([torch.stack(r) for r in rates], 1)


@pytest.mark.parametrize('form', ['paper', 'target'])
def test_weighted_gradient_follows_the_mean_bound(form):
    scores, labels, rho_0k, rho_k0 = frozen_set(form)

    def mean_bound(s):
        share, missed, taken = bound_rates(s, labels, rho_0k, rho_k0, form)
        return ((share - missed) / (share + taken)).mean()

    share, missed, taken = bound_rates(scores, labels, rho_0k, rho_k0, form)
    pos, neg = iou_weights(share, missed, taken)
    leaf = scores.clone().requires_grad_()
    margin_calibration_loss(
        leaf,
        labels,
        rho_0k,
        rho_k0,
        form=form,
        pos_weight=pos,
        neg_weight=neg,
        backend='eager',
    ).backward()
    step = 1e-6
    numeric = torch.zeros_like(scores)
    for i in range(0, len(scores), 7):
        for k in range(K):
            moved = scores.clone()
            moved[i, k] += step
            up = mean_bound(moved)
            moved[i, k] -= 2 * step
            numeric[i, k] = (up - mean_bound(moved)) / (2 * step)
    cosine = torch.cosine_similarity(
        -leaf.grad[::7].flatten(), numeric[::7].flatten(), dim=0
    )
    assert cosine > 0.99


def slow_rates(batches, share):
    own, missed, others, taken = (torch.zeros(K) for _ in range(4))
    for scores, labels in batches:
        for k in range(K):
            probability = scores[:, k].exp() / scores.exp().sum(1)
            own[k] += (labels == k).sum()
            missed[k] += (1 - probability)[labels == k].sum()
            background = (labels != k) & (labels != 255)
            others[k] += background.sum()
            taken[k] += probability[background].sum()
    return share * missed / own, (1 - share) * taken / others


def test_rates_are_those_of_the_data_seen():
    generator = torch.Generator().manual_seed(0)
    share = torch.tensor([0.4, 0.3, 0.2, 0.1])
    batches = []
    for _ in range(5):
        labels = torch.randint(0, K, (2, 400), generator=generator)
        labels[:, :50] = 255
        scores = torch.randn(2, K, 400, generator=generator)
        batches.append((scores, labels))
    running = RunningIoU(momentum=1 - 1e-9)
    running.start(share)
    for scores, labels in batches:
        running.update(scores, labels, 255)
    # The start counts as one pixel of each kind.
    for rate, expected in zip(
        running.rates(), slow_rates(batches, share), strict=True
    ):
        torch.testing.assert_close(rate, expected, rtol=0.02, atol=1e-3)


def test_an_unseen_class_keeps_its_rates():
    running = RunningIoU(momentum=0.5)
    running.start(torch.tensor([0.5, 0.3, 0.1, 0.1]))
    before = running.rates()[0][3].clone()
    for _ in range(500):
        running.update(torch.randn(1, K, 64), torch.zeros(1, 64).long(), 255)
    assert running.rates()[0][3] == before
    assert all(rate.isfinite().all() for rate in running.rates())


def test_weights_change_while_training_and_survive_a_resume():
    torch.manual_seed(0)
    scores = torch.randn(2, K, 16, 16)
    labels = torch.randint(0, K, (2, 16, 16))
    loss = MarginCalibrationLoss(
        class_counts=[70, 20, 7, 3], class_balance='iou', backend='eager'
    )
    first = loss(scores, labels)
    second = loss(scores, labels)
    assert first != second
    resumed = MarginCalibrationLoss(
        class_counts=[70, 20, 7, 3], class_balance='iou', backend='eager'
    )
    resumed.load_training_state(loss.training_state())
    assert resumed(scores, labels) == loss(scores, labels)
    loss.eval()
    assert loss(scores, labels) == loss(scores, labels)


RANK_CODE = """
import sys, torch, torch.distributed as dist
from mmseg_margin.losses.running_iou import RunningIoU
rank, world, file = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
dist.init_process_group(
    'gloo', init_method='file://' + file, rank=rank, world_size=world)
torch.manual_seed(0)
scores, labels = torch.randn(4, 4, 64), torch.randint(0, 4, (4, 64))
running = RunningIoU(0.9)
running.start(torch.tensor([0.4, 0.3, 0.2, 0.1]))
for _ in range(3):
    running.update(scores[rank::world], labels[rank::world], 255)
print('SUMS', running.sums.flatten().tolist())
"""


def test_ranks_agree_with_one_process(tmp_path):
    def run(world):
        processes = [
            subprocess.Popen(
                [sys.executable, '-c', RANK_CODE, *map(str, arguments)],
                stdout=subprocess.PIPE,
                text=True,
            )
            for arguments in (
                (rank, world, tmp_path / f'store{world}')
                for rank in range(world)
            )
        ]
        outputs = [p.communicate(timeout=300)[0] for p in processes]
        return [literal_eval(o.partition('SUMS')[2].strip()) for o in outputs]

    first, second = run(2)
    assert first == second
    assert first == pytest.approx(run(1)[0], rel=1e-5)
