"""User-correctable errors; the tools show them as one sentence.

All other errors keep their traceback, because they are defects or come from
code outside this package.
"""

import difflib
import math
from collections.abc import Callable, Collection, Iterable
from typing import Any


class MarginError(Exception):
    """Base of all errors that the user can correct."""


class SettingError(MarginError, ValueError):
    """An invalid argument or setting, with the remedy."""


class DataSetError(MarginError, ValueError):
    """A data set that cannot be trained on, with the reasons."""


class MissingFileError(MarginError, FileNotFoundError):
    """A file or folder that does not exist, with the remedy."""


class MissingPackageError(MarginError, ImportError):
    """An optional package that is not installed, with the pip command."""


# Conditions of :func:`require`, in words and as functions.
POSITIVE = 'be positive', lambda x: x > 0
NOT_NEGATIVE = 'be 0 or more', lambda x: x >= 0


def one_of(choices: Collection) -> tuple[str, Callable[[Any], bool]]:
    """The condition to be one of some values."""
    return f'be one of {tuple(choices)}', choices.__contains__


def require(
    name: str, value: Any, needed: str, holds: Callable[[Any], bool]
) -> None:
    """Raise unless a setting is finite and a condition holds."""
    try:
        finite = not isinstance(value, float) or math.isfinite(value)
        if finite and holds(value):
            return
    except TypeError:  # a text or a list where a number belongs
        pass
    raise SettingError(f'{name}={value!r} must {needed}.')


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """A question to append to an error, or '' if no choice is similar.

    Example:
        >>> did_you_mean('jacard', ['ce', 'jaccard'])
        ' Did you mean jaccard?'
    """
    lower = {choice.lower(): choice for choice in choices}
    found = difflib.get_close_matches(word.lower(), lower, n=1)
    return f' Did you mean {lower[found[0]]}?' if found else ''


def printable(text: str) -> str:
    """A name of a data set without control characters and line breaks."""
    return text if text.isprintable() else ascii(text)[1:-1]


def drawable(text: str) -> str:
    """The same for matplotlib, which renders text in dollars as formulas."""
    return printable(text).replace('$', r'\$')
