"""Procedural textures in float32: noise and tissue.

Noise is drawn on a coarse grid and enlarged, so that the same random numbers
give the same texture at any resolution.
"""

import cv2
import numpy as np
from numpy.random import Generator

VESSEL = np.array([0.45, 0.05, 0.07], np.float32)
TISSUES = (
    (0.62, 0.24, 0.20),  # muscle
    (0.80, 0.46, 0.40),  # serosa
    (0.86, 0.66, 0.42),  # fat
    (0.45, 0.13, 0.12),  # liver
    (0.74, 0.38, 0.42),  # bowel
)


def noise(
    rng: Generator, shape: tuple[int, int], cells: float, octaves: int = 1
) -> np.ndarray:
    """A smooth (H, W, 1) field of about unit variance.

    ``cells`` bumps fit along the longer side, twice as many in each octave.
    """
    field = np.zeros(shape, np.float32)
    for factor in (2**octave for octave in range(octaves)):
        density = cells * factor / max(shape)
        sides = [max(2, round(density * side)) for side in shape]
        grid = rng.standard_normal(sides, np.float32)
        grid = cv2.resize(grid, shape[::-1], interpolation=cv2.INTER_CUBIC)
        field += grid / factor
    return 1.2 * field[..., None]


def tissue(rng: Generator, shape: tuple[int, int]) -> np.ndarray:
    """An (H, W, 3) picture of lumpy tissue with folds and vessels."""
    base, other, patch = rng.permutation(np.array(TISSUES, np.float32))[:3]
    mix = sigmoid(2 * noise(rng, shape, rng.uniform(2, 5), 4))
    picture = base + mix * (other - base)
    patches = sigmoid(4 * (noise(rng, shape, rng.uniform(3, 6), 3) - 1.2))
    picture += patches * (patch - picture)
    picture *= 1 + 0.16 * relief(noise(rng, shape, rng.uniform(4, 8), 5))
    vessels = np.exp(-((noise(rng, shape, 5, 3) / 0.07) ** 2))
    vessels *= rng.uniform(0.2, 0.7) * sigmoid(3 * noise(rng, shape, 3))
    picture += vessels * (VESSEL - picture)
    wet = np.clip(relief(noise(rng, shape, 22, 2)) - 2.3, 0, 1)
    return np.clip(picture + rng.uniform(0.2, 0.9) * wet, 0, 1)


def relief(height: np.ndarray) -> np.ndarray:
    """Shading of a height field lit from above, of unit variance."""
    slope = cv2.Sobel(height, cv2.CV_32F, 0, 1, ksize=3)[..., None]
    return slope / (slope.std() + 1e-6)


def sigmoid(field: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-field))
