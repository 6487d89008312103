"""ClassStats: what the annotation files of a data set hold, and its JSON."""

import dataclasses
import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

from mmseg_margin.atomic_write import StrPath, atomic_write_text
from mmseg_margin.errors import MissingFileError, SettingError
from mmseg_margin.functional import MarginOffsets, margin_offsets

from .json_fields import check_fields, check_int, check_ints, check_texts
from .weights import class_weights

JSON_FORMAT = 'mmseg_margin.class_stats/1'
LONGEST_TEXT = 1 << 22


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
            check_texts(f'provenance.{name}', [getattr(self, name)])
        check_int('provenance.files', self.files)
        if self.ignore_index is not None:
            check_int('provenance.ignore_index', self.ignore_index, None)

    def merge(self, other: 'Provenance') -> 'Provenance':
        """Where the sum of both statistics comes from."""

        def joined(name: str) -> str:
            values = (getattr(self, name), getattr(other, name))
            return ' + '.join(dict.fromkeys(filter(None, values)))

        both = f'{self.fingerprint}+{other.fingerprint}'
        return Provenance(
            dataset=joined('dataset'),
            files=self.files + other.files,
            mapping=joined('mapping'),
            ignore_index=self.ignore_index,
            fingerprint=hashlib.sha256(both.encode()).hexdigest(),
            version=joined('version'),
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
        check_texts('classes', self.classes)
        if not self.classes:
            raise SettingError('classes is empty: name at least one class.')
        for name in PER_CLASS:
            check_ints(name, getattr(self, name), len(self.classes))
        check_int('ignored', self.ignored)
        # The sum is checked too, because int64 totals are derived from it.
        check_int('the sum of counts', sum(self.counts))

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
        pairs = {
            name: zip(getattr(self, name), getattr(other, name), strict=True)
            for name in PER_CLASS
        }
        return ClassStats(
            self.classes,
            **{name: [a + b for a, b in x] for name, x in pairs.items()},
            ignored=self.ignored + other.ignored,
            provenance=self.provenance.merge(other.provenance),
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain lists, numbers and strings, as written to JSON."""
        return {'format': JSON_FORMAT, **dataclasses.asdict(self)}

    @classmethod
    def from_dict(cls, data: object) -> 'ClassStats':
        """Validate what :meth:`to_dict` made."""
        values = check_fields('class statistics', data, ('format', *_FIELDS))
        if values.pop('format', None) != JSON_FORMAT:
            raise SettingError(
                f'format is not {JSON_FORMAT!r}: write the file again with '
                'tools/class_stats.py.'
            )
        source = check_fields(
            'provenance', values.pop('provenance', {}), _PROVENANCE_FIELDS
        )
        for name in _FIELDS[:-1]:
            if name not in values:
                raise SettingError(f'{name} is missing.')
        stats = cls(**values, provenance=Provenance(**source))
        stats._check_consistency()
        return stats

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
                'tools/class_stats.py --out.'
            ) from None
        except ValueError as error:
            raise SettingError(
                f'{path} does not hold class statistics: {error}'
            ) from error


PER_CLASS = ('counts', 'images', 'image_pixels')
_FIELDS = tuple(f.name for f in dataclasses.fields(ClassStats))
_PROVENANCE_FIELDS = tuple(f.name for f in dataclasses.fields(Provenance))
