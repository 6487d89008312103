"""The generator of the embedded data set; needs NumPy, Pillow and OpenCV."""

from .scene import SPLITS, draw_image
from .writer import Settings, class_shares, write_dataset

__all__ = ['SPLITS', 'Settings', 'class_shares', 'draw_image', 'write_dataset']
