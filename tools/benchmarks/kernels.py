"""The Triton kernels without a GPU: registers, launches, bytes and memory.

Every kernel is compiled for real architectures. Launches, bytes and memory of
the stages are counted on the meta device and not measured: each launch reads
and writes each of its tensors once.
"""

import argparse
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import torch
from mmseg.models.losses import CrossEntropyLoss, accuracy
from mmseg.models.utils import resize
from rich.console import Console
from rich.table import Table
from torch import Tensor

from mmseg_margin.errors import SettingError
from mmseg_margin.functional import triton_launch
from mmseg_margin.functional.triton_launch import Stage, TritonResult

from .counting import Counter
from .measuring import parse_shape

SHAPES = ['2x19x512x1024x4', '2x150x512x512x4', '4x150x512x512x4']
DTYPES = ('float32', 'float16', 'bfloat16')
MMSEG = "mmseg's cross-entropy"
TYPE_NAMES = {
    torch.float32: '*fp32',
    torch.float16: '*fp16',
    torch.bfloat16: '*bf16',
    torch.int32: '*i32',
    torch.int64: '*i64',
    torch.uint8: '*u8',
}


class Launch(NamedTuple):
    """A kernel and its arguments."""

    kernel: Any
    arguments: tuple
    constants: dict[str, Any]

    @property
    def tensors(self) -> list[Tensor]:
        return [x for x in self.arguments if isinstance(x, Tensor)]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        '--shapes',
        nargs='+',
        default=SHAPES,
        help='NxKxHxWxS, for each batch; S is the scale of the up-sampling',
    )
    parser.add_argument(
        '--architectures', nargs='+', type=int, default=[75, 80, 90]
    )
    parser.add_argument('--scales', nargs='+', type=int, default=[1, 4, 8])
    parser.add_argument(
        '--dtypes', nargs='+', default=DTYPES[:2], choices=DTYPES
    )
    parser.add_argument('--json', type=Path, help='file for the figures')


def run(args: argparse.Namespace) -> None:
    """Compile and count, and print tables."""
    if find_spec('triton') is None:
        raise SettingError('Triton is missing: pip install triton')
    if os.environ.get('TRITON_INTERPRET', '0') != '0':
        raise SettingError('Unset TRITON_INTERPRET: it compiles nothing.')
    stages = {shape: model_stages(shape) for shape in args.shapes}
    for shape, figures in stages.items():
        print_stages(shape, figures)
    kernels = {
        f'{name}, scale {scale}, {dtype}': {
            f'sm_{number}': compile_kernel(launch, number)
            for number in args.architectures
        }
        for scale in args.scales
        for dtype in args.dtypes
        for name, launch in all_launches(scale, dtype).items()
    }
    print_kernels(kernels)
    if args.json:
        figures = dict(stages=stages, kernels=kernels)
        args.json.write_text(json.dumps(figures, indent=1) + '\n', 'utf-8')


def model_stages(shape: str) -> dict[str, dict[str, int]]:
    """Launches, launches on single numbers, bytes and peak memory."""
    N, K, H, W, S = parse_shape(shape, 'NxKxHxWxS')
    scores = torch.empty(N, K, H // S, W // S, device='meta')
    labels = torch.empty(N, H, W, dtype=torch.int64, device='meta')

    def mmseg_stage() -> None:
        leaf = scores.detach().requires_grad_()
        large = resize(leaf, size=(H, W), mode='bilinear')
        loss = CrossEntropyLoss()(large, labels, ignore_index=255)
        accuracy(large, labels, ignore_index=255)
        loss.backward()

    stages: dict[str, Callable[[], None]] = {MMSEG: mmseg_stage}
    for name in ('margin', 'jaccard', 'cross-entropy'):

        def stage(name: str = name) -> None:
            result = run_stage(name, scores, labels)
            # The mean over the pixels, and its gradient.
            result.loss / labels.numel()
            upstream = torch.ones((), device='meta') / labels.numel()
            result.planes.combine(upstream)

        stages[name] = stage
    figures = {}
    for name, stage in stages.items():
        with Counter() as counter, recorded_launches(counter):
            stage()
        figures[name] = counter.figures()
    return figures


def run_stage(
    name: str,
    scores: Tensor,
    labels: Tensor,
    weight: Tensor | None = None,
    pixel_loss: bool = False,
) -> TritonResult:
    """One of our stages, with the settings of its loss class."""
    from mmseg_margin.functional.triton_jaccard import jaccard_stage
    from mmseg_margin.functional.triton_margin import margin_kernel
    from mmseg_margin.functional.triton_softmax import cross_entropy_kernel

    stage = Stage(scores, labels, weight, 255, pixel_loss)
    if name == 'margin':
        rho = torch.empty(scores.shape[1], device=scores.device)
        return stage.run(margin_kernel, rho, rho, 1.0, 1.0, 1.0)
    if name == 'jaccard':
        ce_weight = torch.empty((), device=scores.device)
        return jaccard_stage(stage, ce_weight=ce_weight, levels=64, step=4)
    return stage.run(cross_entropy_kernel, 2.0, FOCAL=True)


@contextmanager
def recorded_launches(counter: Counter) -> Iterator[list[Launch]]:
    """Count launches instead of starting them."""
    launches = []

    def record(kernel, grid, *arguments, **constants):
        launches.append(Launch(kernel, arguments, constants))
        counter.add_launch(launches[-1].tensors)

    original, triton_launch.launch = triton_launch.launch, record
    try:
        yield launches
    finally:
        triton_launch.launch = original


def all_launches(scale: int, dtype: str) -> dict[str, Launch]:
    """The largest variant of each kernel, by name: with all options."""
    options = dict(dtype=getattr(torch, dtype), device='meta')
    scores = torch.empty(1, 19, 16, 16, **options)
    size = (1, 16 * scale, 16 * scale)
    labels = torch.empty(size, dtype=torch.int64, device='meta')
    weight = torch.empty(size, device='meta')
    with recorded_launches(Counter()) as launches:
        for name in ('margin', 'jaccard', 'cross-entropy'):
            result = run_stage(
                name, scores, labels, weight=weight, pixel_loss=True
            )
            result.planes.combine(result.loss)
    return {launch.kernel.__name__: launch for launch in launches}


def compile_kernel(launch: Launch, architecture: int) -> dict[str, int]:
    """Registers, spilled bytes and shared memory on an architecture."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    kernel = launch.kernel
    values = dict(zip(kernel.arg_names, launch.arguments, strict=False))
    values.update(launch.constants)
    types = {
        name: 'constexpr' if name in launch.constants else type_of(value)
        for name, value in values.items()
    }
    place = {name: (i,) for i, name in enumerate(kernel.arg_names)}
    source = ASTSource(
        kernel,
        signature=types,
        constexprs={
            place[name]: values[name]
            for name, kind in types.items()
            if kind == 'constexpr'
        },
        attrs={
            place[name]: [['tt.divisibility', 16]]
            for name, kind in types.items()
            if kind.startswith('*')
        },
    )
    compiled = triton.compile(
        source,
        target=GPUTarget('cuda', architecture, 32),
        options=triton_launch.OPTIONS,
    )
    with tempfile.NamedTemporaryFile(suffix='.cubin') as file:
        file.write(compiled.asm['cubin'])
        file.flush()
        usage = subprocess.run(
            [
                triton.knobs.nvidia.cuobjdump.path,
                '--dump-resource-usage',
                file.name,
            ],
            capture_output=True,
            check=True,
            text=True,
        ).stdout
    found = dict(re.findall(r'(REG|STACK|LOCAL):(\d+)', usage))
    return dict(
        registers=int(found['REG']),
        spilled=int(found['STACK']) + int(found['LOCAL']),
        shared=compiled.metadata.shared,
    )


def type_of(value: Any) -> str:
    """An argument's type in Triton's words; an absent tensor is constant."""
    if value is None:
        return 'constexpr'
    if isinstance(value, Tensor):
        return TYPE_NAMES[value.dtype]
    return 'fp32' if isinstance(value, float) else 'i32'


def print_stages(shape: str, figures: dict[str, dict[str, int]]) -> None:
    first = figures[MMSEG]
    table = Table(
        title=f'{shape}, loss stage on a GPU: modelled, not measured',
        title_justify='left',
    )
    columns = ('launches', 'on one number', 'MB moved', 'share', 'MB', 'share')
    for column in ('', *columns):
        table.add_column(column, justify='right' if column else 'left')
    for name, counted in figures.items():
        table.add_row(
            name,
            str(counted['launches']),
            str(counted['small_launches']),
            f'{counted["bytes"] / 1e6:.0f}',
            f'{counted["bytes"] / first["bytes"]:.3f}',
            f'{counted["peak"] / 1e6:.0f}',
            f'{counted["peak"] / first["peak"]:.3f}',
        )
    Console().print(table)


def print_kernels(kernels: dict[str, dict[str, dict[str, int]]]) -> None:
    table = Table(
        title='registers / spilled bytes / shared memory, 4 warps, any K',
        title_justify='left',
    )
    table.add_column('')
    for architecture in next(iter(kernels.values())):
        table.add_column(architecture, justify='right')
    for name, compiled in kernels.items():
        cells = (' / '.join(map(str, x.values())) for x in compiled.values())
        table.add_row(name, *cells)
    Console().print(table)
