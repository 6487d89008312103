"""Colours of instruments and of what is mistaken for them."""

import numpy as np

Colour = tuple[float, float, float]


def grey(
    rng: np.random.Generator, low: float, high: float, blueness: float = 1.05
) -> Colour:
    """A grey with a slight tint, most often towards blue."""
    level = rng.uniform(low, high)
    blue = level * blueness * rng.uniform(0.9, 1.1)
    return level / blueness, level, min(1.0, blue)


def shifted(rng: np.random.Generator, colour: Colour, amount: float) -> Colour:
    """The same tint, lighter or darker by up to that amount."""
    step = rng.uniform(-amount, amount)
    red, green, blue = (float(np.clip(c + step, 0.05, 1)) for c in colour)
    return red, green, blue
