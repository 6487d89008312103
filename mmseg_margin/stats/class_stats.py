"""ClassStats: label statistics, class weights from them, and their storage."""

import json
import logging
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from mmseg_margin.atomic_write import StrPath, atomic_write_text
from mmseg_margin.errors import SettingError, one_of, require

logger = logging.getLogger('mmseg_margin')

JSON_FORMAT = 'mmseg_margin.class_stats/2'
META_KEY = 'class_stats'  # in the checkpoint
WEIGHT_METHODS = ('inverse', 'sqrt', 'median')


def class_weights(
    counts: Sequence[int],
    method: str = 'inverse',
    image_pixels: Sequence[int] | None = None,
) -> list[float]:
    """Class weights from ``N_k``, K of them; an absent class gets 1.

    Args:
        counts: ``N_k``, the labelled pixels of each class.
        method: ``'inverse'``: ``N / (K N_k)``, so that all classes carry the
            same total weight and the average pixel weighs 1. ``'sqrt'``: its
            square root, scaled to the same average. ``'median'`` (Eigen and
            Fergus): ``median_j f_j / f_k`` with ``f_k`` the fraction of class
            k in the images that show it.
        image_pixels: Labelled pixels of the images that show each class, for
            ``'median'``; without it ``f_k`` is the fraction in all images.
    """
    require('method', method, *one_of(WEIGHT_METHODS))
    all_counts = np.asarray(counts, dtype=np.float64)
    present = all_counts > 0
    pixels = all_counts[present]
    if method == 'median':
        fraction = pixels / pixels.sum()
        if image_pixels is not None:
            fraction = pixels / np.asarray(image_pixels)[present]
        found = np.median(fraction) / fraction
    else:
        found = pixels ** (-1.0 if method == 'inverse' else -0.5)
        found *= pixels.sum() / (pixels * found).sum()
    weights = np.ones_like(all_counts)
    weights[present] = found
    return weights.tolist()


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

    def class_weights(self, method: str = 'inverse') -> list[float]:
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
        try:
            return cls.from_dict(json.loads(Path(path).read_text('utf-8')))
        except (OSError, ValueError, RecursionError) as error:
            raise SettingError(
                f'{path} does not hold class statistics ({error}): write it '
                f'with python -m mmseg_margin class_stats CONFIG --out {path}.'
            ) from error


class StatsCache:
    """A folder of ``<fingerprint>.json``; never a reason to fail.

    What cannot be read is counted again, what cannot be written is not kept.

    Args:
        folder: None for ``~/.cache/mmseg_margin/class_stats``.
    """

    def __init__(self, folder: StrPath | None = None) -> None:
        base = os.environ.get('XDG_CACHE_HOME') or '~/.cache'
        default = Path(base, 'mmseg_margin', 'class_stats')
        self.folder = Path(os.path.expanduser(folder or default))

    def load(self, key: str) -> ClassStats | None:
        """The statistics of a fingerprint, if they exist and are intact."""
        try:
            stats = ClassStats.from_json(self.folder / f'{key}.json')
        except SettingError:
            return None
        return stats if stats.fingerprint == key else None

    def store(self, stats: ClassStats) -> None:
        """Write atomically, under the fingerprint of the statistics."""
        try:
            if self.folder.parts[0] == '~':
                raise OSError('there is no home folder, set cache_dir')
            self.folder.mkdir(parents=True, exist_ok=True)
            stats.to_json(self.folder / f'{stats.fingerprint}.json')
        except OSError as error:
            logger.warning(
                f'The label statistics are not kept in {self.folder}, so the '
                f'next run counts again: {error}.'
            )


def stats_of_checkpoint(meta: dict[str, Any]) -> ClassStats | None:
    """The statistics that ``ClassStatsHook`` saved, unless damaged."""
    try:
        return ClassStats.from_dict(meta.get(META_KEY))
    except SettingError:
        return None
