"""ClassIoUMetric: TailIoUMetric with the IoU of each class by itself."""

import math
from collections.abc import Sequence

from mmseg.registry import METRICS

from mmseg_margin.evaluation.tail_iou_metric import TailIoUMetric, class_iou


@METRICS.register_module()
class ClassIoUMetric(TailIoUMetric):
    """Keeps in ``class_iou`` what upstream only prints as a table."""

    def process(self, data_batch: dict, data_samples: Sequence[dict]) -> None:
        """Predictions stay class indices; for a server they start at 1."""
        super().process(
            data_batch,
            [
                {**sample, 'reduce_zero_label': False}
                for sample in data_samples
            ],
        )

    def compute_metrics(self, results: list) -> dict[str, float]:
        self.class_iou = [
            None if math.isnan(iou) else iou
            for iou in class_iou(results).tolist()
        ]
        return super().compute_metrics(results)
