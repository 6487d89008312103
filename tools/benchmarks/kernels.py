"""The Triton kernels without a GPU: registers, launches, bytes and memory.

Every kernel is compiled for real architectures. Launches, bytes and memory of
the stages are counted on the meta device and not measured: each launch reads
and writes each of its tensors once.
"""

import argparse
import os
import re
import subprocess
import tempfile
from importlib.util import find_spec

import torch
from mmseg.models.losses import CrossEntropyLoss, accuracy
from mmseg.models.utils import resize
from torch import Tensor

from mmseg_margin.errors import SettingError
from mmseg_margin.functional import StageResult, triton_launch
from mmseg_margin.functional.triton_launch import Stage

from .counting import Counter, Launch
from .measuring import parse_shape, print_table, write_json

SHAPES = ['2x19x512x1024x4', '2x150x512x512x4', '4x150x512x512x4']
MMSEG = "mmseg's cross-entropy"
OURS = ('margin', 'jaccard', 'cross-entropy')


def run(args: argparse.Namespace) -> None:
    """Compile and count, and print tables."""
    if find_spec('triton') is None:
        raise SettingError('Triton is missing: pip install triton')
    if os.environ.get('TRITON_INTERPRET', '0') != '0':
        raise SettingError('Unset TRITON_INTERPRET: it compiles nothing.')
    stages = {shape: model_stages(shape) for shape in args.shapes or SHAPES}
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
    write_json(args.json, dict(stages=stages, kernels=kernels))


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

    def our_stage(name: str) -> None:
        result = run_stage(name, scores, labels)
        # The mean over the pixels, and its gradient.
        result.loss / labels.numel()
        upstream = torch.ones((), device='meta') / labels.numel()
        result.gradient.combine(upstream)

    figures = {}
    for name in (MMSEG, *OURS):
        counter = Counter()
        with counter.counting():
            mmseg_stage() if name == MMSEG else our_stage(name)
        figures[name] = counter.figures()
    return figures


def run_stage(
    name: str,
    scores: Tensor,
    labels: Tensor,
    weight: Tensor | None = None,
    per_pixel: bool = False,
) -> StageResult:
    """One of our stages, with the settings of its loss class."""
    from mmseg_margin.functional.triton_jaccard import jaccard_stage
    from mmseg_margin.functional.triton_margin import margin_kernel
    from mmseg_margin.functional.triton_softmax import cross_entropy_kernel

    stage = Stage(scores, labels, weight, 255, per_pixel)
    if name == 'margin':
        rho = torch.empty(scores.shape[1], device=scores.device)
        return stage.run(margin_kernel, rho, rho, 1.0, 1.0, 1.0)
    if name == 'jaccard':
        ce_weight = torch.empty((), device=scores.device)
        return jaccard_stage(stage, ce_weight=ce_weight, step=4)
    return stage.run(cross_entropy_kernel, 2.0, FOCAL=True)


def all_launches(scale: int, dtype: str) -> dict[str, Launch]:
    """The largest variant of each kernel, by name: with all options."""
    options = dict(dtype=getattr(torch, dtype), device='meta')
    scores = torch.empty(1, 19, 16, 16, **options)
    size = (1, 16 * scale, 16 * scale)
    labels = torch.empty(size, dtype=torch.int64, device='meta')
    weight = torch.empty(size, device='meta')
    counter = Counter()
    with counter.counting():
        for name in OURS:
            result = run_stage(name, scores, labels, weight, per_pixel=True)
            result.gradient.combine(result.loss)
    return {launch.kernel.__name__: launch for launch in counter.kernels}


def compile_kernel(launch: Launch, architecture: int) -> dict[str, int]:
    """Registers, spilled bytes and shared memory on an architecture."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
    from triton.runtime.jit import mangle_type

    kernel = launch.kernel
    values = dict(zip(kernel.arg_names, launch.arguments, strict=False))
    types = {name: mangle_type(value) for name, value in values.items()}
    values |= launch.constants
    types |= dict.fromkeys(launch.constants, 'constexpr')
    constants, attributes = {}, {}
    for i, name in enumerate(kernel.arg_names):
        if types[name] == 'constexpr':
            constants[(i,)] = values[name]
        elif types[name].startswith('*'):
            attributes[(i,)] = [['tt.divisibility', 16]]
    source = ASTSource(kernel, types, constants, attributes)
    compiled = triton.compile(
        source,
        target=GPUTarget('cuda', architecture, 32),
        options=triton_launch.OPTIONS,
    )
    with tempfile.NamedTemporaryFile(suffix='.cubin') as file:
        file.write(compiled.asm['cubin'])
        file.flush()
        tool = triton.knobs.nvidia.cuobjdump.path
        command = [tool, '--dump-resource-usage', file.name]
        usage = subprocess.check_output(command, text=True)
    found = dict(re.findall(r'(REG|STACK|LOCAL):(\d+)', usage))
    return dict(
        registers=int(found['REG']),
        spilled=int(found['STACK']) + int(found['LOCAL']),
        shared=compiled.metadata.shared,
    )


def print_stages(shape: str, figures: dict[str, dict[str, int]]) -> None:
    first = figures[MMSEG]
    print_table(
        f'{shape}, loss stage on a GPU: modelled, not measured',
        ('', 'launches', 'on one number', 'MB moved', 'share', 'MB', 'share'),
        (
            (
                name,
                str(counted['launches']),
                str(counted['small_launches']),
                f'{counted["bytes"] / 1e6:.0f}',
                f'{counted["bytes"] / first["bytes"]:.3f}',
                f'{counted["peak"] / 1e6:.0f}',
                f'{counted["peak"] / first["peak"]:.3f}',
            )
            for name, counted in figures.items()
        ),
    )


def print_kernels(kernels: dict[str, dict[str, dict[str, int]]]) -> None:
    print_table(
        'registers / spilled bytes / shared memory, 4 warps, any K',
        ('', *next(iter(kernels.values()))),
        (
            (name, *(' / '.join(map(str, x.values())) for x in row.values()))
            for name, row in kernels.items()
        ),
    )
