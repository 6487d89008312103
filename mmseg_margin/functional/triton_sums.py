"""Sums over programs and cells, each in a fixed order."""

import triton
import triton.language as tl

from .triton_cells import parts_of


@triton.jit
def store_loss(sums, pixel_loss, loss, ce, hits, counts, at, exists):
    """Each pixel's loss, if requested, and the sums of the program.

    The sums are loss, cross-entropy and hits.
    """
    if pixel_loss is not None:
        value = tl.where(counts, loss, 0.0)
        tl.store(pixel_loss + at, value, mask=exists)
    programs = tl.num_programs(0) * tl.num_programs(1)
    program = tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)
    sums += program
    tl.store(sums, tl.sum(tl.sum(tl.where(counts, loss, 0.0), 0), 0))
    sums += programs
    tl.store(sums, tl.sum(tl.sum(tl.where(counts, ce, 0.0), 0), 0))
    sums += programs
    tl.store(sums, tl.sum(tl.sum((hits & counts).to(tl.float32), 0), 0))


@triton.jit(do_not_specialize=['programs'])
def finish(sums, invalid, losses, hits_sum, programs, BLOCK: tl.constexpr):
    """Sum the results of the programs in a fixed order.

    A label that is neither a class nor ignored makes the loss NaN.
    """
    loss = tl.zeros((BLOCK,), tl.float64)
    ce = tl.zeros((BLOCK,), tl.float64)
    hits = tl.zeros((BLOCK,), tl.float64)
    wrong = tl.zeros((BLOCK,), tl.int32)
    for first in tl.range(0, programs, BLOCK):
        program = first + tl.arange(0, BLOCK)
        is_one = program < programs
        at = sums + program
        loss += tl.load(at, mask=is_one, other=0.0).to(tl.float64)
        at += programs
        ce += tl.load(at, mask=is_one, other=0.0).to(tl.float64)
        at += programs
        hits += tl.load(at, mask=is_one, other=0.0).to(tl.float64)
        wrong += tl.load(invalid + program, mask=is_one, other=0)
    poison = tl.where(tl.sum(wrong, 0) > 0, float('nan'), 0.0)
    tl.store(losses, tl.sum(loss, 0).to(tl.float32) + poison)
    tl.store(losses + 1, tl.sum(ce, 0).to(tl.float32) + poison)
    tl.store(hits_sum, tl.sum(hits, 0).to(tl.int64))


@triton.jit(do_not_specialize=['h', 'w'])
def combine(
    planes,
    upstream,
    gradient,
    h,
    w,
    S: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Sum the planes of one class, times the upstream gradient."""
    image = tl.program_id(0).to(tl.int64)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_node = i < h * w
    if S == 1:
        g = tl.load(planes + image * h * w + i, mask=is_node, other=0.0)
    else:
        # The cell to the lower right of a node has it as its upper left.
        cell = (i // w + 1) * (w + 1) + i % w + 1
        at = planes + image * (h + 1) * (w + 1) + cell
        plane = tl.num_programs(0).to(tl.int64) * (h + 1) * (w + 1)
        g = tl.zeros((BLOCK,), tl.float32)
        for _ in tl.static_range(parts_of(S)):
            g += tl.load(at, mask=is_node, other=0.0)
            at += plane
            g += tl.load(at - 1, mask=is_node, other=0.0)
            at += plane
            g += tl.load(at - (w + 1), mask=is_node, other=0.0)
            at += plane
            g += tl.load(at - (w + 2), mask=is_node, other=0.0)
            at += plane
    g *= tl.load(upstream).to(tl.float32)
    at = gradient + image * h * w + i
    tl.store(at, g.to(gradient.dtype.element_ty), mask=is_node)
