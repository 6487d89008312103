"""``backend='triton'`` gives the results of the eager kernels."""

import pytest
import torch

from mmseg_margin.functional import (
    backend,
    stage,
    upsampled_jaccard_loss,
    upsampled_margin_loss,
)
from tests.functional.builders import (
    OBJECTIVES,
    make_batch,
    objective_loss,
    value_and_gradient,
)

pytest.importorskip('triton', reason='triton is not installed')
every_objective = pytest.mark.parametrize('name', OBJECTIVES)


def both(name, low, full, weight=None, **options):
    """Loss and gradient of both backends, in float32."""
    scores, labels, *_ = make_batch(5, (2, *full), low, torch.float32)
    weight = 1.0 if weight is None else weight
    return [
        value_and_gradient(
            lambda s, how=how: (
                weight
                * objective_loss(name, s, labels, backend=how, **options)
            ).sum(),
            scores,
        )
        for how in ('eager', 'triton')
    ]


@every_objective
@pytest.mark.parametrize('reduction', ['mean', 'sum'])
@pytest.mark.parametrize('scale', [1, 2, 4])
def test_it_equals_the_eager_kernels(name, reduction, scale):
    full = (6 * scale, 7 * scale)
    options = dict(align_corners=False, reduction=reduction)
    expected, result = both(name, (6, 7), full, **options)
    torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-5)


@every_objective
def test_losses_of_single_pixels(name):
    weight = torch.rand(2, 8, 8)
    expected, result = both(name, (8, 8), (8, 8), weight, reduction='none')
    torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-5)


def test_public_functions_in_half_precision_and_twice():
    scores, labels, *_ = make_batch(3, (1, 8, 12), (4, 6), torch.float16)
    labels = labels.byte()
    for loss in (
        lambda s: upsampled_margin_loss(s, labels, 0.2, 0.1, backend='triton'),
        lambda s: upsampled_jaccard_loss(s, labels, backend='triton'),
    ):
        first, second = (value_and_gradient(loss, scores) for _ in range(2))
        assert first[1].dtype == torch.float16
        assert torch.equal(first[0], second[0])
        assert torch.equal(first[1], second[1])


@pytest.mark.parametrize('corners', [False, True])
def test_other_ratios_fall_back(corners):
    expected, result = both('margin', (5, 4), (13, 9), align_corners=corners)
    torch.testing.assert_close(result, expected)


def test_auto_takes_it_only_once_it_is_proven(monkeypatch):
    """Here on the CPU, as if it were a GPU."""
    asked = []

    def proven(*arguments):
        asked.append(arguments)
        return False

    monkeypatch.setattr('mmseg_margin.functional.triton_check.proven', proven)
    scores, labels, *_ = make_batch(3, (1, 4, 4), dtype=torch.float32)
    expected = objective_loss('jaccard', scores, labels)
    monkeypatch.setattr(stage, 'choose_backend', lambda *_: 'triton')
    loss = objective_loss('jaccard', scores, labels, backend='auto')
    assert loss == expected
    assert asked == [(scores.device, 1, torch.float32, ('jaccard',))]


def test_without_triton_it_is_named(monkeypatch):
    monkeypatch.setattr(backend, '_has_triton', lambda: False)
    with pytest.raises(ImportError, match='needs the package triton'):
        both('margin', (4, 4), (8, 8), align_corners=False)
    cuda = torch.device('cuda')
    monkeypatch.undo()
    assert backend.choose_backend(cuda) == 'triton'
