"""The generator of the embedded data set; needs NumPy, Pillow and OpenCV."""

from .scene import SPLITS, draw_image
from .writer import Settings, write_dataset

__all__ = ['SPLITS', 'Settings', 'draw_image', 'write_dataset']
