"""ClassStats: label statistics of a data set, their JSON, class weights."""

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from operator import add
from reprlib import repr as short
from typing import Any

import numpy as np

from mmseg_margin.atomic_write import StrPath, atomic_write_text
from mmseg_margin.errors import MissingFileError, SettingError
from mmseg_margin.functional import MarginOffsets, margin_offsets

JSON_FORMAT = 'mmseg_margin.class_stats/1'
LONGEST_TEXT = 1 << 22
INT64_MAX = 2**63 - 1
PER_CLASS = ('counts', 'images', 'image_pixels')
# Class weights are proportional to this power of 1 / N_k.
POWERS = {'inverse': 1.0, 'sqrt': 0.5}
WEIGHT_METHODS = (*POWERS, 'median', 'effective')


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
            _check_text(f'provenance.{name}', getattr(self, name))
        _check_int('provenance.files', self.files)
        if self.ignore_index is not None:
            _check_int('provenance.ignore_index', self.ignore_index, None)


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
        for name in ('classes', *PER_CLASS):
            values = getattr(self, name)
            if not isinstance(values, list):
                kind = type(values).__name__
                raise SettingError(f'{name} must be a list, got {kind}.')
            if not self.classes:
                raise SettingError(
                    'classes is empty: name at least one class.'
                )
            if len(values) != len(self.classes):
                sizes = f'{len(values)} values for {len(self.classes)}'
                raise SettingError(f'{name} has {sizes} classes.')
            for index, value in enumerate(values):
                if name == 'classes':
                    _check_text(name, value)
                else:
                    _check_int(f'{name}[{index}]', value)
        ((name, times),) = Counter(self.classes).most_common(1)
        if times > 1:
            raise SettingError(f'classes holds {short(name)} more than once.')
        _check_int('ignored', self.ignored)
        # The sum is checked too, because int64 totals are derived from it.
        _check_int('the sum of counts', self.total)

    @property
    def total(self) -> int:
        """``N``, the labelled pixels of all classes."""
        return sum(self.counts)

    @property
    def reduces_zero_label(self) -> bool:
        """Whether label 0 of the files was ignored."""
        return 'reduce_zero_label=True' in self.provenance.mapping

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
        sums: dict[str, Any] = {
            name: list(map(add, getattr(self, name), getattr(other, name)))
            for name in PER_CLASS
        }
        mine, theirs = self.provenance, other.provenance
        both = f'{mine.fingerprint}+{theirs.fingerprint}'
        provenance = Provenance(
            _joined(mine.dataset, theirs.dataset),
            mine.files + theirs.files,
            _joined(mine.mapping, theirs.mapping),
            mine.ignore_index,
            hashlib.sha256(both.encode()).hexdigest(),
            _joined(mine.version, theirs.version),
        )
        ignored = self.ignored + other.ignored
        return replace(self, **sums, ignored=ignored, provenance=provenance)

    def to_dict(self) -> dict[str, Any]:
        """Plain lists, numbers and strings, as written to JSON."""
        return {'format': JSON_FORMAT, **asdict(self)}

    @classmethod
    def from_dict(cls, data: object) -> 'ClassStats':
        """The inverse of :meth:`to_dict`, with validation."""
        values = _check_fields('class statistics', data, cls, 'format')
        if values.pop('format', None) != JSON_FORMAT:
            raise SettingError(
                f'format is not {JSON_FORMAT!r}: write the file again with '
                'python -m mmseg_margin class_stats CONFIG --out FILE.'
            )
        source = values.pop('provenance', {})
        source = _check_fields('provenance', source, Provenance)
        for name in ('classes', *PER_CLASS, 'ignored'):
            if name not in values:
                raise SettingError(f'{name} is missing.')
        stats = cls(**values, provenance=Provenance(**source))
        # No scan finds such counts, and no weights can be derived from them.
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
        """Write an indented JSON file, atomically."""
        atomic_write_text(path, self.dumps())

    @classmethod
    def from_json(cls, path: StrPath) -> 'ClassStats':
        """Read and validate a JSON file."""
        try:
            with open(path, encoding='utf-8') as file:
                return cls.loads(file.read(LONGEST_TEXT + 1))
        except FileNotFoundError:
            raise MissingFileError(
                f'The statistics file {path} does not exist: write it with '
                f'python -m mmseg_margin class_stats CONFIG --out {path}.'
            ) from None
        except ValueError as error:
            raise SettingError(
                f'{path} does not hold class statistics: {error}'
            ) from error


def check_weight_method(name: str, method: str | float) -> None:
    """Raise unless ``method`` is one of :data:`WEIGHT_METHODS` or a power."""
    if isinstance(method, str):
        is_known = method in WEIGHT_METHODS
    else:
        is_known = 0 <= method <= 1
    if not is_known:
        raise SettingError(
            f'{name}={method!r} is not one of {WEIGHT_METHODS}, nor a power '
            'of the inverse frequency from 0 to 1.'
        )


def class_weights(
    counts: Sequence[int],
    method: str | float = 'inverse',
    image_pixels: Sequence[int] | None = None,
) -> list[float]:
    """Class weights from ``N_k``, K of them; an absent class gets 1.

    Args:
        counts: ``N_k``, the labelled pixels of each class.
        method: ``'inverse'``: ``N / (K N_k)``, so that all classes carry the
            same total weight and the average pixel weighs 1. ``'sqrt'`` or a
            number: this power of it, scaled to the same average.
            ``'median'`` (Eigen and Fergus): ``median_j f_j / f_k`` with
            ``f_k`` the fraction of class k in the images that show it.
            ``'effective'`` (Cui et al.): ``1 / E_k``, scaled to a mean of 1,
            with the effective number ``E_k = (1 - beta^N_k) / (1 - beta)``
            and ``beta = 1 - K / N``: classes above the average count
            ``N / K`` saturate, rare ones approach the inverse frequency.
        image_pixels: Labelled pixels of the images that show each class, for
            ``'median'``; without it ``f_k`` is the fraction in all images.
    """
    check_weight_method('method', method)
    all_counts = np.asarray(counts, dtype=np.float64)
    present = all_counts > 0
    pixels = all_counts[present]
    power = POWERS.get(method) if isinstance(method, str) else method
    if power is not None:
        found = pixels**-power
        found *= pixels.sum() / (pixels * found).sum()
    elif method == 'median':
        fraction = pixels / pixels.sum()
        if image_pixels is not None:
            fraction = pixels / np.asarray(image_pixels)[present]
        found = np.median(fraction) / fraction
    else:
        # expm1 and log1p, because beta may round to 1.
        log_beta = np.log1p(-min(len(pixels) / pixels.sum(), 0.5))
        found = -1 / np.expm1(pixels * log_beta)
        found /= found.mean()
    weights = np.ones_like(all_counts)
    weights[present] = found
    return weights.tolist()


def _joined(*texts: str) -> str:
    return ' + '.join(dict.fromkeys(filter(None, texts)))


def _check_int(name: str, value: object, lowest: int | None = 0) -> None:
    """Raise unless it is an int64; JSON's true, 1.0 and NaN are not."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise SettingError(f'{name} must be an integer, got {short(value)}.')
    if lowest is not None and value < lowest:
        raise SettingError(f'{name} must not be negative, got {short(value)}.')
    if abs(value) > INT64_MAX:
        raise SettingError(f'{name} is larger than 2**63 - 1.')


def _check_text(name: str, value: object) -> None:
    if not isinstance(value, str):
        raise SettingError(f'{name} must be text, got {short(value)}.')


def _check_fields(
    name: str, data: object, record: type, *others: str
) -> dict[str, Any]:
    """A copy of a JSON object whose fields are the record's and others."""
    if not isinstance(data, dict):
        kind = type(data).__name__
        raise SettingError(f'{name} must be a JSON object, got {kind}.')
    for key in data.keys() - {x.name for x in fields(record)} - {*others}:
        raise SettingError(f'{name} has an unknown field {short(key)}.')
    return dict(data)
