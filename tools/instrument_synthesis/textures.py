"""Procedural textures: noise, tissue, light and smoke.

Every texture is drawn on a coarse grid and enlarged, so that the same random
numbers give the same picture at any resolution. Arrays are float32: (H, W)
for a field, (H, W, 3) for a picture in [0, 1].
"""

import cv2
import numpy as np

Shape = tuple[int, int]

TISSUES = np.array(
    [
        [0.62, 0.24, 0.20],  # muscle
        [0.80, 0.46, 0.40],  # serosa
        [0.86, 0.66, 0.42],  # fat
        [0.45, 0.13, 0.12],  # liver
        [0.74, 0.38, 0.42],  # bowel
    ],
    dtype=np.float32,
)


def noise(
    rng: np.random.Generator, shape: Shape, cells: float, octaves: int = 1
) -> np.ndarray:
    """A smooth (H, W) field of about unit variance.

    ``cells`` bumps fit along the longer side; each further octave has twice
    as many at half the height.
    """
    longest = max(shape)
    field = np.zeros(shape, np.float32)
    for octave in range(octaves):
        n = cells * 2**octave
        grid = rng.standard_normal(
            [max(2, round(n * side / longest)) for side in shape],
            dtype=np.float32,
        )
        enlarged = cv2.resize(grid, shape[::-1], interpolation=cv2.INTER_CUBIC)
        field += enlarged / 2**octave
    return field * np.float32(1.2)


def tissue(rng: np.random.Generator, shape: Shape) -> np.ndarray:
    """An (H, W, 3) picture of lumpy tissue with folds and vessels."""
    base, other, patch = TISSUES[rng.permutation(len(TISSUES))[:3]]
    mix = sigmoid(2 * noise(rng, shape, rng.uniform(2, 5), 4))
    picture = base + mix[..., None] * (other - base)
    patches = sigmoid(4 * (noise(rng, shape, rng.uniform(3, 6), 3) - 1.2))
    picture += patches[..., None] * (patch - picture)
    height = noise(rng, shape, rng.uniform(4, 8), 5)
    picture *= 1 + 0.16 * relief(height)[..., None]
    vessels = np.exp(-((noise(rng, shape, 5, 3) / 0.07) ** 2))
    vessels *= sigmoid(3 * noise(rng, shape, 3))
    red = np.array([0.45, 0.05, 0.07], np.float32)
    strength = rng.uniform(0.2, 0.7)
    picture += strength * vessels[..., None] * (red - picture)
    wet = np.clip(relief(noise(rng, shape, 22, 2)) - 2.3, 0, 1)
    picture += rng.uniform(0.2, 0.9) * wet[..., None]
    return np.clip(picture, 0, 1)


def relief(height: np.ndarray) -> np.ndarray:
    """Shading of a height field lit from above, of unit variance."""
    slope = cv2.Sobel(height, cv2.CV_32F, 0, 1, ksize=3)
    return slope / (slope.std() + 1e-6)


def light(rng: np.random.Generator, shape: Shape) -> np.ndarray:
    """An (H, W, 3) factor: a coloured spot that fades to the borders."""
    rows, columns = shape
    y, x = np.mgrid[:rows, :columns].astype(np.float32)
    distance = np.hypot(
        x / columns - rng.uniform(0.3, 0.7), y / rows - rng.uniform(0.3, 0.7)
    )
    reach = rng.uniform(0.55, 1.1)
    spot = rng.uniform(0.75, 1.25) * np.exp(-((distance / reach) ** 2))
    colour = 1 + rng.uniform(-0.08, 0.08, 3)
    return (spot[..., None] * colour).astype(np.float32)


def smoke(rng: np.random.Generator, shape: Shape) -> np.ndarray:
    """The (H, W) opacity of a drifting haze."""
    density = sigmoid(2.5 * (noise(rng, shape, 2, 3) - 0.3))
    return rng.uniform(0.25, 0.6) * density


def sigmoid(field: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-field))
