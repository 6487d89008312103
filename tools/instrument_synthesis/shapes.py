"""The two shapes of which every scene is drawn: segments and blobs.

Coordinates are in units of the square root of the picture's area, x to the
right and y down, so that an area is a share of the picture at any resolution.
"""

import math
from dataclasses import dataclass

import numpy as np

from .materials import Colour
from .textures import noise

Point = tuple[float, float]


@dataclass(frozen=True)
class Segment:
    """A bent, tapered, shaded bar: a shaft, a jaw, a tube, a thread."""

    start: Point
    angle: float
    length: float
    width: float
    colour: Colour
    label: int = 0
    taper: float = 1.0
    bend: float = 0.0
    rounded: bool = False
    gloss: float = 0.3
    lit_from: float = 0.0
    ridges: float = 0.0
    ridge_depth: float = 0.0


# One object, back to front.
Thing = tuple[Segment, ...]


@dataclass(frozen=True)
class Blob:
    """A ragged patch of tissue or blood that hides what lies under it."""

    centre: Point
    angle: float
    length: float
    width: float
    blood: bool


def along(segment: Segment, distance: float) -> Point:
    """The point at that distance on the axis of the segment."""
    x, y = segment.start
    cosine, sine = math.cos(segment.angle), math.sin(segment.angle)
    side = segment.bend * distance**2 / segment.length
    return (
        x + distance * cosine - side * sine,
        y + distance * sine + side * cosine,
    )


def behind(point: Point, angle: float, distance: float) -> Point:
    """The point from which that distance in that direction leads here."""
    return (
        point[0] - distance * math.cos(angle),
        point[1] - distance * math.sin(angle),
    )


def grid(shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Coordinates x, y of the pixel centres, each (H, W)."""
    rows, columns = shape
    unit = np.sqrt(rows * columns)
    y, x = (np.mgrid[:rows, :columns] + 0.5) / unit
    return x.astype(np.float32), y.astype(np.float32)


def segment_profile(
    segment: Segment, x: np.ndarray, y: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Where a pixel lies in a segment, each (H, W).

    The first is the position along it, 0 to 1; the second the position
    across it, -1 to 1. Outside the segment one of them exceeds its range.
    """
    dx, dy = x - segment.start[0], y - segment.start[1]
    cosine, sine = math.cos(segment.angle), math.sin(segment.angle)
    distance = dx * cosine + dy * sine
    position = distance / segment.length
    side = dy * cosine - dx * sine - segment.bend * distance * position
    half_width = segment.width / 2 * (1 + (segment.taper - 1) * position)
    if segment.rounded:
        cap = segment.width / 2 / segment.length
        into_cap = 1 - np.minimum(position, 1 - position) / cap
        half_width *= np.sqrt(np.clip(1 - into_cap.clip(0) ** 2, 1e-6, 1))
    return position, side / np.maximum(half_width, 1e-6)


def segment_mask(position: np.ndarray, across: np.ndarray) -> np.ndarray:
    """The (H, W) pixels inside a segment, from its profile."""
    return (position >= 0) & (position <= 1) & (np.abs(across) <= 1)


def shade(
    segment: Segment, position: np.ndarray, across: np.ndarray
) -> np.ndarray:
    """Colours (P, 3) of a segment lit like a cylinder, at P of its pixels."""
    normal = np.sqrt(np.clip(1 - across**2, 0, 1))
    facing = normal * math.cos(segment.lit_from)
    facing = np.clip(facing + across * math.sin(segment.lit_from), 0, 1)
    body = 0.35 + 0.75 * facing
    if segment.ridges:
        wave = np.sin(2 * np.pi * segment.ridges * position)
        body *= 1 - segment.ridge_depth * (wave > 0.2)
    colour = np.asarray(segment.colour, np.float32) * body[:, None]
    return np.clip(colour + segment.gloss * facing[:, None] ** 24, 0, 1)


def blob_mask(
    blob: Blob, rng: np.random.Generator, x: np.ndarray, y: np.ndarray
) -> np.ndarray:
    """The (H, W) pixels that a blob hides, with an irregular rim."""
    dx, dy = x - blob.centre[0], y - blob.centre[1]
    cosine, sine = math.cos(blob.angle), math.sin(blob.angle)
    distance = np.hypot(
        (dx * cosine + dy * sine) / blob.length,
        (dy * cosine - dx * sine) / blob.width,
    )
    return 2 * distance < 1 + 0.4 * noise(rng, x.shape, 9, 3)
