"""What can be said of the fit without a network."""

import subprocess
import sys

import pytest
import torch
from torch import Tensor

from mmseg_margin.errors import DataSetError, SettingError
from mmseg_margin.offsets import fit_offsets

PRIORS = torch.tensor([0.5, 0.3, 0.12, 0.06, 0.02])
K = len(PRIORS)


def make_network(
    num_pixels: int = 60_000, priors: Tensor = PRIORS
) -> tuple[Tensor, Tensor, Tensor]:
    """Log-posteriors of Gaussian classes, labels, and 40 image numbers."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.multinomial(priors, num_pixels, True, generator=generator)
    noise = torch.randn(num_pixels, len(priors), generator=generator)
    evidence = 2 * torch.nn.functional.one_hot(labels, len(priors)) + noise
    scores = 2 * evidence + priors.log()
    return scores, labels, torch.arange(num_pixels) % 40


def mean_iou(scores, labels, offsets):
    predicted = (scores + offsets).argmax(1)
    values = []
    for k in labels.unique().tolist():
        hit = ((predicted == k) & (labels == k)).sum()
        union = ((predicted == k) | (labels == k)).sum()
        values.append(float(hit / union))
    return 100 * sum(values) / len(values)


def relative(offsets: Tensor) -> Tensor:
    """Without the constant that changes nothing."""
    return offsets - offsets[0]


def test_more_miou_on_other_pixels():
    scores, labels, images = make_network()
    offsets = fit_offsets(scores[::2], labels[::2], images[::2])
    before = mean_iou(scores[1::2], labels[1::2], torch.zeros(K))
    after = mean_iou(scores[1::2], labels[1::2], offsets)
    assert after > before + 0.2
    # The rarer the class, the more it gains by.
    assert relative(offsets)[-1] > 0


def test_disturbed_biases_are_recovered():
    scores, labels, images = make_network()
    disturbance = torch.tensor([0.0, 1.5, -2.0, 1.0, -1.25])
    expected = fit_offsets(scores, labels, images)
    found = fit_offsets(scores + disturbance, labels, images)
    difference = relative(found + disturbance) - relative(expected)
    assert difference.abs().max() < 0.25
    recovered = mean_iou(scores + disturbance, labels, found)
    assert recovered > mean_iou(scores, labels, expected) - 0.1


def test_permuted_classes_have_permuted_offsets():
    scores, labels, images = make_network(8000)
    order = torch.tensor([3, 0, 4, 2, 1])
    renamed = torch.empty(K, dtype=torch.long)
    renamed[order] = torch.arange(K)
    offsets = fit_offsets(scores, labels, images)
    permuted = fit_offsets(scores[:, order], renamed[labels], images)
    assert offsets.abs().max() > 0
    assert torch.equal(permuted, offsets[order])


def test_permuted_classes_of_equal_size():
    scores, labels, images = make_network(8000, torch.full((K,), 1 / K))
    labels = torch.arange(8000) % K  # the scores say little of these
    order = torch.tensor([4, 2, 0, 1, 3])
    renamed = order.argsort()
    offsets = fit_offsets(scores, labels, images, ignore_index=-1)
    permuted = fit_offsets(scores[:, order], renamed[labels], images)
    assert torch.equal(permuted, offsets[order])


@pytest.mark.parametrize('constant', [8.0, torch.arange(8000.0)[:, None] % 7])
def test_a_constant_of_each_pixel_changes_nothing(constant):
    scores, labels, images = make_network(8000)
    scores = (scores * 1024).round() / 1024  # so that the sums are exact
    shifted = fit_offsets(scores + constant, labels, images)
    assert torch.equal(shifted, fit_offsets(scores, labels, images))


def test_a_perfect_network_gets_zeros():
    _, labels, images = make_network(8000)
    scores = 5.0 * torch.nn.functional.one_hot(labels, K)
    assert torch.equal(fit_offsets(scores, labels, images), torch.zeros(K))


def test_noise_gets_next_to_nothing():
    """Where images left out gain nothing, the offsets are 0."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(3, (400,), generator=generator)
    scores = 4.0 * torch.nn.functional.one_hot(labels, 3)
    flipped = torch.randint(3, (400,), generator=generator)
    scores += 4.2 * torch.nn.functional.one_hot(flipped, 3)
    offsets = fit_offsets(scores, labels, torch.arange(400) % 20)
    before = mean_iou(scores, labels, torch.zeros(3))
    assert mean_iou(scores, labels, offsets) >= before


def test_absent_classes_keep_zero():
    scores, labels, images = make_network(8000)
    labels[labels == 2] = 255
    offsets = fit_offsets(scores, labels, images)
    assert offsets[2] == 0
    assert (offsets != 0).any()


def test_dice_has_offsets_of_its_own():
    scores, labels, images = make_network()
    offsets = fit_offsets(scores, labels, images)
    dice = fit_offsets(scores, labels, images, 'mDice')
    assert not torch.equal(dice, offsets)
    assert (dice - offsets).abs().max() < 0.5


def test_images_and_pixels_are_the_same():
    scores, labels, _ = make_network(40 * 12 * 16)
    maps = scores.view(40, 12, 16, K).movedim(-1, 1)
    found = fit_offsets(maps, labels.view(40, 12, 16))
    numbers = torch.arange(40).repeat_interleave(12 * 16)
    assert torch.equal(found, fit_offsets(scores, labels, numbers))
    numbered = fit_offsets(
        maps, labels.view(40, 12, 16), 3 * torch.arange(40) + 1
    )
    assert torch.equal(found, numbered)


def test_of_many_pixels_every_nth():
    scores, labels, images = make_network(8000)
    thinned = fit_offsets(scores, labels, images, max_pixels=4000)
    assert torch.equal(
        thinned, fit_offsets(scores[::2], labels[::2], images[::2])
    )


def test_nothing_is_modified_and_half_precision_is_enough():
    scores, labels, images = make_network(8000)
    scores = scores.half()
    copies = scores.clone(), labels.clone(), images.clone()
    assert fit_offsets(scores, labels.byte(), images).dtype == torch.float32
    for tensor, copy in zip((scores, labels, images), copies, strict=True):
        assert torch.equal(tensor, copy)


@pytest.mark.parametrize('num_pixels', [1, 2, 5])
def test_a_handful_of_pixels(num_pixels):
    scores, labels, _ = make_network(num_pixels)
    offsets = fit_offsets(scores, labels)
    assert offsets.isfinite().all()


@pytest.mark.parametrize(
    ('change', 'error', 'said'),
    [
        ({'metric': 'IoU'}, SettingError, 'mIoU or mDice'),
        ({'labels': torch.full((9,), 255)}, DataSetError, 'no labelled pixel'),
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


def test_torch_alone_is_enough():
    """Without MMSegmentation, as the mathematics of the losses."""
    program = (
        'import sys\n'
        'for name in ("mmseg", "mmengine", "mmcv"):\n'
        '    sys.modules[name] = None\n'
        'import importlib.util as util\n'
        'find = util.find_spec\n'
        'util.find_spec = lambda name, *rest: '
        'None if name == "mmseg" else find(name, *rest)\n'
        'import torch\n'
        'from mmseg_margin.offsets import fit_offsets\n'
        'scores = torch.tensor([[2.0, 0.0], [1.5, 1.0]])\n'
        'print(fit_offsets(scores, torch.tensor([0, 1])).shape)\n'
    )
    done = subprocess.run(
        [sys.executable, '-c', program], capture_output=True, text=True
    )
    assert done.stdout.strip() == 'torch.Size([2])', done.stderr
