"""A bounded sample of scores, the same on any number of ranks."""

import math
from typing import NamedTuple

import torch
from mmengine import dist
from mmengine.runner import Runner
from torch import Tensor
from torch.utils.data import DataLoader

from .classifier import num_classes
from .fit import MAX_PIXELS
from .images import ScoredImage, bare_model, scored_images


class Sample(NamedTuple):
    """Labelled pixels of several images, the same on all ranks."""

    scores: Tensor
    """(P, K)"""
    labels: Tensor
    """(P,)"""
    images: Tensor
    """(P,), the numbers of the images"""


def sample_pixels(runner: Runner, loader: DataLoader) -> Sample:
    """At most :data:`MAX_PIXELS` pixels, on a regular grid in each image."""
    num_images = len(loader.dataset)  # type: ignore[arg-type]
    most = max(1, MAX_PIXELS // num_images)
    capacity = most * math.ceil(num_images / dist.get_world_size())
    # Allocated once, because many small tensors among large temporary ones
    # would fragment the memory.
    sample = Sample(
        torch.empty(capacity, num_classes(bare_model(runner))),
        torch.empty(capacity, dtype=torch.long),
        torch.empty(capacity, dtype=torch.long),
    )
    size = 0
    for image in scored_images(runner, loader, 'Scores to fit the offsets to'):
        pixels = _grid_pixels(image, most)
        part = slice(size, size + len(pixels))
        sample.scores[part] = image.scores.flatten(1)[:, pixels].T
        sample.labels[part] = image.labels.flatten()[pixels]
        sample.images[part] = image.number
        size = part.stop
    sample = Sample(*(tensor[:size] for tensor in sample))
    return sample if dist.get_world_size() == 1 else _gather(sample)


def _grid_pixels(image: ScoredImage, most: int) -> Tensor:
    """The labelled ones of about ``most`` evenly spaced pixels."""
    height, width = image.labels.shape
    step = math.ceil(math.sqrt(height * width / most))
    places = torch.arange(height * width, device=image.labels.device)
    grid = slice(step // 2, None, step)
    places = places.view(height, width)[grid, grid].flatten()[:most]
    labels = image.labels.flatten()[places]
    return places[labels < len(image.scores)]


def _gather(sample: Sample) -> Sample:
    """The samples of all ranks, in the order of a single rank."""
    # Cloned, because a slice would be sent with its whole storage.
    parts = dist.all_gather_object(tuple(each.clone() for each in sample))
    merged = Sample(*map(torch.cat, zip(*parts, strict=True)))
    order = merged.images.argsort(stable=True)
    return Sample(*(tensor[order] for tensor in merged))
