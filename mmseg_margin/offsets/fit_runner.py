"""From a runner with a trained model to offsets and their effect."""

import math
from collections.abc import Sequence

import torch
from mmengine import dist
from mmengine.config import Config
from mmengine.runner import Runner
from torch import Tensor
from torch.utils.data import DataLoader

from mmseg_margin.errors import SettingError
from mmseg_margin.evaluation.generalisation_gap_hook import plain_loader
from mmseg_margin.heads import bare_model

from .fit import (
    MAX_PIXELS,
    METRICS,
    check_choice,
    count_areas,
    fit_offsets,
)
from .network import (
    check_classifier,
    check_labels,
    find_classifier,
    score_batch,
    scored_images,
)
from .result import FittedOffsets, compare

SPLITS = ('train', 'val')
NUM_IMAGES = 300
FOLDS = 5
# Scores (P, K), labels (P,) and image numbers (P,) of labelled pixels.
Sample = tuple[Tensor, Tensor, Tensor]


def fit_runner(
    runner: Runner,
    split: str = 'train',
    num_images: int = NUM_IMAGES,
    metric: str = 'mIoU',
) -> FittedOffsets:
    """Fit offsets to the model of a runner; the model stays as it is.

    The images of the split are predicted as in a validation, without
    augmentation. The gain is measured on every pixel of the validation split;
    with ``split='val'`` it is cross-validated.

    Args:
        runner: Made from a config, with the weights loaded.
        split: ``'train'`` or ``'val'``: the images to fit on.
        num_images: At most this many of them, evenly spaced.
        metric: ``'mIoU'`` or ``'mDice'``.
    """
    check_settings(runner.cfg, split, num_images, metric)
    model = bare_model(runner.model)
    was_training = model.training
    model.eval()
    try:
        loader = plain_loader(runner, split, 'val', num_images)
        unseen = plain_loader(runner, 'val', 'val')
        check_labels(loader, split)
        check_labels(unseen, 'val')
        batch = next(iter(loader))
        check_classifier(model, lambda: next(score_batch(runner, batch))[0])
        sample = sample_pixels(runner, loader)
        offsets = _fit(sample, metric)
        folds = [offsets]
        if split == 'val':
            folds = _fit_without_each_fold(sample, _size(unseen), metric)
        areas = measure_areas(runner, unseen, folds)
    finally:
        model.train(was_training)
    classes = _class_names(unseen, len(offsets))
    labelled = torch.bincount(sample[1], minlength=len(classes))
    absent = [classes[k] for k in (labelled == 0).nonzero().flatten()]
    settings = metric, split, _size(loader)
    figures = compare(areas, metric)
    return FittedOffsets(
        classes, offsets.tolist(), absent, *settings, *figures
    )


def check_settings(
    cfg: Config, split: str, num_images: int, metric: str
) -> None:
    """Refuse what cannot be fitted, before anything is built."""
    check_choice('split', split, SPLITS)
    check_choice('metric', metric, METRICS)
    if num_images < 1:
        raise SettingError(
            f'{num_images} images are too few to fit offsets on: choose 1 or '
            'more.'
        )
    for name in {split, 'val'}:
        if not cfg.get(f'{name}_dataloader'):
            raise SettingError(
                f'The config has no {name}_dataloader, which is needed to fit '
                'or measure offsets: add one.'
            )


def sample_pixels(runner: Runner, loader: DataLoader) -> Sample:
    """At most :data:`MAX_PIXELS` pixels, the same on any number of ranks."""
    most = max(1, MAX_PIXELS // _size(loader))
    capacity = most * math.ceil(_size(loader) / dist.get_world_size())
    bias = find_classifier(bare_model(runner.model))[1].bias
    # Allocated once, because many small tensors among large temporary ones
    # would fragment the memory. A binary head has one bias and two classes.
    scores = torch.empty(capacity, max(2, len(bias)))
    labels, images = torch.empty(2, capacity, dtype=torch.long)
    size = 0
    for image in scored_images(runner, loader, 'Scores to fit the offsets to'):
        number, image_scores, image_labels = image
        pixels = _grid_pixels(image_labels, most)
        pixels = pixels[image_labels.flatten()[pixels] < len(image_scores)]
        part = slice(size, size + len(pixels))
        scores[part] = image_scores.flatten(1)[:, pixels].T
        labels[part] = image_labels.flatten()[pixels]
        images[part] = number
        size = part.stop
    sample = scores[:size], labels[:size], images[:size]
    if dist.get_world_size() == 1:
        return sample
    # Cloned, because a slice would be sent with its whole storage.
    parts = dist.all_gather_object(tuple(each.clone() for each in sample))
    scores, labels, images = map(torch.cat, zip(*parts, strict=True))
    order = images.argsort(stable=True)
    return scores[order], labels[order], images[order]


def _grid_pixels(labels: Tensor, most: int) -> Tensor:
    """About ``most`` pixels of an image, on a regular grid."""
    height, width = labels.shape
    step = math.ceil(math.sqrt(height * width / most))
    grid = slice(step // 2, None, step)
    pixels = torch.arange(height * width, device=labels.device)
    return pixels.view(height, width)[grid, grid].flatten()[:most]


def _fit(
    sample: Sample, metric: str, chosen: slice | Tensor = slice(None)
) -> Tensor:
    scores, labels, images = (each[chosen] for each in sample)
    offsets = fit_offsets(scores, labels, images, metric, ignore_index=-1)
    dist.broadcast(offsets)  # other hardware could round differently
    return offsets


def _fit_without_each_fold(
    sample: Sample, size: int, metric: str
) -> list[Tensor]:
    """Offsets for each fold of a split, fitted on the other folds.

    A fold is a run of neighbouring images, because neighbours often show the
    same scene.
    """
    fold = sample[2] * FOLDS // size
    if len(fold.unique()) < 2:
        raise SettingError(
            'The val split has too few images to cross-validate the gain: '
            'choose more of them, or fit on the train split.'
        )
    return [_fit(sample, metric, fold != i) for i in range(FOLDS)]


def measure_areas(
    runner: Runner, loader: DataLoader, folds: Sequence[Tensor]
) -> Tensor:
    """Areas of every image, (N, 2, 3, K), without and with offsets.

    Args:
        folds: The offsets (K,) of each run of neighbouring images.
    """
    parts = {}
    for image in scored_images(runner, loader, 'Before and after'):
        number, scores, labels = image
        offsets = folds[number * len(folds) // _size(loader)].to(scores)
        before = scores.argmax(0)
        after = scores.add_(offsets[:, None, None]).argmax(0)
        K, chosen = len(scores), labels < len(scores)
        areas = [
            count_areas(predicted[chosen], labels[chosen], K)
            for predicted in (before, after)
        ]
        parts[number] = torch.stack(areas).cpu()
    for others in dist.all_gather_object(parts):
        parts |= others
    return torch.stack([parts[number] for number in sorted(parts)])


def _class_names(loader: DataLoader, size: int) -> list[str]:
    images = loader.dataset.dataset  # type: ignore[attr-defined]
    names = images.datasets[0].metainfo.get('classes') or ()
    return [*names, *(f'class {k}' for k in range(len(names), size))][:size]


def _size(loader: DataLoader) -> int:
    return len(loader.dataset)  # type: ignore[arg-type]
