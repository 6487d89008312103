"""MarginCalibrationLoss: the paper's loss for a decode head."""

import logging
import os
from collections.abc import Sequence
from typing import Any

import torch
from mmengine.logging import MessageHub, print_log
from mmseg.registry import MODELS
from torch import Tensor

from mmseg_margin.errors import SettingError, one_of, require
from mmseg_margin.functional.margin import MarginObjective
from mmseg_margin.functional.margins import large_offset_warning
from mmseg_margin.functional.settings import MarginSettings, OffsetSettings
from mmseg_margin.stats import ClassStats

from .base import PixelLoss

PRESETS: dict[str, dict[str, Any]] = {
    # Eq. 16 with the paper's defaults.
    'paper': {},
    # What the authors' published code computes.
    'authors': dict(pos_weight='num_classes', log_base='e', class_mean=True),
}


@MODELS.register_module()
class MarginCalibrationLoss(PixelLoss):
    """Distribution-aware margin calibration (Algorithms 1 and 2, Eq. 16).

    Args:
        preset: ``'paper'``, or ``'authors'`` for what the authors' published
            code computes; see :data:`PRESETS`.
        class_counts: Labelled pixels of each class in the training set, a
            JSON file written by ``python -m mmseg_margin class_stats``, or
            None to receive them from ``ClassStatsHook``.
        tau: See :class:`OffsetSettings` (Algorithm 1), as for ``upsilon``,
            ``largest_offset`` and ``absent_class``.
        pos_weight: See :class:`MarginSettings` (Eq. 16), as for ``log_base``
            and ``class_mean``; None for that of the preset.
        **kwargs: See :class:`PixelLoss`.

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
        tau: float | None = None,
        upsilon: float = 1.0,
        largest_offset: float | None = None,
        absent_class: str = 'zero',
        pos_weight: float | str | None = None,
        log_base: float | str | None = None,
        class_mean: bool | None = None,
        loss_name: str = 'loss_margin',
        **kwargs: Any,
    ) -> None:
        super().__init__(loss_name=loss_name, **kwargs)
        require('preset', preset, *one_of(PRESETS))
        given = dict(
            pos_weight=pos_weight, log_base=log_base, class_mean=class_mean
        )
        given = {key: x for key, x in given.items() if x is not None}
        self.settings = MarginSettings(**PRESETS[preset] | given)
        self.offset_settings = OffsetSettings(
            tau, upsilon, largest_offset, absent_class
        )
        self.needs_statistics = True
        for name in ('rho_0k', 'rho_k0'):
            self.register_buffer(name, torch.empty(0), persistent=False)
        # Whether the config has the counts; those of a data set are not used.
        self.has_own_counts = class_counts is not None
        # The class names of a statistics file, which are compared with those
        # of the data set in the hub of the Runner that builds the model.
        self.file_classes: list[str] = []
        self._hub_name = MessageHub.get_current_instance().instance_name
        if isinstance(class_counts, (str, os.PathLike)):
            stats = ClassStats.from_json(class_counts)
            self.file_classes = stats.classes
            super().set_class_stats(stats)
            class_counts = stats.counts
        elif class_counts is not None:
            self.set_class_counts(class_counts)
        # ClassStatsHook checks the counts that it collects.
        if class_counts is not None:
            warnings = [large_offset_warning(self.rho_0k.numpy())]
            if 0 in class_counts:
                warnings.append('class_counts has a class without pixels.')
            for warning in filter(None, warnings):
                print_log(warning, logger='current', level=logging.WARNING)

    def objective(self) -> MarginObjective:
        return MarginObjective(self.rho_0k, self.rho_k0, self.settings)

    def expect_classes(self, num_classes: int) -> None:
        super().expect_classes(num_classes)
        if self.needs_statistics:
            self.rho_0k, self.rho_k0 = self.rho_0k.new_zeros(2, num_classes)

    def set_class_stats(self, stats: ClassStats) -> None:
        if not self.has_own_counts:
            super().set_class_stats(stats)

    def set_class_counts(
        self, counts: Sequence[int], stats: ClassStats | None = None
    ) -> None:
        """Algorithm 1: the offsets from the pixels of each class."""
        super().set_class_counts(counts, stats)
        classes = stats.classes if stats else None
        offsets = self.offset_settings.offsets(counts, classes)
        self.rho_0k, self.rho_k0 = map(self.rho_0k.new_tensor, offsets)

    def check(self, scores: Tensor) -> None:
        super().check(scores)
        if MessageHub.check_instance_created(self._hub_name):
            hub = MessageHub.get_instance(self._hub_name)
            dataset = hub.runtime_info.get('dataset_meta') or {}
            classes = list(dataset.get('classes') or ())
            # Another number of classes is that of another data set's head.
            same_number = len(classes) == len(self.file_classes)
            if same_number and classes != self.file_classes:
                raise SettingError(
                    f'The file of class_counts has {self.file_classes} where '
                    f'the data set has {classes}: write it again with python '
                    '-m mmseg_margin class_stats CONFIG --out FILE.'
                )
