"""ClassStats: what the annotation files of a data set hold, and its JSON."""

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from mmseg_margin.atomic_write import StrPath, atomic_write_text
from mmseg_margin.errors import SettingError
from mmseg_margin.functional import MarginOffsets, margin_offsets

from .provenance import Provenance
from .validation import check_fields, check_int, check_ints, check_texts
from .weights import class_weights

JSON_FORMAT = 'mmseg_margin.class_stats/1'
LONGEST_TEXT = 1 << 22


@dataclass(frozen=True)
class ClassStats:
    """Label statistics of K classes; every annotation file counted once.

    Args:
        classes: Class names, K of them.
        counts: ``N_k``, the labelled pixels of each class.
        images: How many images show each class.
        image_pixels: Labelled pixels of the images that show each class.
        ignored: Pixels that carry the ignore index.
        provenance: What was counted, and how.
    """

    classes: list[str]
    counts: list[int]
    images: list[int]
    image_pixels: list[int]
    ignored: int = 0
    provenance: Provenance = field(default_factory=Provenance)

    def __post_init__(self) -> None:
        check_texts('classes', self.classes)
        if not self.classes:
            raise SettingError('classes is empty: name at least one class.')
        for name in ('counts', 'images', 'image_pixels'):
            check_ints(name, getattr(self, name), len(self.classes))
        check_int('ignored', self.ignored)
        # The sum is checked too, because int64 totals are derived from it.
        check_int('the sum of counts', sum(self.counts))

    def _check_consistency(self) -> None:
        """What a scan cannot find, and weights cannot be derived from."""
        for index, pixels in enumerate(self.counts):
            shown_in = self.images[index], self.image_pixels[index]
            if pixels and (not shown_in[0] or shown_in[1] < pixels):
                raise SettingError(
                    f'counts[{index}] is {pixels}, which contradicts '
                    f'images[{index}] = {shown_in[0]} and '
                    f'image_pixels[{index}] = {shown_in[1]}.'
                )

    @property
    def total(self) -> int:
        """``N``, the labelled pixels of all classes."""
        return sum(self.counts)

    def margins(
        self,
        tau: float = 10.0,
        upsilon: float = 1.0,
        absent_class: str = 'error',
    ) -> MarginOffsets:
        """The margin-offsets of Algorithm 1, two arrays of shape (K,)."""
        return margin_offsets(
            self.counts, tau, upsilon, absent_class, self.classes
        )

    def class_weights(self, method: str | float = 'inverse') -> list[float]:
        """Class weights, see :func:`mmseg_margin.stats.class_weights`."""
        return class_weights(self.counts, method, self.image_pixels)

    def merge(self, other: 'ClassStats') -> 'ClassStats':
        """The statistics of both data sets together."""
        if self.classes != other.classes:
            raise SettingError(
                'classes differ, so the statistics cannot be merged: '
                f'{self.classes} and {other.classes}.'
            )
        return ClassStats(
            self.classes,
            _add(self.counts, other.counts),
            _add(self.images, other.images),
            _add(self.image_pixels, other.image_pixels),
            self.ignored + other.ignored,
            self.provenance.merge(other.provenance),
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain lists, numbers and strings, as written to JSON."""
        return {'format': JSON_FORMAT, **dataclasses.asdict(self)}

    @classmethod
    def from_dict(cls, data: object) -> 'ClassStats':
        """Validate what :meth:`to_dict` made."""
        values = check_fields('class statistics', data, _FIELDS)
        if values.pop('format', None) != JSON_FORMAT:
            raise SettingError(
                f'format is not {JSON_FORMAT!r}: write the file again with '
                'tools/class_stats.py.'
            )
        provenance = check_fields(
            'provenance', values.pop('provenance', {}), _PROVENANCE_FIELDS
        )
        missing = [name for name in _REQUIRED if name not in values]
        if missing:
            raise SettingError(f'{missing[0]} is missing.')
        stats = cls(**values, provenance=Provenance(**provenance))
        stats._check_consistency()
        return stats

    def to_json(self, path: StrPath) -> None:
        """Write a JSON file that people can read, whole or not at all."""
        atomic_write_text(path, self.dumps())

    def dumps(self) -> str:
        """The text of the JSON file."""
        return json.dumps(self.to_dict(), indent=1) + '\n'

    @classmethod
    def from_json(cls, path: StrPath) -> 'ClassStats':
        """Read and validate a JSON file."""
        try:
            # RecursionError: text that nests ten thousand brackets.
            return cls.from_dict(json.loads(_read_text(path)))
        except (ValueError, RecursionError) as error:
            raise SettingError(
                f'{path} does not hold class statistics: {error}'
            ) from error


def _read_text(path: StrPath) -> str:
    with open(path, encoding='utf-8') as file:
        text = file.read(LONGEST_TEXT + 1)
    if len(text) > LONGEST_TEXT:
        raise SettingError(f'it is longer than {LONGEST_TEXT:,} characters.')
    return text


def _names(dataclass_type: type) -> tuple[str, ...]:
    return tuple(f.name for f in dataclasses.fields(dataclass_type))


_FIELDS = ('format', *_names(ClassStats))
_PROVENANCE_FIELDS = _names(Provenance)
_REQUIRED = ('classes', 'counts', 'images', 'image_pixels', 'ignored')


def _add(left: Sequence[int], right: Sequence[int]) -> list[int]:
    return [a + b for a, b in zip(left, right, strict=True)]
