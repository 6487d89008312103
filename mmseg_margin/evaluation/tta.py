"""Test-time augmentation: the paper's 'flip' and 'flip and multi-scale'."""

import copy
from collections.abc import Sequence

import numpy as np
from mmengine.config import Config
from mmengine.structures import PixelData
from mmseg.models import SegTTAModel
from mmseg.registry import MODELS
from mmseg.structures import SegDataSample

from mmseg_margin.config_tools import leaf_datasets, registered_name
from mmseg_margin.errors import one_of, require

MODES = ('flip', 'ms-flip')
RATIOS = (0.5, 0.75, 1.0, 1.25, 1.5, 1.75)
FLIPS = [
    {'type': 'RandomFlip', 'prob': prob, 'direction': 'horizontal'}
    for prob in (0.0, 1.0)
]


def loads_annotations(step: dict) -> bool:
    """Whether a transform reads the label file."""
    name = registered_name(step)
    return name.startswith('Load') and 'Annotation' in name


def tta_pipeline(test_pipeline: Sequence[dict], mode: str) -> list[dict]:
    """The plain test pipeline with the views of ``mode``.

    Labels are loaded after the flips, because the scores of every view are
    flipped back before they are compared with the labels.
    """
    require('tta', mode, *one_of(MODES))
    load, *steps, pack = copy.deepcopy(list(test_pipeline))
    labels = [[step] for step in steps if loads_annotations(step)]
    views = [[step] for step in steps if not loads_annotations(step)]
    if mode == 'ms-flip':
        views = _multi_scale(views)
    transforms = [*views, copy.deepcopy(FLIPS), *labels, [pack]]
    return [load, {'type': 'TestTimeAug', 'transforms': transforms}]


def _multi_scale(views: list[list[dict]]) -> list[list[dict]]:
    """Replace the resizing step, or prepend one, by one for each ratio."""
    for index, (step,) in enumerate(views):
        if 'Resize' in registered_name(step) and 'scale' in step:
            sizes = np.outer(RATIOS, step['scale']).round().astype(int)
            scaled = [dict(step, scale=tuple(x)) for x in sizes.tolist()]
            return [*views[:index], scaled, *views[index + 1 :]]
    resize = {'type': 'Resize', 'keep_ratio': True}
    return [[dict(resize, scale_factor=ratio) for ratio in RATIOS], *views]


def use_tta(cfg: Config, mode: str) -> None:
    """Edit a config so that it is tested with the views of ``mode``.

    ``'ms-flip'`` uses the config's own ``tta_pipeline`` if there is one, so
    that the results equal those of upstream's ``--tta``.
    """
    own = cfg.get('tta_pipeline') if mode == 'ms-flip' else None
    for dataset in leaf_datasets(cfg.test_dataloader.dataset):
        dataset.pipeline = own or tta_pipeline(dataset.pipeline, mode)
    cfg.model = {'type': 'ScoreTTAModel', 'module': cfg.model}


@MODELS.register_module()
class ScoreTTAModel(SegTTAModel):
    """Predicts as upstream's ``SegTTAModel`` and keeps the merged scores.

    The score of a class is the logarithm of its mean probability over the
    views: the arg max is the prediction, and with one view the margins are
    those of the logits. Scores of a sigmoid head are probabilities.
    """

    def merge_preds(
        self, data_samples_list: Sequence[Sequence[SegDataSample]]
    ) -> list[SegDataSample]:
        """Merge the views of each image."""
        for views in data_samples_list:
            scores = [view.seg_logits.data for view in views]
            if len(scores[0]) > 1:
                total = sum(score.softmax(0) for score in scores)
                prediction = total.argmax(0, keepdim=True)
                merged = (total / len(views)).log()
            else:
                merged = sum(scores) / len(views)
                prediction = merged > self.module.decode_head.threshold
            views[0].pred_sem_seg = PixelData(data=prediction.long())
            views[0].seg_logits = PixelData(data=merged)
        return [views[0] for views in data_samples_list]
