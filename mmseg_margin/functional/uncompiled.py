"""Functions that an enclosing ``torch.compile`` calls as they are."""

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch

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
