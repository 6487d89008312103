r"""Softmax of a pixel's scores, and cross-entropy and focal loss with it.

With ``q = 1 - p_y`` the loss of a pixel is ``q^gamma log(1 / p_y)``, and its
gradient ``c (p_k - [k = y])`` with ``c = q^gamma (1 + gamma p_y log(1 / p_y)
/ q)``; ``gamma = 0`` is the cross-entropy, with ``c = 1``.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from .backend import (
    Pixels,
    StageResult,
    count_hits,
    fusible_hits,
    select_label,
)
from .triton_launch import Stage

LOG2_E = 1 / math.log(2)


class Softmax(NamedTuple):
    """The softmax of P pixels; power is (K, P), the others are (1, P)."""

    power: Tensor  # exp(s - max s); divided by the total, the probabilities
    total: Tensor  # sum of the powers
    log_loss: Tensor  # log(1 / p_y); 0 or finite where a pixel is ignored
    is_top: Tensor  # whether no score is above the label's

    @property
    def error(self) -> Tensor:
        """``1 - p_y``, without cancellation where it is small."""
        return torch.expm1(-self.log_loss).neg()

    @property
    def odds(self) -> Tensor:
        """``(1 - p_y) / p_y``, without cancellation on either side."""
        return torch.expm1(self.log_loss)


def eager_softmax(scores: Tensor, labels: Tensor, index: Tensor) -> Softmax:
    """In few passes over (K, P); ``index`` is 0 for ignored pixels."""
    top = scores.amax(0, keepdim=True)
    is_labelled = labels >= 0
    # A finite loss for ignored pixels, because 0 * inf is NaN.
    label_score = torch.where(is_labelled, scores.gather(0, index), top)
    # exp2 takes half the time of exp.
    power = (scores - top).mul_(LOG2_E).exp2_()
    total = power.sum(0, keepdim=True)
    log_loss = total.log().add_(top).sub_(label_score)
    return Softmax(power, total, log_loss, label_score == top)


def softmax_hits(softmax: Softmax, scores: Tensor, labels: Tensor) -> Tensor:
    """Number of pixels whose label is the argmax, from eager_softmax."""
    # Each of several top classes adds 1 to the total.
    return count_hits(scores, labels, softmax.is_top, softmax.total >= 2)


def fusible_softmax(scores: Tensor, labels: Tensor, number: Tensor) -> Softmax:
    """The same without indexing, so that it compiles to vector code."""
    top = scores.amax(0, keepdim=True)
    label_score = select_label(labels == number, scores)
    power = (scores - top).exp()
    total = power.sum(0, keepdim=True)
    log_loss = total.log() + (top - label_score)
    is_labelled = labels >= 0
    log_loss = torch.where(is_labelled, log_loss, 0.0)
    return Softmax(power, total, log_loss, label_score == top)


@dataclass(frozen=True)
class CrossEntropy:
    """The objective: cross-entropy, or the focal loss with gamma > 0."""

    gamma: float = 0.0
    name: ClassVar[str] = 'cross_entropy'

    def numbers(self, num_classes: int) -> tuple[float, ...]:
        return (float(self.gamma),)

    def constants(self, like: Tensor, *_) -> tuple:
        return ()

    @staticmethod
    def eager(pixels: Pixels, constants: tuple, numbers: tuple) -> StageResult:
        scores, labels, weight = pixels
        index = labels.clamp(min=0).long()
        softmax = eager_softmax(scores, labels, index)
        hits = softmax_hits(softmax, scores, labels)
        loss, slope = _focus(softmax, weight, *numbers)
        gradient = softmax.power.mul_(slope / softmax.total)
        gradient.scatter_add_(0, index, -slope)
        return StageResult(loss, hits, gradient)

    @staticmethod
    def fusible(
        pixels: Pixels, constants: tuple, numbers: tuple
    ) -> StageResult:
        scores, labels, weight = pixels
        (number,) = constants
        is_label = labels == number
        softmax = fusible_softmax(scores, labels, number)
        loss, slope = _focus(softmax, weight, *numbers)
        gradient = softmax.power * (slope / softmax.total)
        gradient = gradient - torch.where(is_label, slope, 0.0)
        hits = fusible_hits(scores, labels, number)
        return StageResult(loss, hits, gradient)

    def triton_stage(
        self, scores: Tensor, labels: Tensor, *others: Any
    ) -> StageResult:
        """The same on a GPU."""
        from .triton_softmax import cross_entropy_kernel

        gamma, stage = float(self.gamma), Stage(scores, labels, *others)
        return stage.run(cross_entropy_kernel, gamma, FOCAL=gamma != 0)


def _focus(
    softmax: Softmax, weight: Tensor, gamma: float
) -> tuple[Tensor, Tensor]:
    """The loss (1, P), and the factor c of its gradient."""
    log_loss = softmax.log_loss
    if not gamma:
        return weight * log_loss, weight
    # Positive, because the slope divides by it.
    q = softmax.error.clamp(min=torch.finfo(log_loss.dtype).tiny)
    weight = weight * q**gamma
    slope = 1 + gamma * (1 - q) * log_loss / q
    return weight * log_loss, weight * slope
