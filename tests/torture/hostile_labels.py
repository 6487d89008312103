"""Label files as no data set should have them, for hypothesis to choose."""

import struct
import zlib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st

from tests.stats.builders import encode, encode_palette, png_chunk, write_png
from tests.stats.test_problems import PROGRAM

SIDES = st.integers(1, 40)
MAX_MUTATIONS = 4
EXPANDING = zlib.compress(bytes(1 << 27))  # 128 KiB that stand for 128 MiB


class LabelFile(NamedTuple):
    """The bytes of a file, and its pixels if nothing was done to it."""

    content: bytes
    pixels: np.ndarray | None


# Those that keep every pixel as it is.
LOSSLESS: dict[str, Callable[[np.ndarray], bytes]] = {
    'grey': encode,
    'grey, stored': lambda x: encode(x, compress_level=0),
    'palette': lambda x: encode_palette(x, 8),
    '16 bits': lambda x: encode(x.astype(np.uint16)),
    'interlaced': lambda x: write_png(x, interlaced=True),
    'BMP': lambda x: encode(x, 'BMP'),
    'TIFF': lambda x: encode(x, 'TIFF'),
    'TIFF, LZW': lambda x: encode(x, 'TIFF', compression='tiff_lzw'),
    'TIFF, deflate': lambda x: encode(x, 'TIFF', compression='tiff_deflate'),
    'TIFF of 32 bits': lambda x: encode(x.astype(np.int32), 'TIFF'),
    'PGM': lambda x: encode(x, 'PPM'),
}
OTHERS: dict[str, Callable[[np.ndarray], bytes]] = {
    'palette of 4 bits': lambda x: encode_palette(x, 4),
    'palette of 1 bit': lambda x: encode_palette(x, 1),
    'black and white': lambda x: encode(x > 99),
    'real numbers': lambda x: encode(x.astype(np.float32) / 7, 'TIFF'),
    'colours': lambda x: encode(np.stack([x, x, x], axis=2)),
    'JPEG': lambda x: encode(x, 'JPEG'),
    'GIF': lambda x: encode(x, 'GIF'),
    'WebP': lambda x: encode(np.stack([x, x, x], axis=2), 'WEBP'),
    'nothing': lambda x: b'',
    'noise': lambda x: x.tobytes(),
    'text': lambda x: b'<html><script>alert(1)</script></html>' * x.shape[0],
    'program': lambda x: PROGRAM,
    'bomb': lambda x: write_png(x, (60000, 60000)),
    'text that expands': lambda x: _insert_chunk(
        encode(x), b'zTXt', b'a\0\0' + EXPANDING
    ),
    'profile that expands': lambda x: _insert_chunk(
        encode(x), b'iCCP', b'a\0\0' + EXPANDING
    ),
    'more pixels than declared': lambda x: write_png(x, (1, 1)),
    'no pixels': lambda x: write_png(x, (0, x.shape[0])),
}


def _insert_chunk(png: bytes, name: bytes, data: bytes) -> bytes:
    return png[:33] + png_chunk(name, data) + png[33:]  # behind the header


def _declare_size(content: bytes, where: int, value: int) -> bytes:
    """Another size in the header of a PNG, with the checksum it needs."""
    if content[12:16] != b'IHDR' or len(content) < 33:
        return content
    size = struct.pack('>II', 1 << where % 16, 1 + 50 * value)
    header = png_chunk(b'IHDR', size + content[24:29])
    return content[:8] + header + content[33:]


def _set_byte(content: bytes, where: int, value: int) -> bytes:
    return content[:where] + bytes([value]) + content[where + 1 :]


# Of the content, a place in it and a byte.
MUTATIONS: tuple[Callable[[bytes, int, int], bytes], ...] = (
    lambda x, where, value: _set_byte(x, where, x[where] ^ 1 << value % 8),
    lambda x, where, value: _set_byte(x, where, x[where] ^ 1 << value % 8),
    _set_byte,
    lambda x, where, value: x[:where],
    lambda x, where, value: x[:where] + x[where : where + value] + x[where:],
    lambda x, where, value: x[:where] + x[where + value :],
    lambda x, where, value: x + bytes([value]) * where,
    _declare_size,
)


@st.composite
def label_files(draw: st.DrawFn) -> LabelFile:
    """Any format, in most cases damaged in up to four places."""
    seed, height, width = draw(st.integers(0, 2**32)), draw(SIDES), draw(SIDES)
    rng = np.random.default_rng(seed)
    high = draw(st.sampled_from([2, 5, 256]))
    pixels = rng.integers(0, high, (height, width)).astype(np.uint8)
    name = draw(st.sampled_from([*LOSSLESS, *LOSSLESS, *OTHERS]))
    content = (LOSSLESS | OTHERS)[name](pixels)
    number = draw(st.integers(0, MAX_MUTATIONS))
    for _ in range(number):
        if content:
            mutate = draw(st.sampled_from(MUTATIONS))
            where = draw(st.integers(0, 2**20)) % len(content)
            content = mutate(content, where, draw(st.integers(0, 255)))
    is_known = name in LOSSLESS and number == 0
    return LabelFile(content, pixels if is_known else None)
