r"""The pixels of the Triton kernels: up-sampling and its transpose.

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

import triton
import triton.language as tl

THREADS = tl.constexpr(128)


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
    """Threads per cell."""
    return side_of(S) ** 2 // pixels_of(S)


@triton.constexpr_function
def lanes_of(S):
    """Threads per cell within one program."""
    return min(threads_of_cell(S), THREADS.value)


@triton.constexpr_function
def parts_of(S):
    """Programs per cell."""
    return threads_of_cell(S) // lanes_of(S)


@triton.constexpr_function
def outside_of(S):
    """How many more rows of cells than of nodes there are."""
    return 0 if S == 1 else 1


@triton.jit
def border(node, fraction, size):
    """The weight of the next node, where one of the two may not exist."""
    fraction = tl.where(node < 0, 1.0, fraction)
    return tl.where(node == size - 1, 0.0, fraction)


@triton.jit
def corners(row, column, h, w):
    """Offsets of a cell's four nodes, of the nearest ones at the border."""
    up = tl.minimum(tl.maximum(row, 0), h - 1) * w
    down = tl.minimum(row + 1, h - 1) * w
    left = tl.minimum(tl.maximum(column, 0), w - 1)
    right = tl.minimum(column + 1, w - 1)
    return up + left, up + right, down + left, down + right


@triton.jit
def locate(h, w, S: tl.constexpr):
    """The pixels of this program.

    Returns:
        Offsets of each thread's nodes, down (THREADS,), right (PIXELS,
        THREADS), and each pixel's row, column, and whether it exists.
    """
    SIDE: tl.constexpr = side_of(S)
    PIXELS: tl.constexpr = pixels_of(S)
    OUTSIDE: tl.constexpr = outside_of(S)
    HALF: tl.constexpr = 0.5 if S % 2 == 0 else 0.0
    thread = tl.program_id(0) * THREADS + tl.arange(0, THREADS)
    cell = thread // threads_of_cell(S)
    pixel = thread % threads_of_cell(S) * PIXELS
    row = cell // (w + OUTSIDE) - OUTSIDE
    column = cell % (w + OUTSIDE) - OUTSIDE
    i = pixel // SIDE
    j = (pixel % SIDE)[None, :] + tl.arange(0, PIXELS)[:, None]
    down = border(row, (i.to(tl.float32) + HALF) / S, h)
    right = border(column[None, :], (j.to(tl.float32) + HALF) / S, w)
    y = (row * S + S // 2 + i)[None, :]
    x = (column * S + S // 2)[None, :] + j
    exists = (y >= 0) & (y < h * S) & (x >= 0) & (x < w * S)
    exists = exists & (i < S)[None, :] & (j < S)
    return corners(row, column, h, w), down, right, y, x, exists


@triton.jit
def upsample(scores, nodes, down, right, S: tl.constexpr):
    """One class's scores of the pixels, (PIXELS, THREADS)."""
    a = tl.load(scores + nodes[0]).to(tl.float32)
    if S == 1:
        score = a[None, :]
    else:
        b = tl.load(scores + nodes[1]).to(tl.float32)
        d = tl.load(scores + nodes[2]).to(tl.float32)
        e = tl.load(scores + nodes[3]).to(tl.float32)
        left = a + down * (d - a)
        across = b + down * (e - b) - left
        score = left[None, :] + right * across[None, :]
    return score


@triton.jit
def load_labels(labels, offset, exists, K, ignore_index):
    """Labels, -1 if not a class, and whether they count or are invalid.

    A label is invalid if it is neither a class nor ignored.
    """
    label = tl.load(labels + offset, mask=exists, other=0).to(tl.int64)
    labelled = exists & (label != ignore_index)
    counts = labelled & (label >= 0) & (label < K)
    label = tl.where(counts, label, -1).to(tl.int32)
    return label, counts, labelled & (label < 0)


@triton.jit
def load_pixels(
    labels, invalid, n, h, w, K, x_stride, ignore_index, S: tl.constexpr
):
    """The positions of an image's pixels, and their labels.

    Each program stores its number of invalid labels here, so that it occupies
    no register during the loops.

    Returns:
        As :func:`locate`, but offsets instead of rows and columns, then the
        labels and whether they count.
    """
    nodes, down, right, y, x, exists = locate(h, w, S)
    at = n * (h * S) * (w * S) + (y * (w * S) + x * x_stride)
    label, counts, wrong = load_labels(labels, at, exists, K, ignore_index)
    program = tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)
    tl.store(invalid + program, tl.sum(tl.sum(wrong.to(tl.int32), 0), 0))
    return nodes, down, right, at, exists, label, counts


@triton.jit
def load_weight(weight, at, counts):
    """The weights of the pixels, 0 where the label is ignored."""
    if weight is None:
        value = counts.to(tl.float32)
    else:
        value = tl.load(weight + at, mask=counts, other=0.0).to(tl.float32)
    return value


@triton.jit
def sum_of_cell(x, LANES: tl.constexpr):
    """The sum over the LANES threads of a cell, for each of them."""
    x = tl.sum(tl.reshape(x, (THREADS // LANES, LANES)), 1)
    x = tl.broadcast_to(x[:, None], (THREADS // LANES, LANES))
    return tl.reshape(x, (THREADS,))


@triton.jit
def places_in_planes(h, w, K, S: tl.constexpr):
    """Where each thread stores a sum of its cell.

    The threads of a cell store one of its four sums each. A cell with more
    threads than a program has is split into parts with their own planes.

    Returns:
        Offset of a thread's sum, which sum it is, whether the thread stores,
        cells of a class, and size of a plane.
    """
    OUTSIDE: tl.constexpr = outside_of(S)
    LANES: tl.constexpr = lanes_of(S)
    thread = tl.program_id(0) * THREADS + tl.arange(0, THREADS)
    cell = thread // threads_of_cell(S)
    part = thread % threads_of_cell(S) // LANES
    which = thread % LANES
    cells = (h + OUTSIDE) * (w + OUTSIDE)
    plane = tl.num_programs(1).to(tl.int64) * K * cells
    offset = cell + (4 * part + which) * plane
    return offset, which, (cell < cells) & (which < 4), cells, plane


@triton.jit
def store_gradient(planes, places, g, down, right, S: tl.constexpr):
    """Transpose of :func:`upsample` within each cell, for one class."""
    offset, which, stores, _, plane = places
    if S == 1:
        tl.store(planes + offset, tl.sum(g, 0), mask=stores)
    else:
        LANES: tl.constexpr = lanes_of(S)
        G = tl.sum(g, 0)
        Gx = tl.sum(g * right, 0)
        Gxy = Gx * down
        d = G * down - Gxy
        a = sum_of_cell(G - Gx - d, LANES)
        b = sum_of_cell(Gx - Gxy, LANES)
        d = sum_of_cell(d, LANES)
        e = sum_of_cell(Gxy, LANES)
        upper = tl.where(which % 2 == 0, a, b)
        lower = tl.where(which % 2 == 0, d, e)
        if LANES == 2:
            tl.store(planes + offset, upper, mask=stores)
            tl.store(planes + offset + 2 * plane, lower, mask=stores)
        else:
            node = tl.where(which < 2, upper, lower)
            tl.store(planes + offset, node, mask=stores)
