"""From a runner with a trained model to fitted offsets and their effect."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from mmengine import dist
from mmengine.config import Config
from mmengine.runner import Runner
from prettytable import PrettyTable
from torch import Tensor
from torch.utils.data import DataLoader

from mmseg_margin.errors import SettingError, drawable, printable
from mmseg_margin.heads import bare_model

from .fit import (
    PixelSample,
    count_areas,
    fit_pixels,
    grid_pixels,
    iou_of_areas,
)
from .network import (
    check_classifier,
    plain_loader,
    score_batch,
    scored_images,
)

NUM_IMAGES = 300
MAX_PIXELS = 400_000
INCHES_PER_CLASS = 0.26


@dataclass(frozen=True)
class Scores:
    """In percent, as mmseg's IoUMetric prints them."""

    mean: float  # mIoU
    accuracy: float  # of all labelled pixels
    classes: list[float]  # NaN where a class does not occur


@dataclass(frozen=True)
class FittedOffsets:
    """The fitted offsets of the classes, and their effect.

    Args:
        offsets: One for each class, to be added to its score.
        num_images: Number of training images that they were fitted on.
        before: The scores of the validation split without offsets.
        after: The same with them.
    """

    classes: list[str]
    offsets: list[float]
    num_images: int
    before: Scores
    after: Scores

    @property
    def gain(self) -> float:
        """The gain of mIoU, in percentage points."""
        return self.after.mean - self.before.mean

    def to_dict(self) -> dict[str, Any]:
        """Plain values, without NaN, for JSON and a checkpoint's meta."""
        text = json.dumps(asdict(self))
        return json.loads(text, parse_constant=lambda _: None)

    def summary(self) -> str:
        """The gain in a sentence."""
        before, after = self.before, self.after
        return (
            f'mIoU {before.mean:.2f} -> {after.mean:.2f} '
            f'({self.gain:+.2f}), pixel accuracy {before.accuracy:.2f} -> '
            f'{after.accuracy:.2f} on the validation split; fitted on '
            f'{self.num_images} images of the train split.'
        )

    def table(self) -> str:
        """Class, offset, and the IoU before and after."""
        table = PrettyTable(
            ['class', 'offset', 'IoU before', 'after', 'change'], align='r'
        )
        table.align['class'] = 'l'
        columns = self.offsets, self.before.classes, self.after.classes
        for name, *values in zip(self.classes, *columns, strict=True):
            offset, before, after = values
            cells = f'{before:.2f}', f'{after:.2f}', f'{after - before:+.2f}'
            table.add_row([printable(name), f'{offset:+.2f}', *cells])
        return table.get_string()

    def draw(self, path: Path) -> None:
        """Offsets, and each class before and after, as a PNG file."""
        # Matplotlib is not imported before a picture is drawn.
        from mmseg_margin.pictures import BLUE, GREY, picture

        K = len(self.classes)
        rows = range(K)
        before, after = self.before.classes, self.after.classes
        with picture(path, 9, 1.6 + INCHES_PER_CLASS * K) as figure:
            left, right = figure.subplots(
                1, 2, sharey=True, width_ratios=(2, 3)
            )
            left.barh(rows, self.offsets, height=0.6, color=GREY)
            left.set_xlabel('fitted offset')
            left.set_yticks(rows, [drawable(name) for name in self.classes])
            left.set_ylim(K - 0.4, -0.6)
            right.hlines(rows, before, after, color=BLUE, linewidth=2)
            right.scatter(before, rows, color=GREY, s=22, zorder=3)
            right.scatter(after, rows, color=BLUE, s=22, zorder=3)
            right.set_xlabel('IoU in percent: before (grey), after (blue)')
            means = f'{self.before.mean:.2f} to {self.after.mean:.2f}'
            figure.suptitle(f'mIoU {means} on the validation split')


def fit_runner(runner: Runner, num_images: int = NUM_IMAGES) -> FittedOffsets:
    """Fit offsets to the model of a runner; its weights stay as they are.

    At most ``num_images`` training images, evenly spaced, are predicted as in
    a validation, without augmentation. The gain is measured on every pixel of
    the validation split.
    """
    check_config(runner.cfg)
    model = bare_model(runner.model)
    model.eval()
    loader = plain_loader(runner, 'train', num_images)
    unseen = plain_loader(runner, 'val')
    batch = next(iter(loader))
    check_classifier(model, lambda: next(score_batch(runner, batch))[0])
    num_images = len(loader.dataset)  # type: ignore[arg-type]
    sample = sample_pixels(runner, loader, MAX_PIXELS // num_images)
    offsets = fit_pixels(sample)
    before, after = measure(runner, unseen, offsets)
    images = unseen.dataset.dataset  # type: ignore[attr-defined]
    classes = list(images.datasets[0].metainfo['classes'])
    fitted = classes, offsets.tolist(), num_images
    return FittedOffsets(*fitted, before, after)


def check_config(cfg: Config) -> None:
    """Refuse a config without images to fit on or to measure the gain on."""
    for name in ('train', 'val'):
        if not cfg.get(f'{name}_dataloader'):
            raise SettingError(
                f'The config has no {name}_dataloader, which is needed to fit '
                'or measure offsets: add one.'
            )


def sample_pixels(
    runner: Runner, loader: DataLoader, most: int
) -> PixelSample:
    """``most`` pixels of each image, the same on any number of ranks."""
    title = 'Scores to fit the offsets to'
    parts = [
        grid_pixels(*image, max(1, most))
        for image in scored_images(runner, loader, title)
    ]
    parts = [part for rank in dist.all_gather_object(parts) for part in rank]
    scores, labels, images = map(torch.cat, zip(*parts, strict=True))
    order = images.argsort(stable=True)
    order = order[labels[order] >= 0]
    return scores[order], labels[order], images[order]


def measure(
    runner: Runner, loader: DataLoader, offsets: Tensor
) -> Iterator[Scores]:
    """Scores of all images, without and with offsets."""
    K, title = len(offsets), 'Before and after'
    areas = torch.zeros(2, 3, K, dtype=torch.float64)
    for _, scores, labels in scored_images(runner, loader, title):
        before = scores.max(0).indices  # 4 times as fast as argmax
        shifted = scores.add_(offsets.to(scores)[:, None, None])
        after, chosen = shifted.max(0).indices, labels >= 0
        for i, predicted in enumerate((before, after)):
            found = count_areas(predicted[chosen], labels[chosen], K)
            areas[i] += found.cpu()
    areas = torch.stack(dist.all_gather_object(areas)).sum(0)
    iou = 100 * iou_of_areas(areas)
    hit, _, labelled = areas.sum(-1).T
    accuracy = 100 * hit / labelled
    return map(
        Scores, iou.nanmean(-1).tolist(), accuracy.tolist(), iou.tolist()
    )
