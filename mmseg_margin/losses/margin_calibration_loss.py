"""MarginCalibrationLoss: the paper's loss for a decode head."""

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import torch
from mmengine.logging import MessageHub, print_log
from mmseg.registry import MODELS
from torch import Tensor

from mmseg_margin.errors import SettingError
from mmseg_margin.functional.margin import MarginObjective
from mmseg_margin.functional.margins import large_offset_warning
from mmseg_margin.functional.settings import MarginSettings, OffsetSettings
from mmseg_margin.stats import ClassStats

from .base import ClassWeight, PixelLoss, unknown_setting

PRESETS: dict[str, dict[str, Any]] = {
    # Eq. 16 and Algorithm 1 with the paper's defaults.
    'paper': {},
    # What the authors' published code computes.
    'authors': {
        'pos_weight': 'num_classes',
        'log_base': 'e',
        'class_mean': True,
    },
}
OFFSET_SETTINGS = tuple(field.name for field in fields(OffsetSettings))
MARGIN_SETTINGS = tuple(field.name for field in fields(MarginSettings))


@MODELS.register_module()
class MarginCalibrationLoss(PixelLoss):
    """Distribution-aware margin calibration (Algorithms 1 and 2, Eq. 16).

    Args:
        preset: ``'paper'``, or ``'authors'`` for what the authors' published
            code computes; see :data:`PRESETS`.
        class_counts: Labelled pixels of each class in the training set, a
            JSON file written by ``python -m mmseg_margin class_stats``, or
            None to receive them from ``ClassStatsHook``.
        class_weight: See :class:`PixelLoss`, as for the rest.
        **settings: Override the preset: ``tau``, ``upsilon``,
            ``largest_offset``, ``absent_class`` (Algorithm 1, see
            :class:`OffsetSettings`), and ``pos_weight``, ``log_base``,
            ``class_mean`` (Eq. 16, see :class:`MarginSettings`).

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
        class_weight: ClassWeight = None,
        reduction: str = 'mean',
        avg_non_ignore: bool = True,
        global_mean: bool = False,
        loss_weight: float = 1.0,
        backend: str = 'auto',
        loss_name: str = 'loss_margin',
        **settings: Any,
    ) -> None:
        super().__init__(
            class_weight,
            reduction,
            loss_weight,
            loss_name,
            avg_non_ignore,
            global_mean,
            backend,
        )
        self.needs_statistics = True
        self.offset_settings, self.settings = parse_settings(preset, settings)
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
            names = self.file_classes or range(len(class_counts))
            rows = zip(names, class_counts, strict=True)
            absent = ', '.join(str(name) for name, n in rows if not n)
            warnings = [
                large_offset_warning(self.rho_0k.numpy()),
                absent and f'class_counts has no pixel of class {absent}.',
            ]
            for warning in filter(None, warnings):
                print_log(warning, logger='current', level=logging.WARNING)

    def objective(self) -> MarginObjective:
        return MarginObjective(self.rho_0k, self.rho_k0, self.settings)

    def expect_classes(self, num_classes: int) -> None:
        super().expect_classes(num_classes)
        if self.needs_statistics:
            self.rho_0k, self.rho_k0 = self.rho_0k.new_zeros(2, num_classes)

    def set_class_stats(self, stats: ClassStats) -> None:
        if self.has_own_counts:
            self.check_classes(stats.classes)
        else:
            super().set_class_stats(stats)

    def check_classes(self, classes: Sequence[str]) -> None:
        """Raise if the statistics file names the classes differently.

        Another number of classes is that of another head, or is reported when
        the loss is computed.
        """
        if len(classes) != len(self.file_classes):
            return
        for counted, name in zip(self.file_classes, classes, strict=True):
            if counted != name:
                raise SettingError(
                    f'The file of class_counts has {counted!r} where the data '
                    f'set has {name!r}: write it again with python -m '
                    'mmseg_margin class_stats CONFIG --out FILE.'
                )

    def set_class_counts(
        self,
        counts: Sequence[int],
        classes: Sequence[str] | None = None,
        image_pixels: Sequence[int] | None = None,
    ) -> None:
        """Algorithm 1: the offsets from the pixels of each class."""
        super().set_class_counts(counts, classes, image_pixels)
        offsets = self.offset_settings.offsets(counts, classes)
        self.rho_0k, self.rho_k0 = (
            torch.from_numpy(rho).to(self.rho_0k.device, torch.float32)
            for rho in offsets
        )

    def check(self, scores: Tensor) -> None:
        super().check(scores)
        if MessageHub.check_instance_created(self._hub_name):
            hub = MessageHub.get_instance(self._hub_name)
            dataset = hub.runtime_info.get('dataset_meta', {})
            self.check_classes(dataset.get('classes', ()))
        if len(self.rho_0k) != scores.shape[1]:
            raise SettingError(
                f'The head has {scores.shape[1]} classes but the statistics '
                f'{len(self.rho_0k)}: make num_classes and the data set agree.'
            )


def expand_preset(loss: Mapping[str, Any]) -> dict[str, Any]:
    """A loss config with the settings of its preset written out."""
    return {**PRESETS.get(loss.get('preset', ''), {}), **loss}


def parse_settings(
    preset: str, given: Mapping[str, Any]
) -> tuple[OffsetSettings, MarginSettings]:
    """A preset merged with the user's settings."""
    if preset not in PRESETS:
        raise SettingError(
            f'preset={preset!r} is not one of {", ".join(PRESETS)}.'
        )
    offsets, margins = {}, dict(PRESETS[preset])
    for name, value in given.items():
        if name in OFFSET_SETTINGS:
            offsets[name] = value
        elif name in MARGIN_SETTINGS:
            margins[name] = value
        else:
            known = (*OFFSET_SETTINGS, *MARGIN_SETTINGS)
            raise unknown_setting(MarginCalibrationLoss, name, known)
    return OffsetSettings(**offsets), MarginSettings(**margins)
