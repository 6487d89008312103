"""Scores and labels of images, predicted as in a validation."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from mmengine import dist
from mmengine.model import is_model_wrapper
from mmengine.runner import Runner
from mmengine.runner.amp import autocast
from rich.console import Console
from rich.progress import Progress
from torch import Tensor
from torch.utils.data import DataLoader

from mmseg_margin.config_tools import as_list
from mmseg_margin.errors import DataSetError, SettingError

from .classifier import (
    class_scores,
    find_classifier,
    is_shifted,
    shift_bias,
)


class ScoredImage(NamedTuple):
    """The number of an image in its split, its scores and its labels."""

    number: int
    scores: Tensor
    """(K, H, W)"""
    labels: Tensor
    """(H, W), K where ignored"""


def bare_model(runner: Runner) -> Any:
    """The segmentor without the wrapper of distributed training."""
    model = runner.model
    return model.module if is_model_wrapper(model) else model


def scored_images(
    runner: Runner, loader: DataLoader, title: str
) -> Iterator[ScoredImage]:
    """This rank's part of the images of a loader, with a progress bar."""
    rank, world_size = dist.get_dist_info()
    numbers = loader.dataset.indices  # type: ignore[attr-defined]
    place = rank
    with Progress(console=Console(stderr=True), disable=rank != 0) as progress:
        task = progress.add_task(title, total=len(loader))
        for batch in loader:
            for scores, labels in _score(runner, batch):
                # Some images may be repeated at the end, to fill all ranks.
                if place < len(numbers):
                    yield ScoredImage(numbers[place], scores, labels)
                place += world_size
            progress.advance(task)


def check_classifier(runner: Runner, loader: DataLoader) -> None:
    """Verify that a shifted bias shifts the scores by the same amount.

    Raises:
        SettingError: If the network has no such classifier.
    """
    name, layer = find_classifier(bare_model(runner))
    batch = next(iter(loader))
    bias = layer.bias.detach().clone()
    # SegNeXt's head draws random numbers, which have to be the same twice.
    with torch.random.fork_rng():
        torch.manual_seed(0)
        before = _score(runner, batch)[0][0]
        offsets = torch.linspace(-1, 1, len(before))
        try:
            layer.bias.data = shift_bias(bias, offsets)
            torch.manual_seed(0)
            after = _score(runner, batch)[0][0]
        finally:
            layer.bias.data = bias
    if not is_shifted(before, after, offsets):
        raise SettingError(
            f'A step after {name} changes the differences between the scores '
            'of the classes, so offsets cannot be put into its bias.'
        )


def _score(runner: Runner, batch: Any) -> list[tuple[Tensor, Tensor]]:
    model = bare_model(runner)
    fp16 = (runner.cfg.get('val_cfg') or {}).get('fp16', False)
    with torch.no_grad(), autocast(enabled=fp16):
        samples = model.test_step(batch)
    metrics = as_list(runner.cfg.get('val_evaluator'))
    ignored = metrics[0].get('ignore_index', 255) if metrics else 255
    return [_scores_and_labels(model, sample, ignored) for sample in samples]


def _scores_and_labels(
    model: Any, sample: Any, ignore_index: int
) -> tuple[Tensor, Tensor]:
    path = sample.metainfo.get('img_path', 'an image')
    if 'gt_sem_seg' not in sample:
        raise DataSetError(
            f'{path} comes without labels, which the fit needs: choose a '
            'split with labels, or add LoadAnnotations to the pipeline of '
            'val_dataloader.'
        )
    threshold = getattr(model.decode_head, 'threshold', None)
    scores = class_scores(sample.seg_logits.data, threshold)
    if not scores.isfinite().all():
        raise DataSetError(
            f'Some scores of {path} are NaN or infinite, so the network '
            'cannot be used: take an earlier checkpoint, or full precision.'
        )
    labels = sample.gt_sem_seg.data[0].long().to(scores.device)
    if labels.shape != scores.shape[1:]:
        raise DataSetError(
            f'The labels of {path} are {tuple(labels.shape)} and its scores '
            f'{tuple(scores.shape[1:])}: put LoadAnnotations after Resize in '
            'the pipeline of val_dataloader.'
        )
    labels = labels.masked_fill(labels == ignore_index, len(scores))
    if labels.max() > len(scores):
        raise DataSetError(
            f'The label {int(labels.max())} in {path} is none of the '
            f'{len(scores)} classes: set reduce_zero_label or the classes of '
            'the data set.'
        )
    return scores, labels
