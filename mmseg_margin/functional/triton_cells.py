r"""What the Triton kernels share: pixels, up-sampling and sums.

Bilinear up-sampling by a whole number S puts S x S pixels between four
neighbouring scores of the head, its *nodes*. Such a group of pixels is a
*cell*. Row r of the cells lies between the node rows r and r + 1, from r = -1
to h - 1: the first and the last row of cells are partly outside the image.
In a cell, pixel (i, j) lies at the fractions

    down = (i + 1/2 - (S mod 2)/2) / S,    right = (j + 1/2 - (S mod 2)/2) / S

and its score is ``a + down (d - a)`` between a node and the one below it,
then the same between left and right. The border repeats the outermost node,
so there all weight goes to the node inside the image: ``down`` is 1 in row
-1 and 0 in row h - 1.

A thread holds PIXELS neighbouring pixels of one row of a cell in registers and
a program has THREADS threads: per-pixel tensors are (PIXELS, THREADS),
per-thread tensors (THREADS,). The classes are a loop, so that one binary
serves every K, no thread waits for another, and the up-sampled scores exist
in registers only. With G the sum of a class's gradient over a cell and Gx,
Gy, Gxy the sums weighted by right, down and both, the four nodes receive

    G - Gx - Gy + Gxy    Gx - Gxy
    Gy - Gxy             Gxy

Up to four cells contribute to a node. Atomic additions would make the result
depend on the order of the programs, so each cell writes its four sums to four
planes, and :func:`.combine` sums them. With S = 1 the pixels are the nodes,
and there is one plane, the gradient itself.
"""

from typing import Any, NamedTuple

import triton
import triton.language as tl

THREADS = tl.constexpr(128)
# Arguments for whose values no binary of its own is compiled.
SIZES = ['h', 'w', 'rows', 'columns', 'step', 'K', 'programs', 'x_stride']
SIZES += ['ignored']
# The sums that every program stores, (4, programs).
LOSS, CE, HITS, INVALID = (tl.constexpr(row) for row in range(4))


class CellPixels(NamedTuple):
    """The pixels of a program, each (PIXELS, THREADS) if nothing is said."""

    nodes: Any  # offsets of a thread's four nodes, (THREADS,) each
    down: Any  # fraction, (THREADS,)
    right: Any  # fraction
    at: Any  # offset in the labels
    exists: Any  # whether it is inside the image
    label: Any  # -1 if ignored or not a class
    known: Any  # whether the label is a class and not ignored
    n: Any  # number of the image
    stride: Any  # offset to the scores of the next class


@triton.constexpr_function
def side_of(S):
    """S rounded up to a power of two, as all shapes have to be."""
    return triton.next_power_of_2(S)


@triton.constexpr_function
def pixels_of(S):
    """PIXELS: four fit into the registers of a thread.

    At other scales than multiples of four, some of the four would be idle.
    """
    return 4 if S % 4 == 0 else min(S, 2)


@triton.constexpr_function
def threads_of_cell(S):
    return side_of(S) ** 2 // pixels_of(S)


@triton.constexpr_function
def parts_of(S):
    """Programs per cell."""
    return triton.cdiv(threads_of_cell(S), THREADS.value)


@triton.constexpr_function
def outside_of(S):
    """How many more rows of cells than of nodes there are."""
    return 0 if S == 1 else 1


@triton.jit
def fraction(node, i, size, S: tl.constexpr):
    """Where pixel i lies between a node and the next one."""
    HALF: tl.constexpr = 0.5 if S % 2 == 0 else 0.0
    x = (i.to(tl.float32) + HALF) / S
    x = tl.where(node < 0, 1.0, x)
    return tl.where(node == size - 1, 0.0, x)


@triton.jit
def corners(row, column, h, w):
    """Offsets of a cell's four nodes, of the nearest ones at the border."""
    up = tl.minimum(tl.maximum(row, 0), h - 1) * w
    down = tl.minimum(row + 1, h - 1) * w
    left = tl.minimum(tl.maximum(column, 0), w - 1)
    right = tl.minimum(column + 1, w - 1)
    return up + left, up + right, down + left, down + right


@triton.jit
def upsample(scores, pixels, S: tl.constexpr):
    """One class's scores of the pixels, (PIXELS, THREADS)."""
    a = tl.load(scores + pixels.nodes[0]).to(tl.float32)
    if S == 1:
        score = a[None, :]
    else:
        b = tl.load(scores + pixels.nodes[1]).to(tl.float32)
        d = tl.load(scores + pixels.nodes[2]).to(tl.float32)
        e = tl.load(scores + pixels.nodes[3]).to(tl.float32)
        left = a + pixels.down * (d - a)
        across = b + pixels.down * (e - b) - left
        score = left[None, :] + pixels.right * across[None, :]
    return score


@triton.jit
def load_labels(labels, at, exists, K, ignored):
    """Labels, -1 if not a class, and whether they are known or invalid.

    A label is invalid if it is neither a class nor ignored.
    """
    label = tl.load(labels + at, mask=exists, other=0).to(tl.int64)
    labelled = exists & (label != ignored)
    known = labelled & (label >= 0) & (label < K)
    label = tl.where(known, label, -1).to(tl.int32)
    return label, known, labelled & (label < 0)


@triton.jit
def load_pixels(labels, sums, h, w, K, x_stride, ignored, S: tl.constexpr):
    """The pixels of this program.

    The number of invalid labels is stored here, so that it occupies no
    register during the loops.
    """
    SIDE: tl.constexpr = side_of(S)
    PIXELS: tl.constexpr = pixels_of(S)
    OUTSIDE: tl.constexpr = outside_of(S)
    n = tl.program_id(1).to(tl.int64)
    thread = tl.program_id(0) * THREADS + tl.arange(0, THREADS)
    cell = thread // threads_of_cell(S)
    pixel = thread % threads_of_cell(S) * PIXELS
    row = cell // (w + OUTSIDE) - OUTSIDE
    column = cell % (w + OUTSIDE) - OUTSIDE
    i = pixel // SIDE
    j = (pixel % SIDE)[None, :] + tl.arange(0, PIXELS)[:, None]
    y = (row * S + S // 2 + i)[None, :]
    x = (column * S + S // 2)[None, :] + j
    exists = (y >= 0) & (y < h * S) & (x >= 0) & (x < w * S)
    exists = exists & (i < S)[None, :] & (j < S)
    at = n * (h * S) * (w * S) + (y * (w * S) + x * x_stride)
    label, known, invalid = load_labels(labels, at, exists, K, ignored)
    store_sum(sums, INVALID, invalid)
    nodes = corners(row, column, h, w)
    down = fraction(row, i, h, S)
    right = fraction(column[None, :], j, w, S)
    return CellPixels(nodes, down, right, at, exists, label, known, n, h * w)


@triton.jit
def load_weight(weight, pixels):
    """The weights of the pixels, 0 where the label is ignored."""
    if weight is None:
        value = pixels.known.to(tl.float32)
    else:
        value = tl.load(weight + pixels.at, mask=pixels.known, other=0.0)
        value = value.to(tl.float32)
    return value


@triton.jit
def store_sum(sums, row, values):
    """The sum over the pixels of this program."""
    programs = tl.num_programs(0) * tl.num_programs(1)
    program = tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)
    total = tl.sum(tl.sum(values.to(tl.float32), 0), 0)
    tl.store(sums + row * programs + program, total)


@triton.jit
def store_loss(sums, pixel_loss, loss, ce, hits, pixels):
    """The sums of the program, and each pixel's loss if requested."""
    loss = tl.where(pixels.known, loss, 0.0)
    if pixel_loss is not None:
        tl.store(pixel_loss + pixels.at, loss, mask=pixels.exists)
    store_sum(sums, LOSS, loss)
    store_sum(sums, CE, tl.where(pixels.known, ce, 0.0))
    store_sum(sums, HITS, hits & pixels.known)


@triton.jit
def sum_of_cell(x, LANES: tl.constexpr):
    """The sum over the LANES threads of a cell, for each of them."""
    x = tl.sum(tl.reshape(x, (THREADS // LANES, LANES)), 1)
    x = tl.broadcast_to(x[:, None], (THREADS // LANES, LANES))
    return tl.reshape(x, (THREADS,))


@triton.jit
def store_gradient(planes, k, g, pixels, h, w, K, S: tl.constexpr):
    """Transpose of :func:`upsample` within each cell, for one class.

    The threads of a cell store one of its four sums each. A cell with more
    threads than a program has is split into parts with their own planes.
    """
    LANES: tl.constexpr = threads_of_cell(S) // parts_of(S)
    OUTSIDE: tl.constexpr = outside_of(S)
    thread = tl.program_id(0) * THREADS + tl.arange(0, THREADS)
    cell = thread // threads_of_cell(S)
    part = thread % threads_of_cell(S) // LANES
    which = thread % LANES
    cells = (h + OUTSIDE) * (w + OUTSIDE)
    plane = tl.num_programs(1).to(tl.int64) * K * cells
    stores = (cell < cells) & (which < 4)
    planes += (pixels.n * K + k) * cells
    at = planes + (cell + (4 * part + which) * plane)
    if S == 1:
        tl.store(at, tl.sum(g, 0), mask=stores)
    else:
        G = tl.sum(g, 0)
        Gx = tl.sum(g * pixels.right, 0)
        Gxy = Gx * pixels.down
        d = G * pixels.down - Gxy
        a = sum_of_cell(G - Gx - d, LANES)
        b = sum_of_cell(Gx - Gxy, LANES)
        d = sum_of_cell(d, LANES)
        e = sum_of_cell(Gxy, LANES)
        upper = tl.where(which % 2 == 0, a, b)
        lower = tl.where(which % 2 == 0, d, e)
        if LANES == 2:
            tl.store(at, upper, mask=stores)
            tl.store(at + 2 * plane, lower, mask=stores)
        else:
            tl.store(at, tl.where(which < 2, upper, lower), mask=stores)


@triton.jit(do_not_specialize=SIZES)
def finish(sums, losses, hits, programs, BLOCK: tl.constexpr):
    """Add up the sums of the programs in a fixed order.

    A label that is neither a class nor ignored makes the losses NaN.
    """
    row = tl.arange(0, 4)
    total = tl.zeros((4, BLOCK), tl.float64)
    for first in tl.range(0, programs, BLOCK):
        program = (first + tl.arange(0, BLOCK))[None, :]
        at = sums + row[:, None] * programs + program
        total += tl.load(at, mask=program < programs, other=0.0)
    total = tl.sum(total, 1)
    invalid = tl.sum(tl.where(row == INVALID, total, 0.0), 0)
    loss = tl.where(invalid > 0, float('nan'), total.to(tl.float32))
    tl.store(losses + row, loss, mask=row <= CE)
    tl.store(hits + 0 * row, total.to(tl.int64), mask=row == HITS)


@triton.jit(do_not_specialize=SIZES)
def combine(
    planes, upstream, gradient, h, w, S: tl.constexpr, BLOCK: tl.constexpr
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
        for sum_ in tl.static_range(4 * parts_of(S)):
            shift = sum_ % 2 + sum_ // 2 % 2 * (w + 1)
            g += tl.load(at - shift, mask=is_node, other=0.0)
            at += plane
    g *= tl.load(upstream).to(tl.float32)
    at = gradient + image * h * w + i
    tl.store(at, g.to(gradient.dtype.element_ty), mask=is_node)
