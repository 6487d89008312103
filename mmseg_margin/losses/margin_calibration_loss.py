"""MarginCalibrationLoss: the configuration of the margin-calibrated loss."""

import os
from collections.abc import Sequence
from typing import Any

import torch
from mmengine.logging import print_log
from mmseg.registry import MODELS
from torch import Tensor

from mmseg_margin.errors import SettingError
from mmseg_margin.functional import choose_backend, pixel_calibration_loss
from mmseg_margin.stats import ClassStats

from .error_memory import ErrorMemory
from .pixel_wise_loss import PixelWiseLoss
from .presets import settings_of
from .progress import training_progress
from .validation import warn_of_large_offsets


@MODELS.register_module()
class MarginCalibrationLoss(PixelWiseLoss):
    """Distribution-aware margin calibration (Algorithms 1 and 2, Eq. 16).

    Args:
        preset: ``'paper'``, ``'authors'`` or ``'recommended'``, see
            :data:`mmseg_margin.losses.presets.PRESETS`.
        class_counts: Labelled pixels of each class in the training set, a
            JSON file written by ``tools/class_stats.py``, or None to receive
            them from ``ClassStatsHook``.
        reduction: See :class:`PixelWiseLoss`, as for the rest.
        backend: ``'auto'``, ``'compiled'`` or ``'eager'``.
        **settings: In place of the preset's: ``class_weight``, what
            :class:`mmseg_margin.functional.LossSettings` has (``form``,
            ``log_base``, ...) and what
            :class:`mmseg_margin.functional.OffsetSettings` has (``tau``,
            ``largest_offset``, ...).

    Example:
        >>> loss_decode = dict(type='MarginCalibrationLoss', loss_weight=1.0)
        >>> custom_hooks = [dict(type='ClassStatsHook')]
    """

    rho_0k: Tensor
    rho_k0: Tensor

    def __init__(
        self,
        preset: str = 'paper',
        class_counts: Sequence[int] | str | os.PathLike | None = None,
        reduction: str = 'mean',
        avg_non_ignore: bool = True,
        global_mean: bool = False,
        loss_weight: float = 1.0,
        backend: str = 'auto',
        loss_name: str = 'loss_margin',
        **settings: Any,
    ) -> None:
        chosen = settings_of(preset, settings)
        super().__init__(
            chosen.class_weight,
            reduction,
            loss_weight,
            loss_name,
            avg_non_ignore,
            global_mean,
        )
        self.settings = chosen.loss
        self.offset_settings = chosen.offsets
        self.backend = backend
        self._backend_said = False
        self.class_counts: list[int] | None = None
        for name in ('rho_0k', 'rho_k0'):
            self.register_buffer(name, torch.empty(0), persistent=False)
        self.errors = None
        if self.settings.form == 'jaccard':
            self.errors = ErrorMemory(
                self.settings.levels,
                self.settings.memory,
                self.settings.batch_share,
            )
        self.has_own_counts = False
        if isinstance(class_counts, (str, os.PathLike)):
            self.set_class_stats(ClassStats.from_json(class_counts))
        elif class_counts is not None:
            self.set_class_counts(class_counts)
        self.has_own_counts = class_counts is not None

    @property
    def needs_statistics(self) -> bool:
        return True

    @property
    def tau(self) -> float | None:
        """The scale of the offsets; None as long as it is not known."""
        if self.class_counts is None:
            return self.offset_settings.tau
        return self.offset_settings.tau_for(self.class_counts)

    @property
    def upsilon(self) -> float:
        return self.offset_settings.upsilon

    def set_class_stats(self, stats: ClassStats) -> None:
        """Derive the offsets from a data set, unless the config has counts."""
        if not self.has_own_counts:
            super().set_class_stats(stats)

    def _make_room(self, num_classes: int) -> None:
        super()._make_room(num_classes)
        self.rho_0k, self.rho_k0 = self.rho_0k.new_zeros(2, num_classes)
        if self.errors is not None:
            self.errors.make_room(num_classes)

    def set_class_counts(
        self,
        counts: Sequence[int],
        classes: Sequence[str] | None = None,
        image_pixels: Sequence[int] | None = None,
    ) -> None:
        super().set_class_counts(counts, classes, image_pixels)
        self.class_counts = list(counts)
        offsets = self.offset_settings.offsets(counts, classes)
        self.rho_0k, self.rho_k0 = (
            torch.from_numpy(rho).to(self.rho_0k.device, torch.float32)
            for rho in offsets
        )
        warn_of_large_offsets(offsets.rho_0k, classes)
        if self.errors is not None:
            self.errors.start(counts)

    def training_state(self) -> dict[str, list[float]]:
        """The running errors, which a resumed training needs."""
        return {} if self.errors is None else {'errors': self.errors.state()}

    def load_training_state(self, state: dict[str, list[float]]) -> None:
        if self.errors is not None and 'errors' in state:
            self.errors.load(state['errors'])

    def pixel_losses(
        self,
        scores: Tensor,
        label: Tensor,
        ignore_index: int,
        pixel_weight: Tensor | float,
    ) -> Tensor:
        return pixel_calibration_loss(
            scores,
            label,
            pixel_weight=pixel_weight,
            ignore_index=ignore_index,
            **self.stage_settings(scores.shape[1]),
        )

    def log_share(self) -> float:
        """What the Jaccard form has of the log-loss by now."""
        delay = training_progress() ** self.settings.log_delay
        return self.settings.log_share * delay

    def stage_settings(self, num_classes: int) -> dict[str, Any]:
        tables = None
        if self.errors is not None:
            # While training, a batch changes what is remembered.
            remember = self.errors.weights_with
            tables = remember if self.training else self.errors.weights()
        own, other = self.settings.term_weights(num_classes)
        return {
            'rho_0k': self.rho_0k,
            'rho_k0': self.rho_k0,
            'form': self.settings.form,
            'pos_weight': own,
            'neg_weight': other,
            'log_base': self.settings.log_base,
            'focus': self.settings.focus,
            'levels': self.settings.levels,
            # A number would have a compiled model compiled in every step.
            'log_share': self.log_share,
            'tables': tables,
            'backend': self.backend,
        }

    def check(self, scores: Tensor, label: Tensor, ignore_index: int) -> None:
        super().check(scores, label, ignore_index)
        if len(self.rho_0k) != scores.shape[1]:
            raise SettingError(
                f'The head has {scores.shape[1]} classes but the statistics '
                f'{len(self.rho_0k)}: make num_classes and the data set agree.'
            )
        if torch.compiler.is_compiling() or self._backend_said:
            return
        backend = choose_backend(scores.device, self.backend)
        print_log(f'{self.loss_name} runs {backend}.', logger='current')
        self._backend_said = True
