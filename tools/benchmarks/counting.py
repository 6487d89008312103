"""Launches and bytes of torch operators on the meta device."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from mmseg_margin.functional import triton_launch

# A launch that touches no more is arithmetic on single numbers, not counted.
SMALL = 64
ALLOCATIONS = ('empty', 'new_empty', 'empty_like', 'empty_strided')


class Launch(NamedTuple):
    """A Triton kernel and its arguments."""

    kernel: Any
    arguments: tuple
    constants: dict[str, Any]


class Counter(TorchDispatchMode):
    """Counts every operator that runs inside as one launch.

    Each reads its inputs and writes its outputs once. Views and allocations
    are no launches. Operators that are several kernels on a GPU count once,
    so that torch is not made to look worse than it is.
    """

    def __init__(self) -> None:
        super().__init__()
        self.launches = self.bytes = 0
        self.kernels: list[Launch] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.index.Tensor:
            result = select_everything(*args)
        else:
            result = func(*args, **(kwargs or {}))
        inputs, outputs = tensors_in((args, kwargs)), tensors_in(result)
        name = func.overloadpacket.__name__
        if not is_view(func) and name not in ALLOCATIONS:
            self.add_launch([*inputs, *outputs])
        return result

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count operators and our kernels, which are not started."""

        def record(kernel, grid, *arguments, **constants):
            self.kernels.append(Launch(kernel, arguments, constants))
            self.add_launch(tensors_in(arguments))

        with self, patch.object(triton_launch, 'launch', record):
            yield

    def add_launch(self, tensors: Iterable[Tensor]) -> None:
        """A launch that reads or writes each of the tensors once."""
        storages = {x.untyped_storage()._cdata: x for x in tensors}
        # An expanded tensor is stored, and read, only once.
        moved = sum(
            min(x.nbytes, x.untyped_storage().nbytes())
            for x in storages.values()
        )
        self.bytes += moved
        self.launches += moved > SMALL


def tensors_in(values: Any) -> list[Tensor]:
    return [x for x in tree_leaves(values) if isinstance(x, Tensor)]


def is_view(func: Any) -> bool:
    """Whether all that an operator returns shares memory with its input."""
    aliases = [x.alias_info for x in func._schema.returns]
    return bool(aliases) and all(x and not x.is_write for x in aliases)


def select_everything(source: Tensor, indices: list[Tensor | None]) -> Tensor:
    """Indexing with a mask, as if all of it were true.

    How much a mask selects is unknown on the meta device.
    """
    (mask,) = [x for x in indices if x is not None]
    before = source.shape[: len(indices) - 1]
    after = source.shape[len(before) + mask.dim() :]
    return source.new_empty(*before, mask.numel(), *after)
