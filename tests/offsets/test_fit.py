"""What can be said of the fit, for any network."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from mmseg_margin.errors import DataSetError, SettingError
from mmseg_margin.offsets import fit_offsets
from mmseg_margin.offsets.fit import GRID, Ascent
from tests.commands import run_python

PRIORS = torch.tensor([0.5, 0.3, 0.12, 0.06, 0.02])
K = len(PRIORS)
ZEROS = torch.zeros(K)
SIDE = 40


def mean_iou(scores: Tensor, labels: Tensor, offsets: Tensor) -> float:
    """Of scores (N, K, ...) and the labelled classes, by sets of pixels."""
    predicted = (scores.movedim(1, -1) + offsets).argmax(-1)
    values = []
    for k in labels.unique().tolist():
        hit = int(((predicted == k) & (labels == k)).sum())
        values.append(hit / int(((predicted == k) | (labels == k)).sum()))
    return sum(values) / len(values)


@pytest.mark.parametrize('seed', range(3))
def test_a_curve_of_the_ascent_is_miou_at_each_offset(seed):
    """Also after many moves, large and small ones."""
    generator = torch.Generator().manual_seed(seed)
    # On multiples of 1/32 between the offsets, so without ties.
    scores = torch.randint(-96, 96, (300, K), generator=generator) / 32
    scores = scores + torch.arange(K) / 4096
    labels = torch.randint(K - 1, (300,), generator=generator)
    ascent, offsets = Ascent(scores, labels), torch.zeros(K)
    for step in range(8):
        k = step % K
        expected = []
        for value in GRID:
            offsets[k] = value
            expected.append(mean_iou(scores, labels, offsets))
        assert ascent.curve(k).tolist() == expected
        for moved in (k, (k + 3) % K, (k + 4) % K):
            chosen = torch.randint(len(GRID), (), generator=generator)
            offsets[moved] = GRID[chosen]
            ascent.move(moved, GRID[chosen])
    offsets = ascent.run()
    for k in range(K - 1):  # the last class has no label
        best = mean_iou(scores, labels, offsets)
        assert ascent.curve(k).max() == pytest.approx(best, abs=1e-12)


def make_network(num_images: int = 12) -> tuple[Tensor, Tensor]:
    """Log-posteriors of Gaussian classes, (N, K, H, W), and labels."""
    shape = num_images, SIDE, SIDE
    generator = torch.Generator().manual_seed(0)
    size = num_images * SIDE * SIDE
    labels = torch.multinomial(PRIORS, size, True, generator=generator)
    noise = torch.randn(size, K, generator=generator)
    scores = 2 * (2 * one_hot(labels, K) + noise) + PRIORS.log()
    return scores.view(*shape, K).movedim(-1, 1), labels.view(shape)


def fit(scores: Tensor, labels: Tensor, **settings) -> Tensor:
    return fit_offsets([(scores, labels)], **settings)


def test_more_miou_on_other_images_and_disturbed_biases_are_recovered():
    scores, labels = make_network(40)
    unseen = scores[1::2], labels[1::2]
    offsets = fit(scores[::2], labels[::2])
    assert mean_iou(*unseen, offsets) > mean_iou(*unseen, ZEROS) + 0.002
    disturbance = torch.tensor([0.0, 1.5, -2.0, 1.0, -1.25])
    disturbed = scores + disturbance[:, None, None]
    expected, found = fit(scores, labels), fit(disturbed, labels)
    difference = found + disturbance - expected
    assert (difference - difference[0]).abs().max() < 0.4
    recovered = mean_iou(disturbed, labels, found)
    assert recovered > mean_iou(scores, labels, expected) - 0.001


def test_a_perfect_network_and_absent_classes_get_zeros():
    scores, labels = make_network()
    perfect = 5.0 * one_hot(labels, K).movedim(-1, 1)
    assert torch.equal(fit(perfect, labels), ZEROS)
    labels[labels == 2] = 7
    offsets = fit(scores, labels, ignore_index=7)
    assert offsets[2] == 0
    assert (offsets != 0).any()
    assert fit(scores[:1, :, :1, :1], labels[:1, :1, :1]).isfinite().all()


def test_of_large_images_a_grid():
    scores, labels = make_network()
    grid = slice(1, None, 2)
    batches = zip(scores.split(2), labels.split(2), strict=True)
    found = fit_offsets(batches, pixels_per_image=SIDE * SIDE // 4)
    expected = fit(scores[..., grid, grid], labels[..., grid, grid])
    assert torch.equal(found, expected)


@pytest.mark.parametrize(
    ('scores', 'labels', 'error', 'said'),
    [
        (torch.zeros(3, 3, 3), torch.full((3, 3), 255), DataSetError, 'label'),
        (torch.zeros(3, 3, 3), torch.full((3, 3), 5), DataSetError, '3 class'),
        (torch.zeros(3, 3, 3), torch.zeros(6, 6), SettingError, 'up-sample'),
        (
            torch.full((3, 3, 3), torch.nan),
            torch.ones(3, 3),
            DataSetError,
            'NaN',
        ),
    ],
)
def test_bad_input_in_a_sentence(scores, labels, error, said):
    with pytest.raises(error, match=said):
        fit(scores[None], labels[None])


WITHOUT_MMSEG = """
import sys, importlib.util
for name in ('mmseg', 'mmengine', 'mmcv'):
    sys.modules[name] = None
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: (
    None if name == 'mmseg' else find(name, *rest))
import torch
from mmseg_margin.offsets import fit_offsets
scores = torch.rand(2, 3, 4, 4)
print(fit_offsets([(scores, scores.argmax(1))]).shape)
"""


def test_torch_alone_is_enough(tmp_path):
    code, said = run_python(tmp_path, '-c', WITHOUT_MMSEG)
    assert (code, said.strip()) == (0, 'torch.Size([3])')
