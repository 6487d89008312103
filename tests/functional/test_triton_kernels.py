"""The Triton kernels against autograd in float64."""

import subprocess
import sys

import pytest
import torch

from mmseg_margin.functional.backend import StageResult
from mmseg_margin.functional.triton_launch import Stage, supports
from tests.functional import triton_reference as reference
from tests.functional.triton_reference import Batch, make_batch, upsample

pytest.importorskip('triton', reason='triton is not installed')
FUNCTIONAL = 'mmseg_margin.functional'
triton_jaccard = pytest.importorskip(f'{FUNCTIONAL}.triton_jaccard')
triton_margin = pytest.importorskip(f'{FUNCTIONAL}.triton_margin')
triton_softmax = pytest.importorskip(f'{FUNCTIONAL}.triton_softmax')

MARGIN = dict(pos_weight=3.0, neg_weight=0.7, bits=1.4)
STEP = 2
CE_WEIGHT = 0.3
GAMMA = {'cross-entropy': 0.0, 'focal': 2.0}
LOSSES = ('margin', 'jaccard', 'cross-entropy', 'focal')
UPSTREAM = 0.5
DEVICE = 'cuda' if torch.cuda.is_available() else 'cpu'

# The interpreter computes with numpy, which warns of NaN.
pytestmark = pytest.mark.filterwarnings('ignore::RuntimeWarning:triton')
every_loss = pytest.mark.parametrize('loss', LOSSES)


def run(
    loss: str,
    batch: Batch,
    per_pixel: bool = False,
    ignore_index: int = 255,
    **settings,
) -> StageResult:
    """The stage of a loss on a batch."""
    *data, rho_0k, rho_k0 = (
        None if x is None else x.to(DEVICE) for x in batch
    )
    stage = Stage(*data, ignore_index, per_pixel)
    if loss == 'margin':
        settings = (rho_0k, rho_k0, *MARGIN.values())
        return stage.run(triton_margin.margin_kernel, *settings)
    if loss == 'jaccard':
        defaults = dict(ce_weight=CE_WEIGHT, step=STEP)
        return triton_jaccard.jaccard_stage(stage, **(defaults | settings))
    gamma, kernel = GAMMA[loss], triton_softmax.cross_entropy_kernel
    return stage.run(kernel, gamma, FOCAL=gamma != 0)


def random_shape(S: int) -> tuple[int, ...]:
    random = torch.Generator().manual_seed(S)
    N, K, h, w = torch.randint(1, 6, (4,), generator=random).tolist()
    return min(N, 3), K + 1, h, w, S


def gradient_of(result: StageResult, upstream: float = 1.0) -> torch.Tensor:
    return result.gradient.combine(torch.tensor(upstream, device=DEVICE)).cpu()


def expect(
    loss: str,
    batch: Batch,
    counts: torch.Tensor | None = None,
    softness: float = 0.0,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Loss of the pixels, gradient of their sum, and hits."""
    leaf = batch.scores.double().requires_grad_()
    scores = upsample(leaf, batch.scale)
    if loss == 'margin':
        losses = reference.margin_loss(scores, batch, **MARGIN)
    elif loss == 'jaccard':
        losses = reference.jaccard_loss(scores, batch, counts, softness)
        losses = losses + CE_WEIGHT * reference.cross_entropy(scores, batch)
    else:
        losses = reference.cross_entropy(scores, batch, GAMMA[loss])
    weight = 1 if batch.weight is None else batch.weight
    losses = torch.where(batch.known, weight * losses, 0.0)
    (gradient,) = torch.autograd.grad(losses.sum(), leaf)
    hits = (scores.argmax(1) == batch.classes) & batch.known
    return losses.detach(), gradient, hits.sum()


def check(
    loss: str,
    batch: Batch,
    tolerance: float = 1e-5,
    per_pixel: bool = True,
    **settings: float,
) -> None:
    """A stage against its reference."""
    counts = []
    result = run(
        loss,
        batch,
        per_pixel,
        reduce=lambda found: counts.append(found.cpu()),
        **settings,
    )
    if loss == 'jaccard':
        scores = upsample(batch.scores.double(), batch.scale)
        expected = reference.error_counts(scores, batch, STEP)
        levels, errors, pixels = (counts[0] - expected).split((512, 1, 1), 2)
        # Rounding may move an error across the border of a level.
        assert levels.abs().sum() <= 2 * STEP**2
        assert errors.abs().max() < 1e-5 * 2**32 * batch.labels.numel()
        assert (pixels == 0).all()
    losses, gradient, hits = expect(loss, batch, *counts, **settings)
    found = gradient_of(result, UPSTREAM)
    assert found.dtype == batch.scores.dtype
    close(result.loss, losses if per_pixel else losses.sum(), 1e-5)
    close(found / UPSTREAM, gradient, tolerance)
    assert result.hits == hits


def close(found, expected, tolerance):
    """Relative to the largest value."""
    largest = float(expected.abs().max())
    torch.testing.assert_close(
        found.cpu().double(), expected.cpu(), rtol=0, atol=tolerance * largest
    )


@pytest.mark.parametrize(
    ('losses', 'shape'),
    [
        (LOSSES, (1, 2, 5, 3, 1)),
        (LOSSES, (2, 19, 9, 11, 1)),
        (LOSSES, (1, 5, 7, 13, 2)),
        (LOSSES, (2, 7, 3, 5, 3)),
        (LOSSES, (2, 5, 3, 6, 4)),
        (LOSSES, (1, 19, 5, 3, 4)),
        (LOSSES, (1, 19, 3, 2, 8)),
        (LOSSES, (1, 2, 1, 1, 4)),
        (LOSSES, (1, 3, 2, 1, 32)),
        (LOSSES[1:2], (1, 2, 16, 16, 2)),
        (LOSSES[:1], (1, 150, 2, 3, 4)),
        (LOSSES[:1], (1, 171, 3, 2, 1)),
        (LOSSES[1:2], (1, 40, 2, 3, 1)),
        *((LOSSES[:2], random_shape(S)) for S in (2, 3, 5, 8)),
    ],
)
def test_results_match_the_reference(losses, shape):
    for loss in losses:
        check(loss, make_batch(*shape))


@every_loss
@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
def test_half_precision(loss, dtype):
    batch = make_batch(1, 5, 4, 3, 4, dtype, torch.uint8)
    check(loss, batch, tolerance=torch.finfo(dtype).eps)


def large(batch: Batch) -> Batch:
    offsets = torch.linspace(-50, 500, 5)
    return batch._replace(scores=100 * batch.scores, rho_0k=offsets)


def channels_last(batch: Batch) -> Batch:
    scores = batch.scores.contiguous(memory_format=torch.channels_last)
    assert not scores.is_contiguous()
    return batch._replace(scores=scores)


def confident(batch: Batch) -> Batch:
    """So much that 1 - p would be 0."""
    return batch._replace(scores=18.0 * batch.is_label)


@pytest.mark.parametrize(
    ('loss', 'change', 'scale'),
    [
        *((loss, lambda b: b._replace(weight=None), 2) for loss in LOSSES),
        ('margin', large, 2),
        ('margin', channels_last, 4),
        ('jaccard', confident, 1),
        ('focal', confident, 1),
    ],
)
def test_special_batches_match_the_reference(loss, change, scale):
    check(loss, change(make_batch(1, 5, 3, 4, scale)), per_pixel=False)


@pytest.mark.parametrize('softness', [0.3, 1.0])
def test_softness(softness):
    check('jaccard', make_batch(2, 7, 3, 5, 2), softness=softness)


@every_loss
def test_two_runs_give_the_same_bits(loss):
    batch = make_batch(2, 5, 5, 4, 4)
    first, second = run(loss, batch), run(loss, batch)
    assert torch.equal(first.loss, second.loss)
    assert torch.equal(first.gradient.values, second.gradient.values)


@pytest.mark.parametrize('scale', [1, 4])
@every_loss
def test_ignored_images_have_no_gradient(loss, scale):
    batch = make_batch(2, 5, 3, 4, scale)
    batch.labels[0] = 255
    # Far below 0, the score of a class that does not exist.
    batch.scores[0] -= 200
    check(loss, batch)
    assert not gradient_of(run(loss, batch))[0].any()
    batch.labels[1] = 255
    result = run(loss, batch)
    assert result.loss == result.hits == 0
    assert not gradient_of(result).any()


@pytest.mark.parametrize('wrong', [5, -1, 254, 2**33 + 1])
@every_loss
def test_a_label_that_is_no_class_makes_the_loss_nan(loss, wrong):
    """The device is not waited for, so nothing can be raised."""
    batch = make_batch(1, 5, 3, 4, 2)
    batch.labels[0, 0, 0] = wrong
    assert run(loss, batch).loss.isnan()


def test_a_class_can_be_ignored():
    batch = make_batch(1, 5, 3, 4, 2)
    labels = batch.classes
    expected = batch._replace(labels=labels.masked_fill(labels == 0, 255))
    result = run('margin', batch._replace(labels=labels), ignore_index=0)
    assert torch.equal(result.loss, run('margin', expected).loss)


@pytest.mark.parametrize('value', [float('nan'), float('inf')])
@pytest.mark.parametrize('scale', [1, 4])
@every_loss
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
def test_scores_of_minus_infinity(loss):
    """An excluded class costs nothing, unless it is the label."""
    batch = make_batch(1, 5, 4, 4, 1)
    batch.labels[batch.labels == 3] = 1
    batch.scores[:, 3] = -1e4
    expected = run(loss, batch)
    batch.scores[:, 3] = float('-inf')
    result = run(loss, batch)
    close(result.loss, expected.loss.double(), 1e-6)
    close(gradient_of(result), gradient_of(expected).double(), 1e-6)
    batch.labels.fill_(3)
    assert run(loss, batch).loss == float('inf')


@pytest.mark.parametrize('scale', [1, 2])
def test_the_first_of_tied_classes_is_the_top(scale):
    batch = make_batch(1, 4, 5, 4, scale)
    tied = batch._replace(scores=batch.scores.round().clamp(-1, 1))
    result = run('margin', tied)
    losses, _, hits = expect('margin', tied)
    close(result.loss, losses.sum(), 1e-5)
    assert result.hits == hits
    step = 1e-9 * torch.arange(4).view(1, 4, 1, 1)
    untied = batch._replace(scores=tied.scores.double() - step)
    _, gradient, _ = expect('margin', untied)
    close(gradient_of(result), gradient, 1e-5)


def test_weight_of_the_cross_entropy():
    batch = make_batch(1, 5, 3, 4, 2)
    results = [
        run('jaccard', batch, ce_weight=weight, step=1) for weight in (0.25, 0)
    ]
    ce = reference.cross_entropy(upsample(batch.scores.double(), 2), batch)
    ce = (ce * batch.weight * batch.known).sum()
    close(results[0].ce, ce, 1e-5)
    close(results[0].loss - results[1].loss, 0.25 * ce, 1e-5)


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


def test_supported_tensors():
    """Whole scales, the same in both directions, without aligned corners."""
    scores = torch.zeros(2, 5, 8, 12)
    labels = torch.zeros(2, 24, 36, dtype=torch.uint8)
    assert supports(scores, labels, False)
    assert not supports(scores, labels, True)
    assert supports(scores, labels[:, :8, :12], False)
    assert supports(scores, labels[:, :8, :12], True)
    for h, w in ((24, 24), (20, 30), (4, 6)):
        assert not supports(scores, labels[:, :h, :w], False)
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
