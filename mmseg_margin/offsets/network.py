"""The network of a runner: its last layer, and its scores for images."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from mmengine import dist
from mmengine.config import Config
from mmengine.runner import Runner
from mmseg.models.decode_heads import PointHead
from mmseg.registry import DATASETS
from rich.console import Console
from rich.progress import track
from torch import Tensor, nn
from torch.utils.data import ConcatDataset, DataLoader, Subset

from mmseg_margin.config_tools import as_list, evenly_spaced, leaf_datasets
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


def plain_loader(
    runner: Runner, split: str, num_images: int | None = None
) -> DataLoader:
    """Images of a split as they are validated: in order, not augmented.

    Wrappers that repeat or mix images are left out. Of more than
    ``num_images`` an evenly spaced selection is taken, whose indices are
    ``loader.dataset.indices``.
    """
    settings = runner.cfg.val_dataloader
    pipeline = leaf_datasets(settings.dataset)[0].pipeline
    parts = leaf_datasets(runner.cfg[f'{split}_dataloader'].dataset)
    images: ConcatDataset = ConcatDataset(
        [DATASETS.build(dict(part, pipeline=pipeline)) for part in parts]
    )
    chosen = Subset(images, evenly_spaced(len(images), num_images))
    sampler = {'type': 'DefaultSampler', 'shuffle': False}
    changed = dict(settings, dataset=chosen, sampler=sampler)
    return runner.build_dataloader(changed)


def scored_images(
    runner: Runner, loader: DataLoader, title: str
) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Number, scores and labels of this rank's images, with a progress bar."""
    place, world_size = dist.get_dist_info()
    numbers = loader.dataset.indices  # type: ignore[attr-defined]
    console = Console(stderr=True)
    for batch in track(loader, title, console=console, disable=place > 0):
        for scores, labels in score_batch(runner, batch):
            # Some images may be repeated at the end, to fill all ranks.
            if place < len(numbers):
                yield numbers[place], scores, labels
            place += world_size


def score_batch(runner: Runner, batch: Any) -> Iterator[tuple[Tensor, Tensor]]:
    """Scores (K, H, W), and labels (H, W) with -1 for ignored pixels.

    In float32, because half precision hides the effect of small offsets.
    """
    model = bare_model(runner.model)
    with torch.no_grad():
        samples = model.test_step(batch)
    ignored = ignored_label(runner.cfg)
    threshold = getattr(model.decode_head, 'threshold', None)
    for sample in samples:
        scores = class_scores(sample.seg_logits.data, threshold)
        labels = sample.gt_sem_seg.data[0].long().to(scores.device)
        labels = labels.masked_fill(labels == ignored, -1)
        if labels.max() >= len(scores):
            raise DataSetError(
                f'The label {int(labels.max())} in {sample.img_path} is no '
                'class: set reduce_zero_label, the classes of the data set or '
                'ignore_index of val_evaluator.'
            )
        yield scores, labels


def ignored_label(cfg: Config) -> int:
    """The ignore_index of the metric of the validation."""
    metrics = as_list(cfg.get('val_evaluator'))
    given = [each.ignore_index for each in metrics if 'ignore_index' in each]
    return given[0] if given else 255


def class_scores(scores: Tensor, threshold: float | None) -> Tensor:
    """The scores (K, H, W) whose argmax is the prediction.

    A segmentor leaves them, or the sigmoid (1, H, W) of a binary head with a
    threshold, in ``seg_logits``.
    """
    if len(scores) > 1:
        return scores.float()
    bound = torch.tensor(threshold, dtype=torch.float32)
    logit = torch.logit(scores.float(), SIGMOID_MARGIN) - torch.logit(bound)
    return torch.cat([torch.zeros_like(logit), logit])
