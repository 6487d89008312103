"""ClassStats: what the annotation files of a data set hold, and its JSON."""

import hashlib
import json
from collections import Counter
from dataclasses import asdict, dataclass, field, fields
from operator import add
from reprlib import repr as short
from typing import Any

from mmseg_margin.atomic_write import StrPath, atomic_write_text
from mmseg_margin.errors import MissingFileError, SettingError
from mmseg_margin.functional import MarginOffsets, margin_offsets

from .weights import class_weights

JSON_FORMAT = 'mmseg_margin.class_stats/1'
LONGEST_TEXT = 1 << 22
INT64_MAX = 2**63 - 1
PER_CLASS = ('counts', 'images', 'image_pixels')


@dataclass(frozen=True)
class Provenance:
    """Where the counts come from; empty for counts given by hand."""

    dataset: str = ''
    files: int = 0
    mapping: str = ''
    ignore_index: int | None = 255
    fingerprint: str = ''
    version: str = ''

    def __post_init__(self) -> None:
        for name in ('dataset', 'mapping', 'fingerprint', 'version'):
            _check_texts(f'provenance.{name}', [getattr(self, name)])
        _check_int('provenance.files', self.files)
        if self.ignore_index is not None:
            _check_int('provenance.ignore_index', self.ignore_index, None)

    def merge(self, other: 'Provenance') -> 'Provenance':
        """Where the sum of both statistics comes from."""
        both = f'{self.fingerprint}+{other.fingerprint}'
        return Provenance(
            _joined(self.dataset, other.dataset),
            self.files + other.files,
            _joined(self.mapping, other.mapping),
            self.ignore_index,
            hashlib.sha256(both.encode()).hexdigest(),
            _joined(self.version, other.version),
        )


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
        _check_texts('classes', self.classes)
        if not self.classes:
            raise SettingError('classes is empty: name at least one class.')
        for name in PER_CLASS:
            _check_ints(name, getattr(self, name), len(self.classes))
        _check_int('ignored', self.ignored)
        # The sum is checked too, because int64 totals are derived from it.
        _check_int('the sum of counts', self.total)

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
            list(map(add, self.counts, other.counts)),
            list(map(add, self.images, other.images)),
            list(map(add, self.image_pixels, other.image_pixels)),
            self.ignored + other.ignored,
            self.provenance.merge(other.provenance),
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain lists, numbers and strings, as written to JSON."""
        return {'format': JSON_FORMAT, **asdict(self)}

    @classmethod
    def from_dict(cls, data: object) -> 'ClassStats':
        """Validate what :meth:`to_dict` made."""
        values = _check_fields('class statistics', data, cls, 'format')
        if values.pop('format', None) != JSON_FORMAT:
            raise SettingError(
                f'format is not {JSON_FORMAT!r}: write the file again with '
                'python -m mmseg_margin class_stats --out.'
            )
        source = values.pop('provenance', {})
        source = _check_fields('provenance', source, Provenance)
        for name in ('classes', *PER_CLASS, 'ignored'):
            if name not in values:
                raise SettingError(f'{name} is missing.')
        stats = cls(**values, provenance=Provenance(**source))
        # What a scan cannot find, and weights cannot be derived from.
        rows = zip(stats.counts, stats.images, stats.image_pixels, strict=True)
        for index, (count, images, pixels) in enumerate(rows):
            if count and (not images or pixels < count):
                raise SettingError(
                    f'counts[{index}] is {count}, which contradicts '
                    f'images[{index}] = {images} and '
                    f'image_pixels[{index}] = {pixels}.'
                )
        return stats

    def dumps(self) -> str:
        """The text of the JSON file."""
        return json.dumps(self.to_dict(), indent=1) + '\n'

    @classmethod
    def loads(cls, text: str) -> 'ClassStats':
        """Read and validate the text of a JSON file."""
        if len(text) > LONGEST_TEXT:
            raise SettingError(
                f'it is longer than {LONGEST_TEXT:,} characters.'
            )
        try:
            return cls.from_dict(json.loads(text))
        except RecursionError:
            raise SettingError('it nests thousands of brackets.') from None

    def to_json(self, path: StrPath) -> None:
        """Write a JSON file that people can read, whole or not at all."""
        atomic_write_text(path, self.dumps())

    @classmethod
    def from_json(cls, path: StrPath) -> 'ClassStats':
        """Read and validate a JSON file."""
        try:
            with open(path, encoding='utf-8') as file:
                return cls.loads(file.read(LONGEST_TEXT + 1))
        except FileNotFoundError:
            raise MissingFileError(
                f'The statistics {path} are not there: write them with '
                'python -m mmseg_margin class_stats --out.'
            ) from None
        except ValueError as error:
            raise SettingError(
                f'{path} does not hold class statistics: {error}'
            ) from error


def _joined(*texts: str) -> str:
    return ' + '.join(dict.fromkeys(filter(None, texts)))


def _check_int(name: str, value: object, lowest: int | None = 0) -> None:
    """An integer of int64 range; JSON's true, 1.0 and NaN are not."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise SettingError(f'{name} must be an integer, got {short(value)}.')
    if lowest is not None and value < lowest:
        raise SettingError(f'{name} must not be negative, got {short(value)}.')
    if abs(value) > INT64_MAX:
        raise SettingError(f'{name} is larger than 2**63 - 1.')


def _check_ints(name: str, values: Any, length: int) -> None:
    _check_list(name, values)
    if len(values) != length:
        raise SettingError(
            f'{name} has {len(values)} values for {length} classes.'
        )
    for index, value in enumerate(values):
        _check_int(f'{name}[{index}]', value)


def _check_texts(name: str, values: Any) -> None:
    """A list of different strings."""
    _check_list(name, values)
    for value in values:
        if not isinstance(value, str):
            raise SettingError(f'{name} must be text, got {short(value)}.')
    for value, times in Counter(values).most_common(1):
        if times > 1:
            raise SettingError(f'{name} holds {short(value)} more than once.')


def _check_list(name: str, values: object) -> None:
    if not isinstance(values, list):
        kind = type(values).__name__
        raise SettingError(f'{name} must be a list, got {kind}.')


def _check_fields(
    name: str, data: object, record: type, *others: str
) -> dict[str, Any]:
    """A JSON object with no field but the record's and others, copied."""
    if not isinstance(data, dict):
        kind = type(data).__name__
        raise SettingError(f'{name} must be a JSON object, got {kind}.')
    for key in data.keys() - {x.name for x in fields(record)} - {*others}:
        raise SettingError(f'{name} has an unknown field {short(key)}.')
    return dict(data)
