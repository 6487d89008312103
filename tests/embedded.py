"""Images of the embedded data set as tensors."""

import functools

import numpy as np
import torch
from torch import Tensor

from tools.instrument_synthesis import draw_image


@functools.cache
def embedded_batch(
    number: int, width: int = 48, height: int = 40
) -> tuple[Tensor, Tensor]:
    """Images (N, 3, H, W) around zero, and labels (N, H, W)."""
    pairs = [draw_image(0, 'train', i, width, height) for i in range(number)]
    images, labels = map(np.stack, zip(*pairs, strict=True))
    pixels = torch.from_numpy(images).permute(0, 3, 1, 2).float()
    return pixels / 64 - 2, torch.from_numpy(labels).long()
