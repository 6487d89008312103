"""What keeps torch's own transformations away from the closed form."""

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor

P = ParamSpec('P')
R = TypeVar('R')


def uncompiled(function: Callable[P, R]) -> Callable[P, R]:
    """``torch.compiler.disable``, but only when the function is called.

    It imports the whole compiler, which would take longer than everything
    else that importing this package does.
    """

    disabled: list[Callable[P, R]] = []

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if not disabled:
            disabled.append(torch.compiler.disable(function))
        return disabled[0](*args, **kwargs)

    # What the compiler looks for before it follows a call.
    call._torchdynamo_disable = True  # type: ignore[attr-defined]
    return call


class _FirstDerivativeOnly(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gradient, source):
        return gradient.view_as(gradient)

    @staticmethod
    def backward(ctx, upstream):
        raise RuntimeError(
            'The margin loss has its gradient in closed form and no second '
            'derivative: use reference_loss for that, or leave out '
            'create_graph=True.'
        )


def first_derivative_only(gradient: Tensor, source: Tensor) -> Tensor:
    """The gradient; part of a graph with its source it raises an error."""
    return _FirstDerivativeOnly.apply(gradient, source)
