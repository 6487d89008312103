"""Batches of pixels, and the loss with its gradient."""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from mmseg_margin.functional import margin_calibration_loss

IGNORE = 255
Batch = tuple[Tensor, Tensor, Tensor, Tensor]

eager = partial(margin_calibration_loss, backend='eager')


def make_batch(
    K: int,
    shape: Sequence[int],
    low: Sequence[int] | None = None,
    dtype: torch.dtype = torch.float64,
    seed: int = 0,
    ignored: float = 0.2,
) -> Batch:
    """Scores (N, K, ...), labels of a shape (N, ...), and both offsets (K,).

    The scores have another resolution than the labels, if there is a low one.
    """
    generator = torch.Generator().manual_seed(seed)
    draw = partial(torch.rand, generator=generator, dtype=torch.float64)
    sizes = (shape[0], K, *(shape[1:] if low is None else low))
    scores = torch.randn(sizes, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, K, tuple(shape), generator=generator)
    labels[draw(*shape) < ignored] = IGNORE
    return (2 * scores).to(dtype), labels, *draw(2, K)


def value_and_gradient(
    loss: Callable[..., Tensor], scores: Tensor, *others, **settings
) -> tuple[Tensor, Tensor]:
    """The loss of these arguments, and its gradient by the first."""
    leaf = scores.detach().clone().requires_grad_()
    value = loss(leaf, *others, **settings)
    value.backward()
    return value.detach(), leaf.grad
