r"""Softmax of a pixel's scores, and cross-entropy and focal loss with it.

With ``q = 1 - p_y`` the loss of a pixel is ``q^gamma log(1 / p_y)``, and its
gradient ``c (p_k - [k = y])`` with ``c = q^gamma (1 + gamma p_y log(1 / p_y)
/ q)``; ``gamma = 0`` is the cross-entropy, with ``c = 1``.
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .backend import PixelKernel, PixelTerms, class_numbers, select_label
from .triton_launch import Stage, TritonResult

LOG2_E = 1 / math.log(2)


class Softmax(NamedTuple):
    """The softmax of P pixels; power is (K, P), the others are (1, P).

    Args:
        power: ``exp(s - max s)``; divided by the total, the probabilities.
        total: The sum of the powers.
        log_loss: ``log(1 / p_y)``; 0 or finite where a pixel is ignored.
        is_hit: Whether the label's score is the maximum.
    """

    power: Tensor
    total: Tensor
    log_loss: Tensor
    is_hit: Tensor

    @property
    def error(self) -> Tensor:
        """``1 - p_y``, without cancellation where it is small."""
        return torch.expm1(-self.log_loss).neg()


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
    return Softmax(power, total, log_loss, (label_score == top) & is_labelled)


def fusible_softmax(scores: Tensor, labels: Tensor, is_label: Tensor):
    """The same without indexing, so that it compiles to vector code."""
    top = scores.amax(0, keepdim=True)
    label_score = select_label(is_label, scores)
    power = (scores - top).exp()
    total = power.sum(0, keepdim=True)
    log_loss = total.log() + (top - label_score)
    is_labelled = labels >= 0
    log_loss = torch.where(is_labelled, log_loss, 0.0)
    return Softmax(power, total, log_loss, (label_score == top) & is_labelled)


class CrossEntropy(NamedTuple):
    """The objective: cross-entropy, or the focal loss with gamma > 0."""

    gamma: float = 0.0

    def kernel(self, num_classes: int) -> PixelKernel:
        return CrossEntropyKernel(float(self.gamma))

    def constants(self, like: Tensor, *_) -> tuple[Tensor, ...]:
        return (class_numbers(like),)

    @property
    def name(self) -> str:
        """The key of the objective in :func:`.triton_check.proven`."""
        return 'cross_entropy'

    def triton_stage(
        self, scores: Tensor, labels: Tensor, *others: Any
    ) -> TritonResult:
        """The same on a GPU."""
        from .triton_softmax import cross_entropy_kernel

        gamma, stage = float(self.gamma), Stage(scores, labels, *others)
        result = stage.run(cross_entropy_kernel, gamma, FOCAL=gamma != 0)
        return result._replace(ce=None)


class CrossEntropyKernel(NamedTuple):
    gamma: float

    def eager(
        self, scores: Tensor, labels: Tensor, weight: Tensor, constants: tuple
    ) -> PixelTerms:
        index = labels.clamp(min=0).long()
        softmax = eager_softmax(scores, labels, index)
        loss, slope = self._focus(softmax, weight)
        gradient = softmax.power.mul_(slope / softmax.total)
        gradient.scatter_add_(0, index, -slope)
        return PixelTerms(loss, gradient, softmax.is_hit.sum())

    def fusible(
        self, scores: Tensor, labels: Tensor, weight: Tensor, constants: tuple
    ) -> PixelTerms:
        is_label = labels == constants[0]
        softmax = fusible_softmax(scores, labels, is_label)
        loss, slope = self._focus(softmax, weight)
        gradient = softmax.power * (slope / softmax.total)
        gradient = gradient - torch.where(is_label, slope, 0.0)
        return PixelTerms(loss, gradient, softmax.is_hit.sum())

    def _focus(
        self, softmax: Softmax, weight: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The loss (1, P), and the factor c of its gradient."""
        log_loss = softmax.log_loss
        if not self.gamma:
            return weight * log_loss, weight
        # Positive, because the slope divides by it.
        q = softmax.error.clamp(min=torch.finfo(log_loss.dtype).tiny)
        weight = weight * q**self.gamma
        slope = 1 + self.gamma * (1 - q) * log_loss / q
        return weight * log_loss, weight * slope
