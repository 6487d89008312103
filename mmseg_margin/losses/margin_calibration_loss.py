"""MarginCalibrationLoss: the configuration of the margin-calibrated loss."""

import math
import os
from collections.abc import Sequence

import torch
from mmengine.logging import print_log
from mmseg.registry import MODELS
from torch import Tensor, nn

from mmseg_margin.functional import (
    choose_backend,
    margin_offsets,
    pixel_calibration_loss,
    tau_of_largest_offset,
)
from mmseg_margin.stats import ClassStats, class_weights

from .pixels import reduce_pixels
from .running_iou import RunningIoU
from .validation import check_labels, check_settings, check_statistics


@MODELS.register_module()
class MarginCalibrationLoss(nn.Module):
    """Distribution-aware margin calibration (Algorithms 1 and 2, Eq. 16).

    Args:
        tau: Scale of the margin-offsets.
        upsilon: Scale of the ratio between foreground and background offsets.
        class_counts: Labelled pixels of each class in the training set, a
            JSON file written by ``tools/class_stats.py``, or None to receive
            them from ``ClassStatsHook``.
        form: ``'paper'``, ``'target'`` or ``'softmax'``, see
            ``docs/method.md``.
        pos_weight: Weight of the foreground term, or ``'num_classes'``.
        log_base: 2 or ``'e'``.
        focus: How strongly the terms beyond their margin are played down, see
            ``docs/method.md``; 0 in the paper.
        class_mean: Whether a pixel's terms are averaged over the classes
            instead of summed.
        class_balance: ``'none'``, or ``'iou'`` to weight the terms by the
            gradient of the data set's IoU bound.
        momentum: Memory of the running rates that ``'iou'`` needs.
        class_weight: Weight of the pixels of each class, or the method to
            derive them from the counts: ``'inverse'``, ``'sqrt'``,
            ``'median'``, ``'effective'``, or a power of the inverse
            frequency.
        reduction: ``'none'``, ``'mean'`` or ``'sum'``.
        avg_non_ignore: Whether the mean is taken over the labelled pixels
            instead of over all.
        global_mean: Whether the mean is taken over the pixels of all ranks,
            so that the training does not depend on their number.
        loss_weight: Weight of the loss.
        absent_class: What to do about a class without pixels: ``'error'``,
            ``'zero'`` or ``'max'`` offset.
        largest_offset: Sets tau so that the rarest class has this offset,
            whatever the number and the size of the images.
        backend: ``'auto'``, ``'compiled'`` or ``'eager'``.
        loss_name: Name in the log; it has to contain ``loss``.

    Example:
        >>> loss_decode = dict(type='MarginCalibrationLoss', loss_weight=1.0)
        >>> custom_hooks = [dict(type='ClassStatsHook')]
    """

    rho_0k: Tensor
    rho_k0: Tensor

    def __init__(
        self,
        tau: float = 10.0,
        upsilon: float = 1.0,
        class_counts: Sequence[int] | str | os.PathLike | None = None,
        form: str = 'paper',
        pos_weight: float | str = 1.0,
        log_base: float | str = 2,
        focus: float = 0.0,
        class_mean: bool = False,
        class_balance: str = 'none',
        momentum: float = 0.99,
        class_weight: Sequence[float] | str | float | None = None,
        reduction: str = 'mean',
        avg_non_ignore: bool = True,
        global_mean: bool = False,
        loss_weight: float = 1.0,
        absent_class: str = 'error',
        largest_offset: float | None = None,
        backend: str = 'auto',
        loss_name: str = 'loss_margin',
    ) -> None:
        super().__init__()
        check_settings(form, class_balance, class_weight, loss_name)
        self.tau = tau
        self.upsilon = upsilon
        self.largest_offset = largest_offset
        self.form = form
        self.pos_weight = pos_weight
        self.log_base = log_base
        self.focus = focus
        self.class_mean = class_mean
        self.weight_method = None
        if isinstance(class_weight, (str, int, float)):
            self.weight_method, class_weight = class_weight, None
        self.class_weight = class_weight
        self.reduction = reduction
        self.avg_non_ignore = avg_non_ignore
        self.global_mean = global_mean
        self.loss_weight = loss_weight
        self.absent_class = absent_class
        self.backend = backend
        self._loss_name = loss_name
        self._backend_said = False
        # A GPU need not wait for a check of the labels in every step once
        # the whole data set has been checked.
        self.labels_checked = False
        self._has_own_counts = class_counts is not None
        for name in ('rho_0k', 'rho_k0'):
            self.register_buffer(name, torch.empty(0), persistent=False)
        self.running_iou = None
        if class_balance == 'iou':
            nats = 1.0 if log_base == 'e' else math.log(float(log_base))
            self.running_iou = RunningIoU(momentum, nats)
        if isinstance(class_counts, (str, os.PathLike)):
            class_counts = ClassStats.from_json(class_counts).counts
        if class_counts is not None:
            self.set_class_counts(class_counts)

    @property
    def loss_name(self) -> str:
        return self._loss_name

    def set_class_counts(
        self, counts: Sequence[int], classes: Sequence[str] | None = None
    ) -> None:
        """Derive the margin-offsets from the pixels of each class."""
        if self.largest_offset is not None:
            self.tau = tau_of_largest_offset(counts, self.largest_offset)
        offsets = margin_offsets(
            counts, self.tau, self.upsilon, self.absent_class, classes
        )
        self.rho_0k, self.rho_k0 = (
            torch.from_numpy(rho).to(self.rho_0k.device, torch.float32)
            for rho in offsets
        )
        if self.weight_method is not None:
            self.class_weight = class_weights(counts, self.weight_method)
        if self.running_iou is not None:
            share = torch.tensor(counts, dtype=torch.float64)
            self.running_iou.start((share / share.sum()).to(self.rho_0k))

    def set_class_stats(self, stats: ClassStats) -> None:
        """The same from a data set, unless the config has counts."""
        if not self._has_own_counts:
            self.set_class_counts(stats.counts, stats.classes)

    def training_state(self) -> dict[str, list[float]]:
        """The running rates, which a resumed training needs."""
        if self.running_iou is None:
            return {}
        return {'running_iou': self.running_iou.sums.flatten().tolist()}

    def load_training_state(self, state: dict[str, list[float]]) -> None:
        if self.running_iou is not None and 'running_iou' in state:
            self.running_iou.load(state['running_iou'])

    def forward(
        self,
        cls_score: Tensor,
        label: Tensor,
        weight: Tensor | None = None,
        avg_factor: float | Tensor | None = None,
        ignore_index: int = 255,
        reduction_override: str | None = None,
        **kwargs,
    ) -> Tensor:
        """Scores (N, K, H, W), labels and weight (N, H, W)."""
        self._check(cls_score, label, ignore_index)
        pos_weight, neg_weight = self._term_weights(cls_score.shape[1])
        with torch.autocast(cls_score.device.type, enabled=False):
            loss = pixel_calibration_loss(
                cls_score,
                label,
                self.rho_0k,
                self.rho_k0,
                form=self.form,
                pos_weight=pos_weight,
                neg_weight=neg_weight,
                log_base=self.log_base,
                focus=self.focus,
                ignore_index=ignore_index,
                backend=self.backend,
            )
            if self.running_iou is not None and self.training:
                self.running_iou.update(cls_score, label, ignore_index)
            loss = reduce_pixels(
                loss,
                label,
                weight,
                self.class_weight,
                reduction_override or self.reduction,
                avg_factor,
                ignore_index,
                self.avg_non_ignore,
                self.global_mean and self.training,
            )
        return self.loss_weight * loss

    def _term_weights(
        self, num_classes: int
    ) -> tuple[Tensor | float, Tensor | float]:
        """Weights of the foreground and of the background terms."""
        scale = 1 / num_classes if self.class_mean else 1.0
        pos = (
            num_classes
            if self.pos_weight == 'num_classes'
            else (self.pos_weight)
        )
        if self.running_iou is None:
            return scale * float(pos), scale
        own, background = self.running_iou.weights()
        return scale * float(pos) * own, scale * background

    def _check(self, scores: Tensor, label: Tensor, ignore_index: int) -> None:
        check_statistics(self.rho_0k, scores.shape[1])
        if torch.compiler.is_compiling():
            return
        if self.form != 'softmax' and not self._backend_said:
            backend = choose_backend(scores.device, self.backend)
            print_log(f'{self.loss_name} runs {backend}.', logger='current')
            self._backend_said = True
        if scores.device.type == 'cpu' or not self.labels_checked:
            check_labels(label, scores.shape[1], ignore_index)
