"""Checks of untrusted JSON values: one sentence that names the field."""

from collections import Counter
from collections.abc import Sequence
from reprlib import repr as short
from typing import Any

from mmseg_margin.errors import SettingError

INT64_MAX = 2**63 - 1


def check_int(name: str, value: object, minimum: int | None = 0) -> None:
    """An integer of int64 range; JSON's true, 1.0 and NaN are not."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise SettingError(f'{name} must be an integer, got {short(value)}.')
    if minimum is not None and value < minimum:
        raise SettingError(f'{name} must not be negative, got {short(value)}.')
    if abs(value) > INT64_MAX:
        raise SettingError(f'{name} is larger than 2**63 - 1.')


def check_ints(name: str, values: object, length: int) -> None:
    """A list of ``length`` integers that are not negative."""
    if not isinstance(values, list):
        raise SettingError(f'{name} must be a list, got {_type(values)}.')
    if len(values) != length:
        raise SettingError(
            f'{name} has {len(values)} values for {length} classes.'
        )
    for index, value in enumerate(values):
        check_int(f'{name}[{index}]', value)


def check_texts(name: str, values: object) -> None:
    """A list of different strings."""
    if not isinstance(values, list):
        raise SettingError(f'{name} must be a list, got {_type(values)}.')
    for value in values:
        if not isinstance(value, str):
            raise SettingError(f'{name} must be text, got {short(value)}.')
    value, times = Counter(values).most_common(1)[0] if values else ('', 0)
    if times > 1:
        raise SettingError(f'{name} holds {short(value)} more than once.')


def check_fields(
    name: str, data: object, allowed: Sequence[str]
) -> dict[str, Any]:
    """A JSON object with no field but the ``allowed`` ones, copied."""
    if not isinstance(data, dict):
        raise SettingError(f'{name} must be a JSON object, got {_type(data)}.')
    unknown = [key for key in data if key not in allowed]
    if unknown:
        raise SettingError(f'{name} has an unknown field {short(unknown[0])}.')
    return dict(data)


def _type(value: object) -> str:
    return type(value).__name__
