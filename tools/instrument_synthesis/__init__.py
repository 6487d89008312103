"""The generator of the embedded data set; needs NumPy, Pillow and OpenCV."""

from .instruments import CLASSES, PALETTE
from .rendering import render
from .scene import SPLITS, Scene, sample_scene
from .writer import Settings, class_shares, write_dataset

__all__ = [
    'CLASSES',
    'PALETTE',
    'SPLITS',
    'Scene',
    'Settings',
    'class_shares',
    'render',
    'sample_scene',
    'write_dataset',
]
