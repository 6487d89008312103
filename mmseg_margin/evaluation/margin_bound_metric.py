"""The IoU lower bound of the paper on any labelled split."""

from collections.abc import Sequence

import numpy as np
import torch
from mmengine.evaluator import BaseMetric
from mmseg.registry import METRICS
from torch import Tensor

from mmseg_margin.errors import SettingError
from mmseg_margin.functional import OffsetSettings, iou_lower_bound
from mmseg_margin.functional.reference import rho_margin_loss, top_two

from .tail_iou_metric import check_counts, class_iou


@METRICS.register_module()
class MarginBoundMetric(BaseMetric):
    """``mIoU`` and its lower bound (Eq. 11), ``mIoU_bound``, in percent.

    The margin-offsets have the settings of the loss; the label
    ``ignore_index`` is not evaluated.
    """

    default_prefix = 'margin'

    def __init__(
        self,
        class_counts: Sequence[int] | None = None,
        tau: float | None = None,
        upsilon: float = 1.0,
        largest_offset: float | None = None,
        ignore_index: int = 255,
        **kwargs,
    ) -> None:
        super().__init__(**kwargs)
        self.class_counts = class_counts
        self.offset_settings = OffsetSettings(tau, upsilon, largest_offset)
        self.ignore_index = ignore_index

    def process(self, data_batch: dict, data_samples: Sequence[dict]) -> None:
        """Keep the sums of each image, (5, K)."""
        names = (self.dataset_meta or {})['classes']
        K, counts = len(names), check_counts(self.class_counts, names)
        rho = self.offset_settings.offsets(counts, names)
        for sample in data_samples:
            scores = sample['seg_logits']['data'].float()
            labels = sample['gt_sem_seg']['data'].squeeze(0).to(scores.device)
            kept = labels != self.ignore_index
            if len(scores) != K or (labels[kept] >= K).any():
                raise SettingError(
                    f'MarginBoundMetric needs {K} scores, so no binary head, '
                    f'and labels below {K}: check ignore_index.'
                )
            offsets = (torch.tensor(each).to(scores) for each in rho)
            sums = margin_sums(scores[:, kept], labels[kept], *offsets)
            self.results.append(sums.cpu())

    def compute_metrics(self, results: list[Tensor]) -> dict[str, float]:
        iou, sums = class_iou(results), torch.stack(results).sum(0)
        bound = 100 * iou_lower_bound(*sums[2:]).numpy()
        bound[np.isnan(iou)] = np.nan
        return {'mIoU': np.nanmean(iou), 'mIoU_bound': np.nanmean(bound)}


def margin_sums(
    scores: Tensor, labels: Tensor, rho_0k: Tensor, rho_k0: Tensor
) -> Tensor:
    """Sums over pixels: intersection, union, labels, both losses; (5, K)."""
    tiny = torch.finfo(scores.dtype).tiny  # in place of an offset of 0
    predicted, (top, second) = scores.argmax(0), top_two(scores)
    sums = scores.new_zeros((5, len(scores)), dtype=torch.float64)
    # One class at a time needs memory for P pixels, not for P x K.
    for k, score in enumerate(scores):
        is_label, is_predicted = labels == k, predicted == k
        margin = score - torch.where(score == top, second, top)  # Eq. 8
        loss_k0 = rho_margin_loss(margin, rho_k0[k].clamp_min(tiny))
        loss_0k = rho_margin_loss(-margin, rho_0k[k].clamp_min(tiny))
        sums[0, k] = (is_label & is_predicted).sum()
        sums[1, k] = (is_label | is_predicted).sum()
        sums[2, k] = is_label.sum()
        sums[3, k] = loss_k0[is_label].sum(dtype=torch.float64)
        sums[4, k] = loss_0k[~is_label].sum(dtype=torch.float64)
    return sums
