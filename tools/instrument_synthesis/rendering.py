"""Turns a scene into its picture and label."""

import cv2
import numpy as np

from . import shapes, textures
from .instruments import CLASSES
from .scene import Scene
from .shapes import Blob, Thing

# Shapes are drawn at twice the size, then averaged down.
OVERSAMPLING = 2

BLOOD = np.array([0.38, 0.02, 0.03], np.float32)
HAZE = 0.72


def render(
    scene: Scene, width: int, height: int
) -> tuple[np.ndarray, np.ndarray]:
    """The picture (H, W, 3) RGB and the label (H, W) of a scene, uint8."""
    rng = np.random.default_rng(scene.texture_seed)
    canvas = Canvas(rng, (height * OVERSAMPLING, width * OVERSAMPLING))
    for thing in scene.things:
        canvas.add(thing)
    for blob in scene.blobs:
        canvas.cover(blob)
    canvas.light(scene.smoky)
    return photograph(rng, canvas.picture, width, height), majority(
        canvas.label, width, height
    )


class Canvas:
    """The growing picture and label, at the size they are drawn at."""

    def __init__(
        self, rng: np.random.Generator, shape: tuple[int, int]
    ) -> None:
        self.rng = rng
        self.shape = shape
        self.x, self.y = shapes.grid(shape)
        self.picture = tissue(rng, shape)
        self.label = np.zeros(shape, np.uint8)

    def add(self, thing: Thing) -> None:
        """Lay a thing over what is there, with its shadow."""
        profiles = [
            shapes.segment_profile(segment, self.x, self.y)
            for segment in thing
        ]
        masks = [shapes.segment_mask(*profile) for profile in profiles]
        self.cast_shadow(np.any(masks, axis=0))
        for segment, profile, mask in zip(thing, profiles, masks, strict=True):
            position, across = (field[mask] for field in profile)
            self.picture[mask] = shapes.shade(segment, position, across)
            self.label[mask] = segment.label

    def cast_shadow(self, mask: np.ndarray) -> None:
        unit = np.sqrt(mask.size)
        shift = np.array([[1, 0, 0.012 * unit], [0, 1, 0.022 * unit]])
        shadow = cv2.warpAffine(
            mask.astype(np.float32), shift, self.shape[::-1]
        )
        shadow = cv2.GaussianBlur(shadow, (0, 0), 0.014 * unit)
        self.picture *= 1 - 0.5 * shadow[..., None]

    def cover(self, blob: Blob) -> None:
        """Hide a patch under tissue or blood; its label is background."""
        mask = shapes.blob_mask(blob, self.rng, self.x, self.y)
        self.cast_shadow(mask)
        cover = tissue(self.rng, self.shape)
        if blob.blood:
            cover = BLOOD + 0.35 * cover**2
        self.picture[mask] = cover[mask]
        self.label[mask] = 0

    def light(self, smoky: bool) -> None:
        """Light the scene; smoke veils it but hides nothing."""
        self.picture *= textures.light(self.rng, self.shape)
        if smoky:
            haze = textures.smoke(self.rng, self.shape)[..., None]
            self.picture += haze * (HAZE - self.picture)


def tissue(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """Tissue of the size of the canvas; smooth enough to be enlarged."""
    rows, columns = shape
    small = textures.tissue(
        rng, (rows // OVERSAMPLING, columns // OVERSAMPLING)
    )
    return cv2.resize(small, (columns, rows))


def photograph(
    rng: np.random.Generator, picture: np.ndarray, width: int, height: int
) -> np.ndarray:
    """What a camera makes of it: blur, gamma, noise; (H, W, 3) uint8."""
    small = cv2.resize(picture, (width, height), interpolation=cv2.INTER_AREA)
    sigma = rng.uniform(0.002, 0.007) * np.sqrt(width * height)
    small = cv2.GaussianBlur(small, (0, 0), sigma)
    small = np.clip(small, 0, 1) ** rng.uniform(0.8, 1.25)
    grain = rng.standard_normal(small.shape, dtype=np.float32)
    small += rng.uniform(0.01, 0.035) * grain
    return np.rint(np.clip(small, 0, 1) * 255).astype(np.uint8)


def majority(label: np.ndarray, width: int, height: int) -> np.ndarray:
    """The class that fills most of each pixel, (H, W) uint8."""
    shares = [
        cv2.resize(
            (label == k).astype(np.float32),
            (width, height),
            interpolation=cv2.INTER_AREA,
        )
        for k in range(len(CLASSES))
    ]
    return np.argmax(shares, axis=0).astype(np.uint8)
