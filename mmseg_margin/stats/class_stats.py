"""ClassStats: the label statistics of a data set, and their JSON."""

import json
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any

from mmseg_margin.atomic_write import StrPath, atomic_write_text
from mmseg_margin.errors import MissingFileError, SettingError

from .weighting import class_weights

JSON_FORMAT = 'mmseg_margin.class_stats/1'
COMMAND = 'python -m mmseg_margin class_stats CONFIG'


@dataclass(frozen=True)
class ClassStats:
    """Label statistics of K classes; every annotation file counted once.

    Args:
        classes: Class names, K of them.
        counts: ``N_k``, the labelled pixels of each class.
        images: How many images show each class.
        image_pixels: Labelled pixels of the images that show each class.
        ignored: Pixels that carry the ignore index.
        dataset, files: The data set and its number of label files.
        mapping: From the values in the files to labels, in words.
        ignore_index: The label that was ignored.
        fingerprint: Hash of all that was counted; empty if the counts must
            not serve a later run.
    """

    classes: list[str]
    counts: list[int]
    images: list[int]
    image_pixels: list[int]
    ignored: int = 0
    dataset: str = ''
    files: int = 0
    mapping: str = ''
    ignore_index: int | None = 255
    fingerprint: str = ''

    def __post_init__(self) -> None:
        numbers = self.counts, self.images, self.image_pixels
        if {*map(len, numbers)} != {len(self.classes)}:
            raise SettingError(
                'classes, counts, images and image_pixels differ in length.'
            )
        for value in (*chain(*numbers), self.ignored):
            if not isinstance(value, int) or value < 0:
                raise SettingError(f'{value!r} is not a number of pixels.')

    @property
    def total(self) -> int:
        """``N``, the labelled pixels of all classes."""
        return sum(self.counts)

    @property
    def reduces_zero_label(self) -> bool:
        """Whether label 0 of the files was ignored."""
        return 'reduce_zero_label=True' in self.mapping

    def class_weights(self, method: str | float = 'inverse') -> list[float]:
        """Class weights, see :func:`mmseg_margin.stats.class_weights`."""
        return class_weights(self.counts, method, self.image_pixels)

    def to_dict(self) -> dict[str, Any]:
        """Plain lists, numbers and strings, as written to JSON."""
        return {'format': JSON_FORMAT, **asdict(self)}

    @classmethod
    def from_dict(cls, data: Any) -> 'ClassStats':
        """The inverse of :meth:`to_dict`."""
        if not isinstance(data, dict) or data.get('format') != JSON_FORMAT:
            raise SettingError(f'the format is not {JSON_FORMAT!r}.')
        try:
            return cls(**{k: v for k, v in data.items() if k != 'format'})
        except TypeError as error:
            raise SettingError(f'{error}.') from error

    def to_json(self, path: StrPath) -> None:
        """Write an indented JSON file, atomically."""
        atomic_write_text(path, json.dumps(self.to_dict(), indent=1) + '\n')

    @classmethod
    def from_json(cls, path: StrPath) -> 'ClassStats':
        """Read a JSON file, as ``class_stats CONFIG --out PATH`` writes it."""
        remedy = f'write it with {COMMAND} --out {path}.'
        try:
            with open(path, encoding='utf-8') as file:
                return cls.from_dict(json.load(file))
        except FileNotFoundError:
            raise MissingFileError(
                f'{path} does not exist: {remedy}'
            ) from None
        except (ValueError, RecursionError) as error:
            raise SettingError(
                f'{path} does not hold class statistics ({error}): {remedy}'
            ) from error
