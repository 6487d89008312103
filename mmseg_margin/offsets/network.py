"""The network of a runner: its last layer, and its scores for images."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from mmengine import dist
from mmengine.runner import Runner
from mmengine.runner.amp import autocast
from mmseg.models.decode_heads import PointHead
from rich.console import Console
from rich.progress import Progress
from torch import Tensor, nn
from torch.utils.data import DataLoader

from mmseg_margin.config_tools import as_list
from mmseg_margin.errors import DataSetError, SettingError
from mmseg_margin.heads import bare_model, modules

CLASSIFIER = 'conv_seg'
# Sigmoids closer to 0 or 1 than this have no exact score in float32.
SIGMOID_MARGIN = 1e-6


def find_classifier(model: nn.Module) -> tuple[str, Any]:
    """The last layer that scores the classes, and its name in checkpoints.

    It is that of the decode head, or of the last stage of a cascade. A network
    without such a layer, or without a bias in it, is refused.
    """
    name = 'decode_head'
    head = dict(modules(model)).get(name)
    if isinstance(head, nn.ModuleList):
        name, head = f'{name}.{len(head) - 1}', head[-1]
    layer = getattr(head, CLASSIFIER, None)
    # PointRend replaces single scores of the stage before.
    if isinstance(head, PointHead) or getattr(layer, 'bias', None) is None:
        raise SettingError(
            f'{name} is a {type(head).__name__}, which has no {CLASSIFIER} '
            'with a bias for every class of the final scores, so offsets '
            'cannot be put into this network.'
        )
    return f'{name}.{CLASSIFIER}', layer


def shift_bias(bias: Tensor, offsets: Tensor) -> Tensor:
    """The bias with the offsets in it; for a binary head, one offset."""
    offsets = offsets.to(bias)
    return bias + (offsets[1:] - offsets[:1] if len(bias) == 1 else offsets)


def check_classifier(model: nn.Module, score: Callable[[], Tensor]) -> None:
    """Refuse a model whose scores do not change by what its bias changes.

    ``score`` returns the scores (K, H, W) of one image.
    """
    name, layer = find_classifier(model)
    bias = layer.bias.detach().clone()
    # SegNeXt's head draws random numbers, which have to be the same twice.
    with torch.random.fork_rng():
        torch.manual_seed(0)
        before = score()
        offsets = torch.linspace(-1, 1, len(before)).to(before)
        try:
            layer.bias.data = shift_bias(bias, offsets)
            torch.manual_seed(0)
            surplus = score() - before - offsets[:, None, None]
        finally:
            layer.bias.data = bias
    # A constant for all classes does not matter, and the median over the
    # pixels leaves out saturated sigmoids.
    surplus -= surplus.mean(0)
    error = surplus.abs().amax(0).median()
    if error > 1e-3 * (1 + before.abs().median()):
        raise SettingError(
            f'A step after {name} changes the differences between the scores '
            'of the classes, so offsets cannot be put into its bias.'
        )


def check_labels(loader: DataLoader, split: str) -> None:
    """Refuse a split without labels before the network is run."""
    try:
        sample = loader.dataset[0]['data_samples']
    except KeyError as error:
        if error.args != ('seg_map_path',):
            raise
        sample = {}  # LoadAnnotations has no file to load
    if 'gt_sem_seg' not in sample:
        raise DataSetError(
            f'The {split} split comes without labels, which the fit needs: '
            'choose a split with labels, set seg_map_path in its data_prefix, '
            'or add LoadAnnotations to the pipeline of val_dataloader.'
        )


def scored_images(
    runner: Runner, loader: DataLoader, title: str
) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Number, scores and labels of this rank's images, with a progress bar."""
    rank, world_size = dist.get_dist_info()
    numbers = loader.dataset.indices  # type: ignore[attr-defined]
    place = rank
    with Progress(console=Console(stderr=True), disable=rank != 0) as progress:
        for batch in progress.track(loader, description=title):
            for scores, labels in score_batch(runner, batch):
                # Some images may be repeated at the end, to fill all ranks.
                if place < len(numbers):
                    yield numbers[place], scores, labels
                place += world_size


def score_batch(runner: Runner, batch: Any) -> Iterator[tuple[Tensor, Tensor]]:
    """Scores (K, H, W), and labels (H, W) with K for ignored pixels.

    The images are predicted as in a validation.
    """
    model = bare_model(runner.model)
    fp16 = (runner.cfg.get('val_cfg') or {}).get('fp16', False)
    with torch.no_grad(), autocast(enabled=fp16):
        samples = model.test_step(batch)
    metrics = as_list(runner.cfg.get('val_evaluator'))
    ignored = metrics[0].get('ignore_index', 255) if metrics else 255
    threshold = getattr(model.decode_head, 'threshold', None)
    for sample in samples:
        path = sample.metainfo.get('img_path', 'an image')
        scores = class_scores(sample.seg_logits.data, threshold)
        if not scores.isfinite().all():
            raise DataSetError(
                f'Some scores of {path} are NaN or infinite, so the network '
                'cannot be used: take an earlier checkpoint, or full '
                'precision.'
            )
        labels = sample.gt_sem_seg.data[0].long().to(scores.device)
        if labels.shape != scores.shape[1:]:
            raise DataSetError(
                f'The labels of {path} are {tuple(labels.shape)} and its '
                f'scores {tuple(scores.shape[1:])}: put LoadAnnotations after '
                'Resize in the pipeline of val_dataloader.'
            )
        labels = labels.masked_fill(labels == ignored, len(scores))
        if labels.max() > len(scores):
            raise DataSetError(
                f'The label {int(labels.max())} in {path} is none of the '
                f'{len(scores)} classes: set reduce_zero_label or the classes '
                'of the data set.'
            )
        yield scores, labels


def class_scores(scores: Tensor, threshold: float | None) -> Tensor:
    """The scores (K, H, W) whose argmax is the prediction.

    Args:
        scores: What a segmentor leaves in ``seg_logits``: (K, H, W), or
            the sigmoid (1, H, W) of a binary head.
        threshold: That of a binary head.
    """
    if len(scores) > 1:
        return scores.float()
    bound = torch.tensor(threshold, dtype=torch.float32)
    logit = torch.logit(scores.float(), SIGMOID_MARGIN) - torch.logit(bound)
    return torch.cat([torch.zeros_like(logit), logit])
