"""The settings of MarginCalibrationLoss that have a name, and only here."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, NamedTuple

from mmseg_margin.errors import SettingError
from mmseg_margin.functional import LossSettings, OffsetSettings

PRESETS: dict[str, dict[str, Any]] = {
    # Eq. 16 and Algorithm 1 with the paper's defaults.
    'paper': {},
    # What the authors' published code computes.
    'authors': {
        'pos_weight': 'num_classes',
        'log_base': 'e',
        'class_mean': True,
    },
    # What our own measurements advise, see docs/results.
    'recommended': {
        'form': 'jaccard',
        'log_base': 'e',
        'memory': 0.0,
        'batch_share': 1.0,
        'log_share': 1.0,
        'log_delay': 2.0,
        'largest_offset': 0.0,
        # Nothing is learnt for such a class, and nothing is lost.
        'absent_class': 'zero',
    },
}
OF_LOSS = tuple(field.name for field in fields(LossSettings))
OF_OFFSETS = tuple(field.name for field in fields(OffsetSettings))
KNOWN = (*OF_LOSS, *OF_OFFSETS, 'class_weight')
# Two ways to say the same: giving one replaces the preset's other.
SCALES = {'tau', 'largest_offset'}


class Settings(NamedTuple):
    """All that a preset and what was said beside it come to."""

    loss: LossSettings
    offsets: OffsetSettings
    class_weight: Any


def settings_of(preset: str, given: Mapping[str, Any]) -> Settings:
    """The settings of a preset, with what is given in place of its own."""
    if preset not in PRESETS:
        raise SettingError(
            f'preset={preset!r} is not one of {", ".join(PRESETS)}.'
        )
    unknown = [name for name in given if name not in KNOWN]
    if unknown:
        raise SettingError(
            f'MarginCalibrationLoss has no setting {unknown[0]!r}: it has '
            f'preset, {", ".join(KNOWN)}.'
        )
    settings = written_out({**given, 'preset': preset})
    return Settings(
        LossSettings(**_only(OF_LOSS, settings)),
        OffsetSettings(**_only(OF_OFFSETS, settings)),
        settings.get('class_weight'),
    )


def written_out(loss: Mapping[str, Any]) -> dict[str, Any]:
    """A loss config with all that its preset means."""
    settings = PRESETS.get(loss.get('preset', ''), {})
    if SCALES & loss.keys():
        settings = {k: v for k, v in settings.items() if k not in SCALES}
    return {**settings, **loss}


def settings_of_config(loss: Mapping[str, Any]) -> Settings:
    """The same of a loss config, whatever else it says."""
    given = {name: loss[name] for name in KNOWN if name in loss}
    return settings_of(loss.get('preset', 'paper'), given)


def _only(names: tuple[str, ...], settings: dict[str, Any]) -> dict[str, Any]:
    return {name: settings[name] for name in names if name in settings}
