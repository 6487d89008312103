"""A gradient that refuses to be differentiated again."""

import torch
from torch import Tensor


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
