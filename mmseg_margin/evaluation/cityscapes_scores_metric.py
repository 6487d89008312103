"""The four scores of the Cityscapes benchmark on a labelled split."""

import copy
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType

import numpy as np
from mmcv import imfrombytes
from mmengine.evaluator import BaseMetric
from mmengine.fileio import get
from mmseg.registry import METRICS
from numpy.typing import NDArray

from mmseg_margin.errors import MissingPackageError, SettingError

from .submission import find_format

ImageStats = tuple[NDArray, dict[str, dict[str, dict]]]
TRAIN_IDS, LABEL_IDS = '_labelTrainIds.png', '_labelIds.png'


def _load_evaluation() -> ModuleType:
    try:
        return import_module(
            'cityscapesscripts.evaluation.evalPixelLevelSemanticLabeling'
        )
    except ImportError as error:
        raise MissingPackageError(
            f'CityscapesScoresMetric needs cityscapesscripts ({error}): run '
            "pip install 'mmseg_margin[cityscapes]'."
        ) from error


@METRICS.register_module()
class CityscapesScoresMetric(BaseMetric):
    """IoU and iIoU over classes and over categories, in percent.

    Labels, weights and scores are those of cityscapesscripts. It needs the
    ``_labelIds.png`` and ``_instanceIds.png`` files of the data set beside
    the training ids; no prediction is written to disk.

    Example:
        >>> test_evaluator = [
        ...     dict(type='IoUMetric', iou_metrics=['mIoU']),
        ...     dict(type='CityscapesScoresMetric')]
    """

    default_prefix = 'cityscapes'

    def __init__(self, **kwargs) -> None:
        super().__init__(**kwargs)
        self._evaluation = _load_evaluation()
        # A copy, because generateMatrix writes the list of labels into it.
        self._args = copy.copy(self._evaluation.args)
        self._label_ids = np.array(
            find_format({'type': 'CityscapesDataset'}).label_ids
        )

    def process(self, data_batch: dict, data_samples: Sequence[dict]) -> None:
        """Count the pixels and instances of each image."""
        for sample in data_samples:
            train_ids = sample['pred_sem_seg']['data'].squeeze(0).cpu().numpy()
            truth_path = sample['seg_map_path'].replace(TRAIN_IDS, LABEL_IDS)
            instances_path = truth_path.replace('labelIds', 'instanceIds')
            self.results.append(
                self._count(
                    self._label_ids[train_ids],
                    _read(truth_path),
                    _read(instances_path),
                )
            )

    def _count(
        self, predicted: NDArray, truth: NDArray, instances: NDArray
    ) -> ImageStats:
        """What cityscapesscripts' evaluatePair counts, from arrays (H, W).

        That function itself calls ``np.in1d``, which numpy 2.4 removed.
        """
        matrix = self._evaluation.generateMatrix(self._args)
        if truth.max() >= len(matrix):
            raise SettingError(
                f'Label {truth.max()} is not an id of Cityscapes (0 to '
                f'{len(matrix) - 1}): the {LABEL_IDS} files are not its own.'
            )
        pairs = truth.astype(np.int64) * len(matrix) + predicted
        matrix += (
            np.bincount(pairs.ravel(), minlength=matrix.size)
            .reshape(matrix.shape)
            .astype(matrix.dtype)
        )
        stats = self._evaluation.generateInstanceStats(self._args)
        for instance in np.unique(instances[instances > 1000]):
            label = self._evaluation.id2label[int(instance) // 1000]
            if label.ignoreInEval:
                continue
            found = predicted[instances == instance]
            weight = self._args.avgClassSize[label.name] / found.size
            _add(stats['classes'][label.name], found == label.id, weight)
            category = stats['categories'].get(label.category)
            if category is not None:
                members = np.isin(found, category['labelIds'])
                _add(category, members, weight)
        return matrix, stats

    def compute_metrics(self, results: list[ImageStats]) -> dict[str, float]:
        """The four averages, in percent."""
        evaluation, args = self._evaluation, self._args
        matrix = evaluation.generateMatrix(args)
        stats = evaluation.generateInstanceStats(args)
        for image_matrix, image_stats in results:
            matrix += image_matrix
            for level, groups in image_stats.items():
                for group, counts in groups.items():
                    for key in ('tpWeighted', 'fnWeighted'):
                        stats[level][group][key] += counts[key]
        labels = args.evalLabels
        categories = list(evaluation.category2labels)
        scores = {
            'IoU_class': [
                evaluation.getIouScoreForLabel(k, matrix, args) for k in labels
            ],
            'iIoU_class': [
                evaluation.getInstanceIouScoreForLabel(k, matrix, stats, args)
                for k in labels
            ],
            'IoU_category': [
                evaluation.getIouScoreForCategory(c, matrix, args)
                for c in categories
            ],
            'iIoU_category': [
                evaluation.getInstanceIouScoreForCategory(
                    c, matrix, stats, args
                )
                for c in categories
            ],
        }
        return {name: _percent(values) for name, values in scores.items()}


def _read(path: str) -> NDArray:
    return imfrombytes(get(path), flag='unchanged', backend='pillow')


def _add(counts: dict[str, float], correct: NDArray, weight: float) -> None:
    counts['tpWeighted'] += weight * np.count_nonzero(correct)
    counts['fnWeighted'] += weight * np.count_nonzero(~correct)


def _percent(scores: list[float]) -> float:
    valid = [score for score in scores if not np.isnan(score)]
    return 100 * float(np.mean(valid)) if valid else float('nan')
