"""Draws at random what one image of the data set shows.

Image ``index`` of a split depends on the seed, the split and the index
alone: other counts or another resolution leave its scene as it is.
"""

import math
from dataclasses import dataclass

import numpy as np

from .distractors import distractor
from .instruments import instrument, probe
from .shapes import Blob, Point, Thing, along

SPLITS = ('train', 'val', 'test')

# Steps of an additive recurrence that fills the cube evenly: the powers of
# the inverse of the root of x^4 = x + 1. It keeps the shares of a small split
# near those of a large one.
EVEN_STEPS = 1.2207440846057596 ** -np.arange(1.0, 4.0)


@dataclass(frozen=True)
class Scene:
    """What is in the picture, back to front, and the seed of its textures."""

    things: tuple[Thing, ...]
    blobs: tuple[Blob, ...]
    smoky: bool
    texture_seed: tuple[int, ...]


def sample_scene(
    seed: int, split: str, index: int, aspect: float = 1.2
) -> Scene:
    """Draw the scene of one image; ``aspect`` is its width by its height."""
    key = (seed, SPLITS.index(split))
    rng = np.random.default_rng((*key, index, 1))
    offsets = np.random.default_rng((*key, 0, 3)).random(3)
    crowd, probing, size = (offsets + index * EVEN_STEPS) % 1
    scale = 0.7 + 0.6 * float(size)
    count = int(np.searchsorted([0.04, 0.50, 0.92], crowd))
    instruments = [place_instrument(rng, aspect, scale) for _ in range(count)]
    others: list[Thing] = [
        (distractor(rng, anywhere(rng, aspect, 0.05), scale),)
        for _ in range(rng.integers(0, 4))
    ]
    if probing < 0.42:
        centre = anywhere(rng, aspect, 0.2)
        others.append(probe(rng, centre, rng.uniform(0.85, 1.15)))
    others = [others[i] for i in rng.permutation(len(others))]
    return Scene(
        things=(*others, *instruments),
        blobs=tuple(sample_blobs(rng, instruments)),
        smoky=bool(rng.random() < 0.25),
        texture_seed=(*key, index, 2),
    )


def place_instrument(
    rng: np.random.Generator, aspect: float, scale: float
) -> Thing:
    """An instrument whose shaft comes from outside and points inwards."""
    x, y = anywhere(rng, aspect, 0.25)
    goal_x, goal_y = anywhere(rng, aspect, 0.3)
    inwards = math.atan2(goal_y - y, goal_x - x)
    angle = inwards + rng.normal(0, 0.4)
    return instrument(rng, (x, y), angle, scale * rng.uniform(0.85, 1.15))


def sample_blobs(
    rng: np.random.Generator, instruments: list[Thing]
) -> list[Blob]:
    """Tissue and blood over some of the instruments, near their tips."""
    blobs = []
    for shaft, *_ in instruments:
        if rng.random() < 0.45:
            place = shaft.length + rng.uniform(-0.35, 0.15)
            blob = Blob(
                centre=along(shaft, place),
                angle=rng.uniform(0, np.pi),
                length=rng.uniform(0.08, 0.22),
                width=rng.uniform(0.03, 0.09),
                blood=bool(rng.random() < 0.5),
            )
            blobs.append(blob)
    return blobs


def anywhere(rng: np.random.Generator, aspect: float, border: float) -> Point:
    """A point at least that share of each side away from the border."""
    x, y = rng.uniform(border, 1 - border, 2)
    return float(x * aspect**0.5), float(y * aspect**-0.5)
