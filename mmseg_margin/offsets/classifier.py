"""The classifier whose bias takes the offsets, and the scores it gives."""

from typing import Any

import torch
from mmseg.models.decode_heads import PointHead
from torch import Tensor, nn

from mmseg_margin.errors import SettingError
from mmseg_margin.heads import modules

CLASSIFIER = 'conv_seg'
# Sigmoids closer to 0 or 1 than this have no exact score in float32.
SIGMOID_MARGIN = 1e-6


def find_classifier(model: nn.Module) -> tuple[str, Any]:
    """The last layer that scores the classes, and its name in checkpoints.

    It is that of the decode head, or of the last stage of a cascade.

    Raises:
        SettingError: If there is none, or if it has no bias.
    """
    found = dict(modules(model))
    name = 'decode_head'
    head = found.get(name)
    if isinstance(head, nn.ModuleList):
        name = f'{name}.{len(head) - 1}'
        head = head[-1]
    layer = getattr(head, CLASSIFIER, None)
    # PointRend replaces single scores of the stage before.
    if isinstance(head, PointHead) or getattr(layer, 'bias', None) is None:
        raise SettingError(
            f'{name} is a {type(head).__name__}, which has no {CLASSIFIER} '
            'with a bias for every class of the final scores, so offsets '
            'cannot be put into this network.'
        )
    return f'{name}.{CLASSIFIER}', layer


def num_classes(model: nn.Module) -> int:
    """How many classes a model chooses from, 2 for a binary head."""
    return max(2, len(find_classifier(model)[1].bias))


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


def shift_bias(bias: Tensor, offsets: Tensor) -> Tensor:
    """The bias with the offsets in it; for a binary head, one offset."""
    offsets = offsets.to(bias)
    if len(bias) == 1:
        return bias + (offsets[1] - offsets[0])
    return bias + offsets


def is_shifted(before: Tensor, after: Tensor, offsets: Tensor) -> bool:
    """Whether scores (K, H, W) of an image differ by offsets (K,) alone.

    A constant for all classes does not matter, and the median over the
    pixels leaves out saturated sigmoids.
    """
    surplus = after - before - offsets.to(before)[:, None, None]
    surplus -= surplus.mean(0)
    error = surplus.abs().amax(0).median()
    return bool(error <= 1e-3 * (1 + before.abs().median()))
