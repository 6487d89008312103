"""Batches of pixels, the objectives, and a loss with its gradient."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from mmseg_margin.functional import (
    MarginSettings,
    jaccard_loss,
    margin_loss,
)
from mmseg_margin.functional.backend import PixelObjective
from mmseg_margin.functional.jaccard import JaccardObjective
from mmseg_margin.functional.margin import MarginObjective
from mmseg_margin.functional.softmax import CrossEntropy
from mmseg_margin.functional.stage import reduced_loss

IGNORE = 255
Batch = tuple[Tensor, Tensor, Tensor, Tensor]

eager = partial(margin_loss, backend='eager')
jaccard = partial(jaccard_loss, backend='eager')
OBJECTIVES = ('margin', 'authors', 'jaccard', 'ce', 'focal')


def make_objective(name: str, K: int) -> PixelObjective:
    """One of the objectives, with offsets where it has them."""
    rho_0k, rho_k0 = torch.linspace(0.1, 2, K), torch.linspace(0.3, 0.1, K)
    if name == 'jaccard':
        return JaccardObjective(ce_weight=0.25)
    if name in ('ce', 'focal'):
        return CrossEntropy(gamma=1.5 * (name == 'focal'))
    settings = MarginSettings()
    if name == 'authors':
        settings = MarginSettings('num_classes', 'e', class_mean=True)
    return MarginObjective(rho_0k, rho_k0, settings)


def objective_loss(
    name: str, scores: Tensor, labels: Tensor, **options: Any
) -> Tensor:
    """The loss of an objective by its name."""
    options = {'backend': 'eager', **options}
    objective = make_objective(name, scores.shape[1])
    return reduced_loss(scores, labels, objective, **options)


def slow_margin_loss(
    scores, labels, rho_0k, rho_k0, pos_weight=1.0, log_base=2.0
):
    """Eq. 16 written from the paper: a mean over labelled pixels."""
    base, K = log_base, scores.shape[1]
    total, labelled = torch.zeros((), dtype=scores.dtype), 0
    rows = scores.movedim(1, -1).reshape(-1, K)
    for s, y in zip(rows, labels.flatten().tolist(), strict=True):
        if y == IGNORE:
            continue
        labelled += 1
        for k in range(K):
            others = torch.stack([s[j] for j in range(K) if j != k])
            margin = s[k] - others.amax()
            if k == y:
                exponent, weight = rho_k0[k] - margin, pos_weight
            else:
                exponent, weight = rho_0k[k] + margin, 1
            term = torch.log1p(base**exponent) / math.log(base)
            total = total + weight * term
    return total / labelled


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
