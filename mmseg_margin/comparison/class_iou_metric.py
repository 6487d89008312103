"""ClassIoUMetric: TailIoUMetric with the IoU of each class by itself."""

from collections.abc import Sequence

import torch
from mmseg.registry import METRICS

from mmseg_margin.evaluation import TailIoUMetric


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
        intersect, union = (
            torch.stack([areas[i] for areas in results]).sum(0) for i in (0, 1)
        )
        self.class_iou = [
            100 * float(i) / float(u) if u else None
            for i, u in zip(intersect, union, strict=True)
        ]
        return super().compute_metrics(results)
