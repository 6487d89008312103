"""``backend='triton'`` gives the results of the eager kernels."""

import pytest
import torch

from mmseg_margin.functional import (
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


def check(name, low, full, **options):
    """Compare loss and gradient of both backends, in float32."""
    scores, labels, *_ = make_batch(5, (2, *full), low, torch.float32)
    # Losses of single pixels are weighted, others are one number.
    weight = torch.rand(2, *full) if 'none' in options.values() else 1.0
    expected, result = (
        value_and_gradient(
            lambda s, how=how: (
                weight
                * objective_loss(name, s, labels, backend=how, **options)
            ).sum(),
            scores,
        )
        for how in ('eager', 'triton')
    )
    torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize('name', OBJECTIVES)
@pytest.mark.parametrize(
    ('reduction', 'scale'), [('mean', 1), ('sum', 2), ('mean', 4), ('none', 1)]
)
def test_it_equals_the_eager_kernels(name, reduction, scale):
    full = (6 * scale, 7 * scale)
    check(name, (6, 7), full, align_corners=False, reduction=reduction)


@pytest.mark.parametrize('corners', [False, True])
def test_other_ratios_fall_back(corners):
    check('margin', (5, 4), (13, 9), align_corners=corners)


def test_public_functions_in_half_precision_and_twice():
    scores, labels, *_ = make_batch(3, (1, 8, 12), (4, 6), torch.float16)
    labels = labels.byte()
    for loss in (
        lambda s: upsampled_margin_loss(s, labels, 0.2, 0.1, backend='triton'),
        lambda s: upsampled_jaccard_loss(s, labels, backend='triton'),
    ):
        first, second = (value_and_gradient(loss, scores) for _ in range(2))
        assert first[1].dtype == torch.float16
        torch.testing.assert_close(first, second, rtol=0, atol=0)


def test_auto_takes_it_only_once_it_is_proven(monkeypatch):
    """Here on the CPU, as if it were a GPU."""
    asked = []

    def kernels_match_reference(*arguments):
        asked.append(arguments)
        return False

    monkeypatch.setattr(
        'mmseg_margin.functional.triton_check.kernels_match_reference',
        kernels_match_reference,
    )
    scores, labels, *_ = make_batch(3, (1, 4, 4), dtype=torch.float32)
    expected = objective_loss('jaccard', scores, labels)
    monkeypatch.setattr(stage, 'choose_backend', lambda *_: 'triton')
    loss = objective_loss('jaccard', scores, labels, backend='auto')
    assert loss == expected
    assert asked == [(scores.device, 1, torch.float32, ('jaccard',))]
