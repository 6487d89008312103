"""The Triton kernels against autograd in float64."""

import subprocess
import sys

import pytest
import torch

from mmseg_margin.functional.triton_launch import TritonResult
from mmseg_margin.functional.triton_stages import (
    cross_entropy_stage,
    jaccard_stage,
    margin_stage,
    supports,
)
from tests.functional import triton_reference as reference
from tests.functional.triton_reference import Batch, make_batch, upsample

pytest.importorskip('triton', reason='triton is not installed')

MARGIN = dict(pos_weight=3.0, neg_weight=0.7, bits=1.4)
LEVELS, STEP = 64, 2
CE_WEIGHT = 0.3
LOSSES = ('margin', 'jaccard', 'cross-entropy', 'focal')
UPSTREAM = 0.5
DEVICE = 'cuda' if torch.cuda.is_available() else 'cpu'

# The interpreter computes with numpy, which warns of NaN.
pytestmark = pytest.mark.filterwarnings('ignore::RuntimeWarning:triton')


def run(loss: str, batch: Batch, **settings) -> TritonResult:
    """A stage on a batch."""
    batch = on_device(batch)
    settings = {'ignore_index': 255, **settings}
    if loss == 'margin':
        offsets = dict(rho_0k=batch[3], rho_k0=batch[4])
        return margin_stage(*batch[:3], **offsets, **MARGIN, **settings)
    if loss == 'jaccard':
        settings = dict(
            ce_weight=CE_WEIGHT, levels=LEVELS, step=STEP, **settings
        )
        return jaccard_stage(*batch[:3], **settings)
    gamma = 2.0 if loss == 'focal' else 0.0
    return cross_entropy_stage(*batch[:3], gamma=gamma, **settings)


def on_device(batch: Batch) -> Batch:
    return Batch(*(None if x is None else x.to(DEVICE) for x in batch))


def gradient_of(result: TritonResult, upstream: float = 1.0) -> torch.Tensor:
    return result.planes.combine(torch.tensor(upstream, device=DEVICE)).cpu()


def expect(
    loss: str, batch: Batch, counts: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Loss of the pixels, gradient of their sum, and hits."""
    leaf = batch.scores.double().requires_grad_()
    scores = upsample(leaf, batch.scale)
    if loss == 'margin':
        losses = reference.margin_loss(scores, batch, **MARGIN)
    elif loss == 'jaccard':
        losses = reference.jaccard_loss(scores, batch, counts)
        losses = losses + CE_WEIGHT * reference.cross_entropy(scores, batch)
    else:
        gamma = 2 if loss == 'focal' else 0
        losses = reference.cross_entropy(scores, batch, gamma)
    known = batch.known()
    weight = 1 if batch.weight is None else batch.weight
    losses = torch.where(known, weight * losses, 0.0)
    (gradient,) = torch.autograd.grad(losses.sum(), leaf)
    label = batch.labels.long().masked_fill(~known, 0).unsqueeze(1)
    is_hit = scores.gather(1, label).squeeze(1) == scores.amax(1)
    return losses.detach(), gradient, (is_hit & known).sum()


def check(loss: str, batch: Batch, tolerance: float = 1e-5) -> None:
    """A stage against its reference."""
    counts = []
    settings = {}
    if loss == 'jaccard':
        settings['reduce'] = lambda found: counts.append(found.cpu())
    result = run(loss, batch, pixel_loss=True, **settings)
    if loss == 'jaccard':
        scores = upsample(batch.scores.double(), batch.scale)
        expected = reference.error_histograms(scores, batch, LEVELS, STEP)
        # Rounding may move an error across the border of a level.
        assert (counts[0] - expected).abs().sum() <= 2 * STEP**2
    losses, gradient, hits = expect(loss, batch, *counts)
    found = gradient_of(result, UPSTREAM)
    assert found.dtype == batch.scores.dtype
    close(result.loss, losses.sum(), 1e-5)
    close(result.pixel_loss, losses, 1e-5)
    close(found / UPSTREAM, gradient, tolerance)
    assert result.hits == hits


def close(found, expected, tolerance):
    """Relative to the largest value."""
    largest = float(expected.abs().max())
    torch.testing.assert_close(
        found.cpu().double(), expected.cpu(), rtol=0, atol=tolerance * largest
    )


@pytest.mark.parametrize('loss', LOSSES)
@pytest.mark.parametrize(
    'shape',
    [
        (1, 2, 5, 3, 1),
        (2, 19, 9, 11, 1),
        (1, 5, 7, 13, 2),
        (2, 7, 3, 5, 3),
        (2, 5, 3, 6, 4),
        (1, 19, 5, 3, 4),
        (1, 19, 3, 2, 8),
        (1, 2, 1, 1, 4),
        (1, 3, 2, 1, 32),
    ],
    ids=str,
)
def test_results_match_the_reference(loss, shape):
    check(loss, make_batch(*shape))


@pytest.mark.parametrize('loss', ['margin', 'jaccard'])
@pytest.mark.parametrize('shape', [(1, 150, 2, 3, 4), (1, 171, 3, 2, 1)])
def test_many_classes(loss, shape):
    check(loss, make_batch(*shape, label_dtype=torch.uint8))


@pytest.mark.parametrize('seed', range(6))
def test_random_shapes(seed):
    random = torch.Generator().manual_seed(seed)
    N, K, h, w = torch.randint(1, 6, (4,), generator=random).tolist()
    S = (1, 2, 3, 4, 5, 8)[seed]
    batch = make_batch(min(N, 3), K + 1, h, w, S, seed=seed)
    check('margin', batch)
    check('jaccard', batch)


@pytest.mark.parametrize('loss', LOSSES)
@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
def test_half_precision(loss, dtype):
    batch = make_batch(1, 5, 4, 3, 4, dtype, torch.uint8)
    check(loss, batch, tolerance=torch.finfo(dtype).eps)


@pytest.mark.parametrize('loss', LOSSES)
def test_without_weights(loss):
    check(loss, make_batch(1, 4, 3, 3, 2)._replace(weight=None))


@pytest.mark.parametrize('loss', LOSSES)
def test_two_runs_give_the_same_bits(loss):
    batch = make_batch(2, 5, 5, 4, 4)
    first, second = run(loss, batch), run(loss, batch)
    assert torch.equal(first.loss, second.loss)
    assert torch.equal(first.planes.values, second.planes.values)


@pytest.mark.parametrize('scale', [1, 4])
@pytest.mark.parametrize('loss', LOSSES)
def test_ignored_images_have_no_gradient(loss, scale):
    batch = make_batch(2, 5, 3, 4, scale)
    batch.labels[0] = 255
    check(loss, batch)
    assert not gradient_of(run(loss, batch))[0].any()
    batch.labels[1] = 255
    result = run(loss, batch)
    assert result.loss == result.hits == 0
    assert not gradient_of(result).any()


@pytest.mark.parametrize('wrong', [5, -1, 254, 2**33 + 1])
@pytest.mark.parametrize('loss', LOSSES)
def test_a_label_that_is_no_class_makes_the_loss_nan(loss, wrong):
    """The device is not waited for, so nothing can be raised."""
    batch = make_batch(1, 5, 3, 4, 2)
    batch.labels[0, 0, 0] = wrong
    assert run(loss, batch).loss.isnan()


def test_a_class_can_be_ignored():
    batch = make_batch(1, 5, 3, 4, 2)
    labels = batch.labels.masked_fill(~batch.known(), 0)
    expected = batch._replace(labels=labels.masked_fill(labels == 0, 255))
    result = run('margin', batch._replace(labels=labels), ignore_index=0)
    assert torch.equal(result.loss, run('margin', expected).loss)


@pytest.mark.parametrize('value', [float('nan'), float('inf')])
@pytest.mark.parametrize('scale', [1, 4])
@pytest.mark.parametrize('loss', LOSSES)
def test_scores_that_are_not_finite_are_not_hidden(loss, scale, value):
    batch = make_batch(2, 5, 3, 4, scale)
    batch.labels.fill_(2)
    for k in (0, 2):
        scores = batch.scores.clone()
        scores[1, k, 1, 1] = value
        result = run(loss, batch._replace(scores=scores))
        assert result.loss.isnan()
        gradient = gradient_of(result)
        assert gradient[1, :, 1, 1].isnan().any()
        assert gradient[0].isfinite().all()


@pytest.mark.parametrize('loss', ['margin', 'cross-entropy'])
def test_an_excluded_class_costs_nothing(loss):
    batch = make_batch(1, 5, 4, 4, 1)
    batch.labels[batch.labels == 3] = 1
    with_all = batch._replace(scores=batch.scores.clone())
    with_all.scores[:, 3] = -1e4
    batch.scores[:, 3] = float('-inf')
    result, expected = run(loss, batch), run(loss, with_all)
    close(result.loss, expected.loss.double(), 1e-6)
    gradient = gradient_of(result)
    close(gradient, gradient_of(expected).double(), 1e-6)


def test_a_label_without_a_chance_has_an_infinite_loss():
    batch = make_batch(1, 5, 4, 4, 1)
    batch.labels.fill_(3)
    batch.scores[:, 3] = float('-inf')
    assert run('margin', batch).loss == float('inf')
    assert run('cross-entropy', batch).loss == float('inf')


@pytest.mark.parametrize('scale', [1, 2])
def test_the_first_of_tied_classes_is_the_top(scale):
    batch = make_batch(1, 4, 5, 4, scale)
    scores = batch.scores.round().clamp(-1, 1)
    result = run('margin', batch._replace(scores=scores))
    losses, _, hits = expect('margin', batch._replace(scores=scores))
    close(result.loss, losses.sum(), 1e-5)
    assert result.hits == hits
    step = 1e-9 * torch.arange(4).view(1, 4, 1, 1)
    untied = batch._replace(scores=scores.double() - step)
    _, gradient, _ = expect('margin', untied)
    close(gradient_of(result), gradient, 1e-5)


def test_large_offsets_and_scores():
    batch = make_batch(1, 5, 3, 4, 2)
    check(
        'margin',
        batch._replace(
            scores=100 * batch.scores, rho_0k=torch.linspace(-50, 500, 5)
        ),
    )


@pytest.mark.parametrize('loss', ['jaccard', 'focal'])
def test_confident_pixels_keep_a_gradient(loss):
    batch = make_batch(1, 3, 4, 4, 1)
    batch.scores[:] = 0
    label = batch.labels.masked_fill(batch.labels == 255, 0).unsqueeze(1)
    batch.scores.scatter_(1, label, 18.0)
    check(loss, batch)


def test_layout_of_the_scores_does_not_matter():
    batch = make_batch(1, 5, 3, 4, 4)
    scores = batch.scores.contiguous(memory_format=torch.channels_last)
    assert not scores.is_contiguous()
    check('margin', batch._replace(scores=scores))


def test_weight_of_the_cross_entropy_as_a_tensor():
    batch = make_batch(1, 5, 3, 4, 2)
    results = [
        jaccard_stage(
            *on_device(batch)[:3],
            ce_weight=weight,
            levels=50,
            step=1,
            ignore_index=255,
        )
        for weight in (0.25, torch.tensor(0.25, device=DEVICE), 0.0)
    ]
    assert torch.equal(results[0].loss, results[1].loss)
    ce = reference.cross_entropy(upsample(batch.scores.double(), 2), batch)
    ce = (ce * batch.weight * batch.known()).sum()
    close(results[0].ce, ce, 1e-5)
    close(results[0].loss - results[2].loss, 0.25 * ce, 1e-5)


def test_two_ranks_see_the_errors_of_both():
    whole = make_batch(2, 5, 3, 4, 4)
    rank = [
        Batch(*(x[i : i + 1] for x in whole[:3]), *whole[3:]) for i in (0, 1)
    ]
    counts = []
    for batch in rank:
        run('jaccard', batch, reduce=lambda found: counts.append(found.cpu()))
    losses = [
        run(
            'jaccard', batch, reduce=lambda found: found.copy_(sum(counts))
        ).loss
        for batch in rank
    ]
    close(sum(losses), run('jaccard', whole).loss.double(), 1e-6)


@pytest.mark.parametrize(
    ('size', 'align_corners', 'expected'),
    [
        ((8, 12), False, True),
        ((8, 12), True, True),
        ((24, 36), False, True),
        ((24, 36), True, False),
        ((24, 24), False, False),
        ((20, 30), False, False),
        ((4, 6), False, False),
    ],
)
def test_supported_scales(size, align_corners, expected):
    scores = torch.zeros(2, 5, 8, 12)
    labels = torch.zeros(2, *size, dtype=torch.uint8)
    assert supports(scores, labels, align_corners) is expected


def test_unsupported_tensors():
    labels = torch.zeros(2, 8, 12, dtype=torch.uint8)
    scores = torch.zeros(2, 5, 8, 12)
    assert not supports(scores.double(), labels, False)
    assert not supports(scores, labels.float(), False)
    assert not supports(scores, labels[:1], False)
    assert not supports(scores[:0], labels[:0], False)
    assert not supports(scores.flatten(2), labels.flatten(1), False)


def test_importing_needs_no_triton():
    code = (
        'import sys; sys.modules["triton"] = None\n'
        'import mmseg_margin.functional.triton_check'
    )
    subprocess.run([sys.executable, '-c', code], check=True)
