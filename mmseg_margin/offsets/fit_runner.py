"""From a runner with a trained model to offsets and their effect."""

import torch
from mmengine import dist
from mmengine.config import Config
from mmengine.runner import Runner
from torch import Tensor
from torch.utils.data import DataLoader

from mmseg_margin.errors import SettingError
from mmseg_margin.evaluation.generalisation_gap_hook import plain_loader

from .ascent import METRICS
from .fit import fit_offsets
from .images import bare_model, check_classifier
from .measure import measure
from .result import FittedOffsets
from .sample import Sample, sample_pixels

SPLITS = ('train', 'val')
NUM_IMAGES = 300
FOLDS = 5


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
    model = bare_model(runner)
    was_training = model.training
    model.eval()
    try:
        loader = plain_loader(runner, split, 'val', num_images)
        check_classifier(runner, loader)
        sample = sample_pixels(runner, loader)
        offsets = _fit(sample, metric)
        unseen = plain_loader(runner, 'val', 'val')
        size = len(unseen.dataset)  # type: ignore[arg-type]
        by_fold = [offsets]
        if split == 'val':
            by_fold = _fit_without_each_fold(sample, size, metric)
        measured = measure(
            runner,
            unseen,
            lambda number: by_fold[number * len(by_fold) // size],
            metric,
        )
    finally:
        model.train(was_training)
    classes = _class_names(unseen, len(offsets))
    labelled = torch.bincount(sample.labels, minlength=len(classes))
    return FittedOffsets(
        classes=classes,
        offsets=offsets.tolist(),
        absent=[classes[k] for k in (labelled == 0).nonzero().flatten()],
        metric=metric,
        split=split,
        num_images=len(loader.dataset),  # type: ignore[arg-type]
        before=measured.before,
        after=measured.after,
        gain_error=measured.gain_error,
    )


def check_settings(
    cfg: Config, split: str, num_images: int, metric: str
) -> None:
    """Refuse what cannot be fitted, before anything is built."""
    for name, value, known in (
        ('split', split, SPLITS),
        ('metric', metric, METRICS),
    ):
        if value not in known:
            raise SettingError(
                f'{name}={value!r} is unknown: choose {" or ".join(known)}.'
            )
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


def _fit(sample: Sample, metric: str) -> Tensor:
    offsets = fit_offsets(*sample, metric, ignore_index=-1)
    dist.broadcast(offsets)  # other hardware could round differently
    return offsets


def _fit_without_each_fold(
    sample: Sample, size: int, metric: str
) -> list[Tensor]:
    """Offsets for each fold of a split, fitted on the other folds.

    A fold is a run of neighbouring images, because neighbours often show the
    same scene.
    """
    fold = sample.images * FOLDS // size
    kept = ((fold != i).nonzero().flatten() for i in range(FOLDS))
    return [
        _fit(Sample(*(part[pixels] for part in sample)), metric)
        for pixels in kept
    ]


def _class_names(loader: DataLoader, size: int) -> list[str]:
    images = loader.dataset.dataset  # type: ignore[attr-defined]
    names = images.datasets[0].metainfo.get('classes') or ()
    numbers = range(len(names), size)
    return [*names, *(f'class {k}' for k in numbers)][:size]
