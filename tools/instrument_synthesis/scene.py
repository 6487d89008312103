"""Draws one image: instruments, probes, and what is mistaken for them."""

from cmath import phase, rect
from dataclasses import replace

import numpy as np
from numpy.random import Generator, default_rng

from .canvas import Bar, Canvas

SPLITS = ('train', 'val', 'test')

# Multiples of these steps, powers of 1 / x with x^4 = x + 1, fill the cube
# evenly, which keeps the class shares of a small split near those of a large.
EVEN_STEPS = 1.2207440846057596 ** -np.arange(1.0, 4.0)

# Length, width, grey and label of the parts. The sizes give the default data
# set the class shares of the paper's ablation; 2 reaches out of the picture.
SHAFT = Bar(2.5, 0.0865, 0.2, label=1, ridges=100)
WRIST = Bar(0.147, 0.08, 0.6, label=2, taper=0.85, ridges=3)
JAW = Bar(0.205, 0.042, 0.6, label=3, taper=0.55, ridges=7)
BLUE = np.array([0.39, 0.45, 0.52], np.float32)
PROBE = Bar(0.24, 0.106, BLUE, label=4, taper=0.95)
WINDOW = Bar(0.13, 0.043, BLUE, label=4, ridges=6)
CABLE = Bar(2, 0.018, BLUE, bend=0.8)
DISTRACTORS = (
    Bar(2, 0.05, 0.5, bend=0.8),  # a tube
    Bar(2, 0.008, 0.5, bend=0.8),  # a thread
    Bar(0.13, 0.03, 0.5, taper=0.85),  # a clip
    Bar(0.17, 0.075, 0.5, taper=0.85),  # a capsule
    Bar(0.34, 0.16, 0.8, bend=0.3, ridges=15),  # gauze
)


def draw_image(
    seed: int, split: str, index: int, width: int, height: int
) -> tuple[np.ndarray, np.ndarray]:
    """The picture (H, W, 3) RGB and the label (H, W) of one image, uint8.

    Another number of images or another resolution leaves its scene as it is.
    """
    key, aspect = (seed, SPLITS.index(split)), width / height
    rng = default_rng((*key, index, 1))
    canvas = Canvas(default_rng((*key, index, 2)), width, height)
    offsets = default_rng((*key, 0, 3)).random(3)
    crowd, probing, size = (offsets + index * EVEN_STEPS) % 1
    scale = 0.7 + 0.6 * float(size)
    for kind in rng.integers(len(DISTRACTORS), size=rng.integers(4)):
        place, angle = anywhere(rng, aspect, 0.05), rng.uniform(0, 2 * np.pi)
        canvas.draw(DISTRACTORS[kind].place(rng, scale, place, angle))
    if probing < 0.42:
        canvas.draw(*probe(rng, aspect))
    for _ in range(np.searchsorted([0.04, 0.50, 0.92], crowd)):
        shaft, *others = instrument(rng, aspect, scale)
        canvas.draw(shaft, *others)
        if rng.random() < 0.45:
            distance = rng.uniform(-0.15, 0.35)
            canvas.hide(shaft.start + rect(distance, shaft.angle))
    return canvas.photograph(), canvas.label


def instrument(rng: Generator, aspect: float, scale: float) -> list[Bar]:
    """A shaft that comes from outside, a bent wrist and two open jaws."""
    joint, goal = anywhere(rng, aspect, 0.25), anywhere(rng, aspect, 0.3)
    angle = phase(goal - joint) + rng.normal(0, 0.4)
    shaft = SHAFT.place(rng, scale, joint, angle + np.pi)
    angle += rng.uniform(-0.7, 0.7)
    wrist = WRIST.place(rng, scale, joint, angle)
    if rng.random() < 0.3:
        shaft = replace(shaft, colour=wrist.colour)
    tip = joint + rect(0.92 * wrist.length, angle)
    jaw = JAW.place(rng, scale, tip, angle + rng.uniform(-0.6, 0.6))
    jaw = replace(jaw, colour=wrist.colour * rng.uniform(0.7, 1.3))
    opening, curve = rng.uniform(0, 0.55), rng.uniform(-0.1, 0.25)
    jaws = [
        replace(jaw, angle=jaw.angle + side * opening, bend=-side * curve)
        for side in (-1, 1)
    ]
    return [shaft, *jaws, wrist]


def probe(rng: Generator, aspect: float) -> list[Bar]:
    """A drop-in ultrasound probe with a window and an unlabelled cable."""
    centre, angle = anywhere(rng, aspect, 0.2), rng.uniform(0, 2 * np.pi)
    head = PROBE.place(rng, 1, centre - rect(0.12, angle), angle)
    window = WINDOW.place(rng, 1, centre - rect(0.05, angle), angle)
    cable = CABLE.place(rng, 1, head.start, angle + np.pi)
    return [cable, head, window]


def anywhere(rng: Generator, aspect: float, border: float) -> complex:
    """A point at least that fraction of each side away from the border."""
    x, y = rng.uniform(border, 1 - border, 2)
    return complex(x * aspect**0.5, y * aspect**-0.5)
