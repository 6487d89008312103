"""What is labelled in a scene: articulated instruments and probes.

Each function draws one thing at random and returns its segments, back to
front. The widths and lengths were set so that the default data set has the
class shares of the paper's ablation.
"""

import numpy as np

from mmseg_margin.datasets import InstrumentPartsDataset

from .distractors import tube
from .materials import grey, shifted
from .shapes import Point, Segment, Thing, along, behind

CLASSES = InstrumentPartsDataset.METAINFO['classes']
PALETTE = InstrumentPartsDataset.METAINFO['palette']
BACKGROUND, SHAFT, WRIST, CLASPERS, PROBE = range(len(CLASSES))


def instrument(
    rng: np.random.Generator, joint: Point, angle: float, scale: float
) -> Thing:
    """A shaft that ends at ``joint``, a bent wrist and two open jaws."""
    width = 0.0905 * scale
    lit_from = rng.uniform(-0.8, 0.8)
    steel = grey(rng, 0.42, 0.80)
    length = 1.5
    shaft = Segment(
        start=behind(joint, angle, length),
        angle=angle,
        length=length,
        width=width,
        colour=grey(rng, 0.10, 0.30) if rng.random() < 0.7 else steel,
        label=SHAFT,
        gloss=rng.uniform(0.1, 0.7),
        lit_from=lit_from,
        ridges=rng.choice([0, 60]),
        ridge_depth=rng.uniform(0.05, 0.2),
    )
    wrist = Segment(
        start=behind(joint, angle, 0.1 * width),
        angle=angle + rng.uniform(-0.7, 0.7),
        length=width * rng.uniform(1.2, 1.85),
        width=width * rng.uniform(0.8, 0.95),
        colour=steel,
        label=WRIST,
        taper=rng.uniform(0.7, 1.0),
        gloss=rng.uniform(0.2, 0.7),
        lit_from=lit_from,
        ridges=rng.choice([1.5, 2.5, 3.5]),
        ridge_depth=rng.uniform(0.1, 0.4),
    )
    pin = Segment(
        start=along(wrist, 0.55 * wrist.length),
        angle=wrist.angle,
        length=0.3 * width,
        width=0.3 * width,
        colour=grey(rng, 0.15, 0.9),
        label=WRIST,
        rounded=True,
    )
    turn = wrist.angle + rng.uniform(-0.6, 0.6)
    opening = rng.uniform(0.0, 0.55)
    jaw_length = width * rng.uniform(1.85, 2.9)
    jaw_width = width * rng.uniform(0.42, 0.55)
    curve = rng.uniform(-0.1, 0.25)
    jaws = [
        Segment(
            start=along(wrist, 0.92 * wrist.length),
            angle=turn + side * opening,
            length=jaw_length,
            width=jaw_width,
            colour=shifted(rng, steel, 0.15),
            label=CLASPERS,
            taper=0.55,
            bend=-side * curve,
            rounded=True,
            gloss=rng.uniform(0.2, 0.8),
            lit_from=lit_from + 0.5 * side,
            ridges=rng.choice([0, 7]),
            ridge_depth=0.25,
        )
        for side in (-1, 1)
    ]
    return shaft, *jaws, wrist, pin


def probe(rng: np.random.Generator, centre: Point, scale: float) -> Thing:
    """A drop-in ultrasound probe with a window, a fin and its cable.

    Only the head is labelled: the cable looks like any other tube.
    """
    angle = rng.uniform(0, 2 * np.pi)
    length, width = 0.24 * scale, 0.108 * scale
    start = behind(centre, angle, length / 2)
    colour = grey(rng, 0.15, 0.75, blueness=1.25)
    cable = tube(rng, start, angle + np.pi, 0.018, shifted(rng, colour, 0.2))
    head = Segment(
        start=start,
        angle=angle,
        length=length,
        width=width,
        colour=colour,
        label=PROBE,
        taper=rng.uniform(0.75, 1.15),
        rounded=True,
        gloss=rng.uniform(0.1, 0.6),
        lit_from=rng.uniform(-0.8, 0.8),
    )
    window = Segment(
        start=along(head, 0.3 * length),
        angle=angle,
        length=0.55 * length,
        width=rng.uniform(0.25, 0.55) * width,
        colour=shifted(rng, colour, 0.35),
        label=PROBE,
        rounded=True,
        ridges=rng.choice([0, 6]),
        ridge_depth=0.3,
    )
    return cable, head, window
