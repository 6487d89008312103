"""The metric that writes label images instead of measuring anything."""

from collections.abc import Sequence

from mmengine.evaluator import BaseMetric
from mmseg.registry import METRICS

from .folder import SubmissionFolder
from .formats import SubmissionError, find_format


@METRICS.register_module()
class SubmissionMetric(BaseMetric):
    """Writes every prediction in the format of the data set's server.

    Nothing is ever removed. ``tools/test.py --format-only`` sets it up,
    checks the result and packs it.

    Args:
        output_dir: Folder of the submission.
        dataset: Registered name of the data set, which decides the format.

    Example:
        >>> test_evaluator = dict(
        ...     type='SubmissionMetric',
        ...     output_dir='work_dirs/submission',
        ...     dataset='CityscapesDataset')
    """

    default_prefix = 'submission'

    def __init__(self, output_dir: str, dataset: str, **kwargs) -> None:
        super().__init__(**kwargs)
        self.folder = SubmissionFolder(
            output_dir, find_format({'type': dataset})
        )

    def process(self, data_batch: dict, data_samples: Sequence[dict]) -> None:
        """Write the predictions of a batch."""
        meta = self.dataset_meta or {}
        expected = len(self.folder.form.label_ids)
        if len(meta.get('classes', ())) != expected:
            raise SubmissionError(
                f'{self.folder.form.dataset} is submitted with its {expected} '
                f'classes, but the config has {len(meta.get("classes", ()))}: '
                'take metainfo out of the data set.'
            )
        for sample in data_samples:
            prediction = sample['pred_sem_seg']['data'].squeeze(0)
            self.folder.write(
                sample['img_path'], prediction.cpu().numpy(), meta['palette']
            )
            self.results.append(sample['img_path'])

    def compute_metrics(self, results: list) -> dict[str, float]:
        """Number of label images written in this run."""
        return {'written': len(set(results))}
