"""The ascent step by step, and what can be said of the fit."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from mmseg_margin.errors import DataSetError, SettingError
from mmseg_margin.offsets import fit_offsets
from mmseg_margin.offsets.fit import GRID, METRICS, Ascent, nearest_best
from tests.commands import run_python
from tests.offsets.builders import mean_metric

PRIORS = torch.tensor([0.5, 0.3, 0.12, 0.06, 0.02])
K = len(PRIORS)
ZEROS = torch.zeros(K)


def make_pixels(seed: int):
    """Scores on multiples of 1/32 between the offsets, so without ties."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randint(-96, 96, (300, K), generator=generator) / 32
    # Distinct classes are distinct modulo the grid, pixels by pixels.
    scores = scores + torch.arange(K) / 4096
    return scores, torch.randint(K - 1, (300,), generator=generator)


@pytest.mark.parametrize('metric', METRICS)
@pytest.mark.parametrize('seed', range(3))
def test_a_curve_is_the_metric_at_each_offset(metric, seed):
    """Also after many moves, large and small ones."""
    scores, labels = make_pixels(seed)
    ascent = Ascent(scores, labels, metric)
    offsets = torch.zeros(K)
    generator = torch.Generator().manual_seed(seed)
    for step in range(8):
        k = step % K
        expected = []
        for value in GRID:
            offsets[k] = value
            expected.append(mean_metric(scores, labels, offsets, metric))
        assert ascent.curve(k).tolist() == expected
        for moved in (k, (k + 3) % K, (k + 4) % K):
            chosen = torch.randint(len(GRID), (), generator=generator)
            offsets[moved] = GRID[chosen]
            ascent.move(moved, GRID[chosen])


def test_an_ascent_ends_where_no_offset_is_better():
    scores, labels = make_pixels(0)
    ascent = Ascent(scores, labels, 'mIoU')
    offsets = ascent.run()
    last = mean_metric(scores, labels, offsets)
    assert last > mean_metric(scores, labels, torch.zeros(K))
    for k in range(K - 1):
        assert ascent.curve(k).max() == pytest.approx(last, abs=1e-12)
    assert offsets[-1] == 0  # without a label


def test_of_equally_good_offsets_the_smallest():
    curve = torch.zeros(len(GRID), dtype=torch.float64)
    assert nearest_best(curve) == 0
    curve[[3, 80, 81, 120]] = 1
    assert nearest_best(curve) == GRID[80] == 1


def make_network(num_pixels: int = 8000) -> tuple[Tensor, Tensor, Tensor]:
    """Log-posteriors of Gaussian classes, labels, and 40 image numbers."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.multinomial(PRIORS, num_pixels, True, generator=generator)
    noise = torch.randn(num_pixels, K, generator=generator)
    scores = 2 * (2 * one_hot(labels, K) + noise) + PRIORS.log()
    return scores, labels, torch.arange(num_pixels) % 40


def relative(offsets: Tensor) -> Tensor:
    """Without the constant that changes nothing."""
    return offsets - offsets[0]


def test_more_miou_on_other_pixels():
    scores, labels, images = make_network(60_000)
    offsets = fit_offsets(scores[::2], labels[::2], images[::2])
    before = mean_metric(scores[1::2], labels[1::2], ZEROS)
    after = mean_metric(scores[1::2], labels[1::2], offsets)
    assert after > before + 0.002
    # The rarer the class, the more it gains by.
    assert relative(offsets)[-1] > 0


def test_disturbed_biases_are_recovered():
    scores, labels, images = make_network(60_000)
    disturbance = torch.tensor([0.0, 1.5, -2.0, 1.0, -1.25])
    expected = fit_offsets(scores, labels, images)
    found = fit_offsets(scores + disturbance, labels, images)
    difference = relative(found + disturbance) - relative(expected)
    assert difference.abs().max() < 0.25
    recovered = mean_metric(scores + disturbance, labels, found)
    assert recovered > mean_metric(scores, labels, expected) - 0.001


@pytest.mark.parametrize('has_equal_classes', [False, True])
def test_permuted_classes_have_permuted_offsets(has_equal_classes):
    scores, labels, images = make_network()
    if has_equal_classes:
        labels = torch.arange(8000) % K  # the scores say nothing about these
    order = torch.tensor([3, 0, 4, 2, 1])
    offsets = fit_offsets(scores, labels, images)
    permuted = fit_offsets(scores[:, order], order.argsort()[labels], images)
    assert offsets.abs().max() > 0
    assert torch.equal(permuted, offsets[order])


@pytest.mark.parametrize('constant', [8.0, torch.arange(8000.0)[:, None] % 7])
def test_a_constant_of_each_pixel_changes_nothing(constant):
    scores, labels, images = make_network()
    scores = (scores * 1024).round() / 1024  # so that the sums are exact
    shifted = fit_offsets(scores + constant, labels, images)
    assert torch.equal(shifted, fit_offsets(scores, labels, images))


def test_a_perfect_network_gets_zeros():
    _, labels, images = make_network()
    scores = 5.0 * one_hot(labels, K)
    assert torch.equal(fit_offsets(scores, labels, images), ZEROS)


def test_noise_gets_next_to_nothing():
    """Where images left out gain nothing, the offsets are 0."""
    generator = torch.Generator().manual_seed(0)
    labels, flipped = torch.randint(3, (2, 400), generator=generator)
    scores = 4.0 * one_hot(labels, 3) + 4.2 * one_hot(flipped, 3)
    offsets = fit_offsets(scores, labels, torch.arange(400) % 20)
    before = mean_metric(scores, labels, torch.zeros(3))
    assert mean_metric(scores, labels, offsets) >= before


def test_absent_classes_keep_zero():
    scores, labels, images = make_network()
    labels[labels == 2] = 255
    offsets = fit_offsets(scores, labels, images)
    assert offsets[2] == 0
    assert (offsets != 0).any()


def test_dice_has_offsets_of_its_own():
    scores, labels, images = make_network(60_000)
    offsets = fit_offsets(scores, labels, images)
    dice = fit_offsets(scores, labels, images, 'mDice')
    assert not torch.equal(dice, offsets)
    assert (dice - offsets).abs().max() < 0.5


def test_images_and_pixels_are_the_same():
    scores, labels, _ = make_network(40 * 12 * 16)
    maps = scores.view(40, 12, 16, K).movedim(-1, 1)
    label_maps, numbers = labels.view(40, 12, 16), torch.arange(40)
    found = fit_offsets(maps, label_maps)
    of_pixels = numbers.repeat_interleave(12 * 16)
    assert torch.equal(found, fit_offsets(scores, labels, of_pixels))
    renumbered = fit_offsets(maps, label_maps, 3 * numbers + 1)
    assert torch.equal(found, renumbered)


def test_of_many_pixels_every_nth():
    scores, labels, images = make_network()
    thinned = fit_offsets(scores, labels, images, max_pixels=4000)
    assert torch.equal(
        thinned, fit_offsets(scores[::2], labels[::2], images[::2])
    )


def test_nothing_is_modified_and_half_precision_is_enough():
    scores, labels, images = make_network()
    given = scores.half(), labels.byte(), images
    copies = [tensor.clone() for tensor in given]
    assert fit_offsets(*given).dtype == torch.float32
    assert all(map(torch.equal, given, copies))


@pytest.mark.parametrize('num_pixels', [1, 2, 5])
def test_a_handful_of_pixels(num_pixels):
    scores, labels, _ = make_network(num_pixels)
    assert fit_offsets(scores, labels).isfinite().all()


@pytest.mark.parametrize(
    ('change', 'error', 'said'),
    [
        ({'metric': 'IoU'}, SettingError, 'mIoU or mDice'),
        ({'labels': torch.full((9,), 255)}, DataSetError, 'no labelled pixel'),
        (
            {'scores': torch.zeros(0, 3), 'labels': torch.zeros(0)},
            DataSetError,
            'no labelled pixel',
        ),
        ({'labels': torch.full((9,), 5)}, DataSetError, 'but there are 3'),
        ({'labels': torch.zeros(8)}, SettingError, 'do not belong together'),
        ({'images': torch.zeros(8)}, SettingError, 'do not belong together'),
        ({'scores': torch.zeros(9)}, SettingError, 'do not belong together'),
        ({'scores': torch.zeros(9, 1)}, SettingError, 'the scores (0, s)'),
        ({'scores': torch.full((9, 3), torch.nan)}, DataSetError, 'NaN'),
        ({'scores': torch.full((9, 3), torch.inf)}, DataSetError, 'infinite'),
    ],
)
def test_bad_input_in_a_sentence(change, error, said):
    given = {'scores': torch.zeros(9, 3), 'labels': torch.zeros(9).long()}
    with pytest.raises(error) as caught:
        fit_offsets(**given | change)
    assert said in str(caught.value)
    assert '\n' not in str(caught.value)


WITHOUT_MMSEG = """
import sys, importlib.util
for name in ('mmseg', 'mmengine', 'mmcv'):
    sys.modules[name] = None
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: (
    None if name == 'mmseg' else find(name, *rest))
import torch
from mmseg_margin.offsets import fit_offsets
from mmseg_margin.offsets.fit import GRID, METRICS, Ascent, nearest_best
scores = torch.tensor([[2.0, 0.0], [1.5, 1.0]])
print(fit_offsets(scores, torch.tensor([0, 1])).shape)
"""


def test_torch_alone_is_enough(tmp_path):
    code, said = run_python(tmp_path, '-c', WITHOUT_MMSEG)
    assert (code, said.strip()) == (0, 'torch.Size([2])')
