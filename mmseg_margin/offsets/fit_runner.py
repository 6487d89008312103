"""From a runner with a trained model to fitted offsets and their effect."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from mmengine import dist
from mmengine.config import Config
from mmengine.runner import Runner
from torch import Tensor
from torch.utils.data import DataLoader

from mmseg_margin.errors import SettingError
from mmseg_margin.heads import bare_model

from .ascent import METRICS, count_areas
from .fit import PixelSample, check_choice, fit_pixels, grid_pixels
from .network import (
    check_classifier,
    plain_loader,
    score_batch,
    scored_images,
)
from .result import FittedOffsets, measure_gain

SPLITS = ('train', 'val')
MAX_PIXELS = 400_000
FOLDS = 5


@dataclass(frozen=True)
class FitSettings:
    """What to fit on, and for which metric.

    Args:
        split: ``'train'`` or ``'val'``: the images to fit on.
        num_images: At most this many of them, evenly spaced.
        metric: ``'mIoU'`` or ``'mDice'``.
    """

    split: str = 'train'
    num_images: int = 300
    metric: str = 'mIoU'

    def __post_init__(self) -> None:
        check_choice('split', self.split, SPLITS)
        check_choice('metric', self.metric, METRICS)
        if self.num_images < 1:
            raise SettingError(
                f'{self.num_images} images are too few to fit offsets on: '
                'choose 1 or more.'
            )

    def check_config(self, cfg: Config) -> None:
        """Refuse a config without the images to fit on or to measure."""
        for name in (self.split, 'val'):
            if not cfg.get(f'{name}_dataloader'):
                raise SettingError(
                    f'The config has no {name}_dataloader, which is needed to '
                    'fit or measure offsets: add one.'
                )


def fit_runner(runner: Runner, settings: FitSettings) -> FittedOffsets:
    """Fit offsets to the model of a runner; the model stays as it is.

    The images of the split are predicted as in a validation, without
    augmentation. The gain is measured on every pixel of the validation split;
    with ``split='val'`` it is cross-validated.
    """
    settings.check_config(runner.cfg)
    split, metric = settings.split, settings.metric
    model = bare_model(runner.model)
    was_training = model.training
    model.eval()
    try:
        loader = plain_loader(runner, split, settings.num_images)
        unseen = plain_loader(runner, 'val')
        batch = next(iter(loader))
        # Half precision would hide what the check looks for.
        check_classifier(
            model, lambda: next(score_batch(runner, batch, in_float32=True))[0]
        )
        sample = sample_pixels(runner, loader)
        offsets = fit_pixels(sample, metric)
        folds = [offsets]
        if split == 'val':
            # Neighbouring images often show the same scene, so each fifth of
            # the split is measured with offsets fitted on the others.
            fold = sample[2] * FOLDS // _size(unseen)
            folds = [
                fit_pixels(tuple(x[fold != i] for x in sample), metric)
                for i in range(FOLDS)
            ]
        areas = measure_areas(runner, unseen, folds)
    finally:
        model.train(was_training)
    classes = _class_names(unseen, len(offsets))
    labelled = torch.bincount(sample[1], minlength=len(classes))
    absent = [classes[k] for k in (labelled == 0).nonzero().flatten()]
    fitted = classes, offsets.tolist(), absent, metric, split, _size(loader)
    return FittedOffsets(*fitted, *measure_gain(areas, metric))


def sample_pixels(runner: Runner, loader: DataLoader) -> PixelSample:
    """At most MAX_PIXELS pixels, the same on any number of ranks."""
    most = max(1, MAX_PIXELS // _size(loader))
    title = 'Scores to fit the offsets to'
    parts = [
        grid_pixels(*image, most)
        for image in scored_images(runner, loader, title)
    ]
    parts = [part for rank in dist.all_gather_object(parts) for part in rank]
    scores, labels, images = map(torch.cat, zip(*parts, strict=True))
    order = images.argsort(stable=True)
    order = order[labels[order] >= 0]
    return scores[order], labels[order], images[order]


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
        before = scores.max(0).indices  # 4 times as fast as argmax
        after = scores.add_(offsets[:, None, None]).max(0).indices
        K, chosen = len(scores), labels >= 0
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
