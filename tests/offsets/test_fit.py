"""What can be said of the fit, for any network."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from mmseg_margin.errors import DataSetError, SettingError
from mmseg_margin.offsets import fit_offsets
from tests.commands import run_python
from tests.offsets.builders import mean_metric

PRIORS = torch.tensor([0.5, 0.3, 0.12, 0.06, 0.02])
K = len(PRIORS)
ZEROS = torch.zeros(K)
SIDE = 40


def make_network(num_images: int = 12) -> tuple[Tensor, Tensor]:
    """Log-posteriors of Gaussian classes, (N, K, H, W), and labels."""
    shape = num_images, SIDE, SIDE
    generator = torch.Generator().manual_seed(0)
    size = num_images * SIDE * SIDE
    labels = torch.multinomial(PRIORS, size, True, generator=generator)
    noise = torch.randn(size, K, generator=generator)
    scores = 2 * (2 * one_hot(labels, K) + noise) + PRIORS.log()
    return scores.view(*shape, K).movedim(-1, 1), labels.view(shape)


def fit(scores: Tensor, labels: Tensor, *args, **settings) -> Tensor:
    return fit_offsets([(scores, labels)], *args, **settings)


def mean_iou(scores: Tensor, labels: Tensor, offsets: Tensor) -> float:
    pixels = scores.movedim(1, -1).reshape(-1, K)
    return mean_metric(pixels, labels.flatten(), offsets)


def relative(offsets: Tensor) -> Tensor:
    """Without the constant that changes nothing."""
    return offsets - offsets[0]


def test_more_miou_on_other_images():
    scores, labels = make_network(40)
    offsets = fit(scores[::2], labels[::2])
    before = mean_iou(scores[1::2], labels[1::2], ZEROS)
    after = mean_iou(scores[1::2], labels[1::2], offsets)
    assert after > before + 0.002
    # The rarer the class, the more it gains by.
    assert relative(offsets)[-1] > 0


def test_disturbed_biases_are_recovered():
    scores, labels = make_network(40)
    disturbance = torch.tensor([0.0, 1.5, -2.0, 1.0, -1.25])
    disturbed = scores + disturbance[:, None, None]
    expected, found = fit(scores, labels), fit(disturbed, labels)
    difference = relative(found + disturbance) - relative(expected)
    assert difference.abs().max() < 0.4
    recovered = mean_iou(disturbed, labels, found)
    assert recovered > mean_iou(scores, labels, expected) - 0.001


@pytest.mark.parametrize('has_equal_classes', [False, True])
def test_permuted_classes_have_permuted_offsets(has_equal_classes):
    scores, labels = make_network()
    if has_equal_classes:  # the scores say nothing about these
        labels = torch.arange(labels.numel()).view(labels.shape) % K
    order = torch.tensor([3, 0, 4, 2, 1])
    offsets = fit(scores, labels)
    permuted = fit(scores[:, order], order.argsort()[labels])
    assert offsets.abs().max() > 0
    assert torch.equal(permuted, offsets[order])


def test_a_constant_of_each_pixel_changes_nothing():
    scores, labels = make_network()
    scores = (scores * 1024).round() / 1024  # so that the sums are exact
    constant = torch.arange(float(SIDE)) % 7
    assert torch.equal(fit(scores + constant, labels), fit(scores, labels))


def test_a_perfect_network_gets_zeros_and_noise_next_to_nothing():
    _, labels = make_network()
    perfect = 5.0 * one_hot(labels, K).movedim(-1, 1)
    assert torch.equal(fit(perfect, labels), ZEROS)
    generator = torch.Generator().manual_seed(0)
    labels, flipped = torch.randint(3, (2, 20, 5, 4), generator=generator)
    scores = 4.0 * one_hot(labels, 3) + 4.2 * one_hot(flipped, 3)
    offsets = fit(scores.movedim(-1, 1), labels)
    pixels = scores.view(-1, 3), labels.flatten()
    assert mean_metric(*pixels, offsets) >= mean_metric(*pixels, 0 * offsets)


def test_absent_classes_keep_zero():
    scores, labels = make_network()
    labels[labels == 2] = 7
    offsets = fit(scores, labels, ignore_index=7)
    assert offsets[2] == 0
    assert (offsets != 0).any()


def test_dice_has_offsets_of_its_own():
    scores, labels = make_network(40)
    offsets, dice = fit(scores, labels), fit(scores, labels, 'mDice')
    assert not torch.equal(dice, offsets)
    assert (dice - offsets).abs().max() < 0.5


def test_batches_from_a_network_that_reuses_its_memory():
    scores, labels = make_network()
    buffer = torch.empty(2, K, SIDE, SIDE)
    batches = (
        (buffer.copy_(scores[i : i + 2]).requires_grad_(), labels[i : i + 2])
        for i in range(0, len(scores), 2)
    )
    with torch.no_grad():
        found = fit_offsets(batches)
    assert torch.equal(found, fit(scores, labels))


def test_of_large_images_a_grid():
    scores, labels = make_network()
    grid = slice(1, None, 2)
    thinned = fit(scores, labels, pixels_per_image=SIDE * SIDE // 4)
    smaller = fit(scores[..., grid, grid], labels[..., grid, grid])
    assert torch.equal(thinned, smaller)


@pytest.mark.parametrize('num_pixels', [1, 2, 5])
def test_a_handful_of_pixels(num_pixels):
    scores, labels = make_network(1)
    chosen = scores[..., :1, :num_pixels], labels[..., :1, :num_pixels]
    assert fit(*chosen).isfinite().all()


@pytest.mark.parametrize(
    ('change', 'error', 'said'),
    [
        ({'metric': 'IoU'}, SettingError, 'mDice'),
        ({'labels': torch.full((1, 3, 3), 255)}, DataSetError, 'no labelled'),
        ({'labels': torch.full((1, 3, 3), 5)}, DataSetError, '3 classes'),
        ({'labels': torch.zeros(1, 6, 6)}, SettingError, 'up-sample'),
        ({'scores': torch.zeros(1, 1, 3, 3)}, SettingError, 'binary'),
        ({'scores': torch.full((1, 3, 3, 3), torch.nan)}, DataSetError, 'NaN'),
        ({'scores': torch.zeros(0, 3, 3, 3)}, DataSetError, 'no image'),
    ],
)
def test_bad_input_in_a_sentence(change, error, said):
    given = {
        'scores': torch.zeros(1, 3, 3, 3),
        'labels': torch.zeros(1, 3, 3).long(),
    }
    given |= change
    given['labels'] = given['labels'][: len(given['scores'])]
    with pytest.raises(error, match=said):
        fit(**given)


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
