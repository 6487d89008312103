"""What is not labelled, but looks as if it were."""

from dataclasses import replace

import numpy as np

from .materials import Colour, grey
from .shapes import Point, Segment

GAUZE = (0.86, 0.80, 0.76)


def distractor(
    rng: np.random.Generator, centre: Point, scale: float
) -> Segment:
    """Something in the colours of the instruments that is background."""
    angle = rng.uniform(0, 2 * np.pi)
    kind = rng.choice(['tube', 'thread', 'gauze', 'clip', 'capsule'])
    if kind == 'tube':
        width = rng.uniform(0.03, 0.07) * scale
        return tube(rng, centre, angle, width, grey(rng, 0.12, 0.85))
    if kind == 'thread':
        return tube(rng, centre, angle, 0.008, grey(rng, 0.05, 0.8))
    capsule = Segment(
        start=centre,
        angle=angle,
        length=0.17 * scale,
        width=0.075 * scale,
        colour=grey(rng, 0.15, 0.8),
        taper=rng.uniform(0.6, 1.1),
        rounded=True,
        gloss=rng.uniform(0.1, 0.7),
        lit_from=rng.uniform(-0.8, 0.8),
    )
    if kind == 'clip':
        return replace(capsule, length=0.13 * scale, width=0.03 * scale)
    if kind == 'gauze':
        return replace(
            capsule,
            length=0.28 * scale,
            width=0.22 * scale,
            colour=GAUZE,
            bend=0.3,
            rounded=False,
            gloss=0.0,
            ridges=24,
            ridge_depth=0.12,
        )
    return capsule


def tube(
    rng: np.random.Generator,
    start: Point,
    angle: float,
    width: float,
    colour: Colour,
) -> Segment:
    """A flexible tube or thread that runs out of the picture."""
    return Segment(
        start=start,
        angle=angle,
        length=1.5,
        width=width,
        colour=colour,
        bend=rng.uniform(-0.8, 0.8),
        gloss=rng.uniform(0.1, 0.7),
        lit_from=rng.uniform(-0.8, 0.8),
    )
