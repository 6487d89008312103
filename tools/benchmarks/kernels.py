"""The Triton kernels without a GPU: registers, launches and bytes.

Every kernel is compiled for real architectures. Launches and bytes of the
stages are counted on the meta device and not measured: each launch reads
and writes each of its tensors once.
"""

import argparse
import os
import re
import subprocess
import tempfile

import torch
from mmseg.models.losses import CrossEntropyLoss, accuracy
from mmseg.models.utils import resize
from torch import Tensor

from mmseg_margin.errors import SettingError
from mmseg_margin.functional import triton_launch
from mmseg_margin.functional.backend import StageResult
from mmseg_margin.functional.triton_launch import Stage

from .counting import Counter, Launch
from .tables import parse_shape, print_table

MMSEG = "mmseg's cross-entropy"
OURS = ('margin', 'jaccard', 'cross-entropy')
ARCHITECTURES = (75, 80, 90)
SCALES = (1, 4, 8)
DTYPES = ('float32', 'float16')


def run(args: argparse.Namespace) -> None:
    """Compile and count, and print tables."""
    if os.environ.get('TRITON_INTERPRET', '0') != '0':
        raise SettingError('Unset TRITON_INTERPRET: it compiles nothing.')
    for shape in args.shapes:
        print_stages(shape)
    print_table(
        'registers / spilled bytes / shared memory, 4 warps, any K',
        ('', *(f'sm_{number}' for number in ARCHITECTURES)),
        (
            (
                f'{name}, scale {scale}, {dtype}',
                *(compile_kernel(launch, x) for x in ARCHITECTURES),
            )
            for scale in SCALES
            for dtype in DTYPES
            for name, launch in all_launches(scale, dtype).items()
        ),
    )


def print_stages(shape: str) -> None:
    """Launches and bytes of mmseg's and of our stages."""
    N, K, H, W, S = parse_shape(shape)
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

    rows, first = [], None
    for name in (MMSEG, *OURS):
        counter = Counter()
        with counter.counting():
            mmseg_stage() if name == MMSEG else our_stage(name)
        first = first or counter
        row = (
            name,
            str(counter.launches),
            f'{counter.bytes / 1e6:.0f}',
            f'{counter.bytes / first.bytes:.3f}',
        )
        rows.append(row)
    print_table(
        f'{shape}, loss stage on a GPU: modelled, not measured',
        ('', 'launches', 'MB moved', 'share'),
        rows,
    )


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
        return jaccard_stage(stage, ce_weight=1.0, step=4)
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


def compile_kernel(launch: Launch, architecture: int) -> str:
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
    spilled = int(found['STACK']) + int(found['LOCAL'])
    return f'{found["REG"]} / {spilled} / {compiled.metadata.shared}'
