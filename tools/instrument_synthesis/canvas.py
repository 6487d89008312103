"""The picture and the label of a scene while it is drawn.

Points are complex numbers, x + iy with y down, in units of the square root
of the picture's area: sizes and areas are the same at any resolution.
"""

from cmath import rect
from dataclasses import dataclass, replace

import cv2
import numpy as np
from numpy.random import Generator

from . import textures

# A label, a colour (H, W, 3) and an opacity (H, W, 1).
Layer = tuple[int, np.ndarray, np.ndarray]

BLOOD = np.array([0.38, 0.02, 0.03], np.float32)
HAZE = 0.72


@dataclass(frozen=True)
class Bar:
    """A cylinder with round ends: a shaft, a jaw, a tube, a thread."""

    length: float
    width: float
    colour: float | np.ndarray
    label: int = 0
    taper: float = 1.0
    bend: float = 0.0
    ridges: int = 0
    start: complex = 0j
    angle: float = 0.0

    def place(
        self, rng: Generator, scale: float, start: complex, angle: float
    ) -> 'Bar':
        """A bar like this one, with a size, tint and form of its own."""
        tint = np.array([0.95, 1, rng.uniform(0.95, 1.15)], np.float32)
        return replace(
            self,
            length=self.length * scale * rng.uniform(0.8, 1.2),
            width=self.width * scale * rng.uniform(0.9, 1.1),
            colour=self.colour * rng.uniform(0.5, 1.5) * tint,
            taper=self.taper * rng.uniform(0.85, 1.15),
            bend=self.bend * rng.uniform(-1, 1),
            ridges=int(self.ridges * rng.integers(2)),
            start=start,
            angle=angle,
        )


class Canvas:
    """A picture (H, W, 3) of tissue and its label (H, W), to draw on."""

    def __init__(self, rng: Generator, width: int, height: int) -> None:
        self.rng, self.shape = rng, (height, width)
        self.unit = (width * height) ** 0.5
        y, x = (np.indices((*self.shape, 1))[:2] + 0.5) / self.unit
        self.points = (x + 1j * y).astype(np.complex64)
        self.light_angle = rng.uniform(0, 2 * np.pi)
        self.picture = textures.tissue(rng, self.shape)
        self.label = np.zeros(self.shape, np.uint8)

    def draw(self, *bars: Bar) -> None:
        """Draw an object from its bars, back to front."""
        self.add([self.layer(bar) for bar in bars])

    def hide(self, centre: complex) -> None:
        """Hide a ragged patch under tissue or blood, which is background."""
        rng = self.rng
        turned = (self.points - centre) * rect(1, rng.uniform(0, np.pi))
        length, width = rng.uniform(0.08, 0.22), rng.uniform(0.03, 0.09)
        distance = 2 * np.hypot(turned.real / length, turned.imag / width)
        rim = 1 + 0.4 * textures.noise(rng, self.shape, 9, 3)
        colour = textures.tissue(rng, self.shape)
        if rng.random() < 0.5:
            colour = BLOOD + 0.35 * colour**2
        self.add([(0, colour, (distance < rim).astype(np.float32))])

    def add(self, layers: list[Layer]) -> None:
        """Lay an object over the picture, with its shadow."""
        side = round(0.04 * self.unit) + 1
        outline = np.max([opacity for *_, opacity in layers], 0)
        shadow = cv2.blur(outline, (side, side), anchor=(side - 1, side - 1))
        self.picture *= 1 - 0.5 * shadow[..., None]
        for label, colour, opacity in layers:
            self.picture += opacity * (colour - self.picture)
            self.label[opacity[..., 0] > 0.5] = label

    def layer(self, bar: Bar) -> Layer:
        """A bar lit like a cylinder, half transparent at its outline."""
        turned = (self.points - bar.start) * rect(1, -bar.angle)
        position = np.clip(turned.real / bar.length, 0, 1)
        across = turned.imag - bar.bend * turned.real * position
        half_width = bar.width / 2 * (1 + (bar.taper - 1) * position)
        from_end = np.minimum(turned.real, bar.length - turned.real)
        into_cap = np.clip(1 - 2 * from_end / bar.width, 0, 1)
        half_width *= np.sqrt(1 - into_cap**2)
        inside = np.minimum(half_width - np.abs(across), from_end)
        slope = np.clip(across / np.maximum(half_width, 1e-6), -1, 1)
        lit_from = rect(0.8, self.light_angle - bar.angle).imag
        facing = np.cos(np.arcsin(slope) - lit_from).clip(0)
        ridge = np.sin(2 * np.pi * bar.ridges * position) > 0.2
        body = 0.35 + 0.75 * facing - self.rng.uniform(0.05, 0.3) * ridge
        gloss = self.rng.uniform(0.1, 0.7) * facing**24
        opacity = np.clip(inside * self.unit + 0.5, 0, 1)
        return bar.label, np.clip(bar.colour * body + gloss, 0, 1), opacity

    def photograph(self) -> np.ndarray:
        """The picture as an endoscope sees it, (H, W, 3) uint8."""
        rng = self.rng
        spot = self.points[-1, -1, 0] * rng.uniform(0.3, 0.7)
        reach = rng.uniform(0.55, 1.1)
        light = np.exp(-((np.abs(self.points - spot) / reach) ** 2))
        picture = rng.uniform(0.75, 1.25) * light * self.picture
        if rng.random() < 0.25:
            smoke = textures.noise(rng, self.shape, 2, 3) - 0.3
            smoke = rng.uniform(0.25, 0.6) * textures.sigmoid(2.5 * smoke)
            picture += smoke * (HAZE - picture)
        blur = rng.uniform(0.002, 0.007) * self.unit
        picture = cv2.GaussianBlur(picture, (0, 0), blur)
        picture = np.clip(picture, 0, 1) ** rng.uniform(0.8, 1.25)
        grain = rng.standard_normal(picture.shape, np.float32)
        picture += rng.uniform(0.01, 0.035) * grain
        return np.rint(255 * np.clip(picture, 0, 1)).astype(np.uint8)
