"""The four scores of the Cityscapes benchmark on a labelled split."""

import copy
from collections.abc import Sequence
from importlib import import_module

import numpy as np
from mmcv import imfrombytes
from mmengine.evaluator import BaseMetric
from mmengine.fileio import get
from mmseg.datasets import CityscapesDataset
from mmseg.registry import METRICS
from numpy.typing import NDArray

from mmseg_margin.errors import SettingError

MODULE = 'cityscapesscripts.evaluation.evalPixelLevelSemanticLabeling'
TRAIN_IDS, LABEL_IDS = '_labelTrainIds.png', '_labelIds.png'
INSTANCE_IDS = '_instanceIds.png'


@METRICS.register_module()
class CityscapesScoresMetric(BaseMetric):
    """IoU and iIoU over classes and over categories, in percent.

    Labels, weights and scores are those of cityscapesscripts (``pip install
    'mmseg_margin[cityscapes]'``), which knows the classes by their names. The
    metric needs the ``_labelIds.png`` and
    ``_instanceIds.png`` files of the data set beside the training ids; no
    prediction is written to disk.

    Example:
        >>> test_evaluator = [
        ...     dict(type='IoUMetric', iou_metrics=['mIoU']),
        ...     dict(type='CityscapesScoresMetric')]
    """

    default_prefix = 'cityscapes'

    def __init__(self, **kwargs) -> None:
        super().__init__(**kwargs)
        self._official = import_module(MODULE)
        # A copy, because generateMatrix writes the list of labels into it.
        self._args = copy.copy(self._official.args)

    def label_ids(self, classes: Sequence[str]) -> NDArray:
        """The id that Cityscapes gives to each class, looked up by name."""
        ids = {label.name: label.id for label in self._official.labels}
        unknown = [name for name in classes if ids.get(name, -1) < 0]
        if unknown:
            raise SettingError(
                f'Cityscapes has no class {unknown[0]!r}: use its names in '
                'metainfo.classes, or leave CityscapesScoresMetric out.'
            )
        return np.array([ids[name] for name in classes])

    def process(self, data_batch: dict, data_samples: Sequence[dict]) -> None:
        """Count what cityscapesscripts' evaluatePair counts.

        That function itself calls ``np.in1d``, which numpy 2.4 removed.
        """
        meta = self.dataset_meta or CityscapesDataset.METAINFO
        label_ids = self.label_ids(meta['classes'])
        for sample in data_samples:
            indices = sample['pred_sem_seg']['data'].squeeze(0).cpu().numpy()
            predicted = label_ids[indices]
            path = sample['seg_map_path'].replace(TRAIN_IDS, LABEL_IDS)
            matrix = self._count_pixels(predicted, _read(path))
            instances = _read(path.replace(LABEL_IDS, INSTANCE_IDS))
            stats = self._count_instances(predicted, instances)
            self.results.append((matrix, stats))

    def _count_pixels(self, predicted: NDArray, truth: NDArray) -> NDArray:
        matrix = self._official.generateMatrix(self._args)
        pairs = truth.astype(np.int64) * len(matrix) + predicted
        counts = np.bincount(pairs.ravel(), minlength=matrix.size)
        return counts.reshape(matrix.shape).astype(matrix.dtype)

    def _count_instances(self, predicted: NDArray, instances: NDArray) -> dict:
        stats = self._official.generateInstanceStats(self._args)
        for instance in np.unique(instances[instances > 1000]):
            label = self._official.id2label[int(instance) // 1000]
            if label.ignoreInEval:
                continue
            found = predicted[instances == instance]
            weight = self._args.avgClassSize[label.name] / found.size
            groups = [(stats['classes'][label.name], [label.id])]
            category = stats['categories'].get(label.category)
            if category is not None:
                groups.append((category, category['labelIds']))
            for counts, ids in groups:
                hits = np.count_nonzero(np.isin(found, ids))
                counts['tpWeighted'] += weight * hits
                counts['fnWeighted'] += weight * (found.size - hits)
        return stats

    def compute_metrics(self, results: list[tuple]) -> dict[str, float]:
        """The four means, in percent."""
        official, args = self._official, self._args
        matrix = sum(image_matrix for image_matrix, _ in results)
        stats = official.generateInstanceStats(args)
        for _, image_stats in results:
            for level, groups in image_stats.items():
                for group, counts in groups.items():
                    for key in ('tpWeighted', 'fnWeighted'):
                        stats[level][group][key] += counts[key]
        means = {}
        for name, kind, members in (
            ('class', 'Label', args.evalLabels),
            ('category', 'Category', official.category2labels),
        ):
            iou = getattr(official, f'getIouScoreFor{kind}')
            iiou = getattr(official, f'getInstanceIouScoreFor{kind}')
            scores = {k: iou(k, matrix, args) for k in members}
            weighted = {k: iiou(k, matrix, stats, args) for k in members}
            average = official.getScoreAverage
            means[f'IoU_{name}'] = 100 * average(scores, args)
            means[f'iIoU_{name}'] = 100 * average(weighted, args)
        return means


def _read(path: str) -> NDArray:
    return imfrombytes(get(path), flag='unchanged', backend='pillow')
