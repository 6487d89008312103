"""Label files as no data set should have them, for hypothesis to choose."""

import struct
import zlib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st

from tests.stats.builders import encode, encode_palette, png_chunk, write_png

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
    'program': lambda x: (
        b'%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n'
        b'(executed) (w) file closefile\n%%EOF\n'
    ),
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


def _flip_bit(content: bytearray, where: int, value: int) -> None:
    content[where] ^= 1 << value % 8


def _set_byte(content: bytearray, where: int, value: int) -> None:
    content[where] = value


def _truncate(content: bytearray, where: int, value: int) -> None:
    del content[where:]


def _repeat(content: bytearray, where: int, value: int) -> None:
    content[where:where] = content[where : where + value]


def _drop(content: bytearray, where: int, value: int) -> None:
    del content[where : where + value]


def _append(content: bytearray, where: int, value: int) -> None:
    content += bytes([value]) * where


def _declare_size(content: bytearray, where: int, value: int) -> None:
    """Another size in the header of a PNG, with the checksum it needs."""
    if content[12:16] == b'IHDR' and len(content) >= 33:
        content[16:24] = struct.pack('>II', 1 << where % 16, 1 + 50 * value)
        content[29:33] = struct.pack('>I', zlib.crc32(content[12:29]))


MUTATIONS = (
    *(_flip_bit, _flip_bit, _set_byte, _truncate),
    *(_repeat, _drop, _append, _declare_size),
)


@st.composite
def label_files(draw: st.DrawFn) -> LabelFile:
    """Any format, in most cases damaged in up to four places."""
    seed, height, width = draw(st.integers(0, 2**32)), draw(SIDES), draw(SIDES)
    rng = np.random.default_rng(seed)
    high = draw(st.sampled_from([2, 5, 256]))
    pixels = rng.integers(0, high, (height, width)).astype(np.uint8)
    name = draw(st.sampled_from([*LOSSLESS, *LOSSLESS, *OTHERS]))
    content = bytearray((LOSSLESS | OTHERS)[name](pixels))
    number = draw(st.integers(0, MAX_MUTATIONS))
    for _ in range(number):
        if content:
            mutate = draw(st.sampled_from(MUTATIONS))
            where = draw(st.integers(0, 2**20)) % len(content)
            mutate(content, where, draw(st.integers(0, 255)))
    is_known = name in LOSSLESS and number == 0
    return LabelFile(bytes(content), pixels if is_known else None)
