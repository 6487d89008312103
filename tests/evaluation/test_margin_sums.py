"""Eq. 8, 9 and 11 against a transcription of the paper, pixel by pixel."""

import numpy as np
import pytest
import torch

from mmseg_margin.evaluation.margin_sums import (
    Row,
    bound_scores,
    margin_sums,
)
from mmseg_margin.functional import margin_offsets


def phi(margin: float, rho: float) -> float:
    """The rho-margin loss of Eq. 9."""
    return min(1.0, max(0.0, 1.0 - margin / rho))


def reference(scores, labels, rho_0k, rho_k0) -> dict[str, list[float]]:
    """IoU and its bound from the definitions, with Python loops only."""
    num_classes, num_pixels = scores.shape
    table = {'iou': [], 'bound': [], 'inside': []}
    for k in range(num_classes):
        missed = claimed = loss_k0 = loss_0k = of_class = inside = 0.0
        for i in range(num_pixels):
            others = [scores[j, i] for j in range(num_classes) if j != k]
            margin = scores[k, i] - max(others)
            if labels[i] == k:
                of_class += 1
                missed += margin < 0
                loss_k0 += phi(margin, rho_k0[k])
                inside += 0 < margin < rho_k0[k]
            else:
                claimed += margin > 0
                loss_0k += phi(-margin, rho_0k[k])
                inside += 0 < -margin < rho_0k[k]
        share = of_class / num_pixels
        table['iou'].append(
            (share - missed / num_pixels) / (share + claimed / num_pixels)
        )
        table['bound'].append(
            (share - loss_k0 / num_pixels) / (share + loss_0k / num_pixels)
        )
        table['inside'].append(inside / num_pixels)
    return table


def random_image(seed: int, num_classes: int = 5, num_pixels: int = 300):
    """Scores that favour the label, and offsets that cut through them."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, num_classes, num_pixels)
    scores = rng.normal(size=(num_classes, num_pixels))
    scores[labels, np.arange(num_pixels)] += 1.5
    rho_0k, rho_k0 = rng.uniform(0.2, 3.0, (2, num_classes))
    return scores, labels, rho_0k, rho_k0


def sums_of(scores, labels, rho_0k, rho_k0) -> torch.Tensor:
    return margin_sums(*map(torch.tensor, (scores, labels, rho_0k, rho_k0)))


@pytest.mark.parametrize('seed', range(5))
def test_scores_equal_the_paper(seed):
    image = random_image(seed)
    scores = bound_scores(sums_of(*image))
    for name, expected in reference(*image).items():
        np.testing.assert_allclose(scores[name], expected, rtol=1e-12)


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
@pytest.mark.parametrize('tau', [1e-3, 10.0, 1e4])
def test_the_bound_never_exceeds_the_iou(dtype, tau):
    rng = np.random.default_rng(0)
    for num_classes in (2, 7, 19):
        counts = rng.integers(1, 10**6, num_classes)
        offsets = margin_offsets(counts, tau, upsilon=10)
        scores = torch.randn(num_classes, 4000).to(dtype)
        labels = torch.randint(0, num_classes, (4000,))
        rho_0k, rho_k0 = (torch.tensor(rho).to(dtype) for rho in offsets)
        table = bound_scores(margin_sums(scores, labels, rho_0k, rho_k0))
        assert (table['bound'] <= table['iou']).all()


def test_a_tie_counts_against_every_class_involved():
    scores = torch.tensor([[2.0], [2.0], [0.0]])
    sums = margin_sums(scores, torch.tensor([0]), *torch.full((2, 3), 0.5))
    assert sums[Row.LOSS_K0].tolist() == [1, 0, 0]
    assert sums[Row.LOSS_0K].tolist() == [0, 1, 0]


def test_offsets_far_below_half_precision_are_not_lost():
    scores = torch.tensor([[1.0, 1.0], [1.0 - 1e-6, 0.0]])
    rho = torch.full((2,), 5.69e-11)
    sums = margin_sums(scores, torch.tensor([0, 0]), rho, rho)
    assert sums[Row.LOSS_K0].sum() == 0


def test_a_zero_offset_is_the_zero_one_loss():
    scores = torch.tensor([[1.0, 1.0, 0.0], [1.0, 0.0, 1.0]])
    sums = margin_sums(scores, torch.tensor([0, 0, 0]), *torch.zeros(2, 2))
    assert sums[Row.LOSS_K0].tolist() == [2, 0]
    assert sums[Row.LOSS_0K].tolist() == [0, 2]
    assert sums[Row.INSIDE].tolist() == [0, 0]


def test_a_class_without_any_pixel_has_neither_iou_nor_bound():
    scores = torch.tensor([[1.0], [0.0], [0.9]])
    offsets = torch.full((2, 3), 0.5)
    table = bound_scores(margin_sums(scores, torch.tensor([0]), *offsets))
    assert np.isnan(table['iou'][1:]).all()
    assert np.isnan(table['bound'][1:]).all()
