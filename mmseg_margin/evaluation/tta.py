"""Test-time augmentation: the paper's 'flip' and 'flip and multi-scale'.

Both are derived from a data set's test pipeline; the views have the size of
the plain test, or multiples of it.
"""

import copy
from collections.abc import Sequence

import torch
from mmengine.config import Config
from mmengine.structures import PixelData
from mmseg.models import SegTTAModel
from mmseg.registry import MODELS
from mmseg.structures import SegDataSample
from torch import Tensor

from mmseg_margin.config_tools import leaf_datasets, registered_name
from mmseg_margin.errors import SettingError

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
    if mode not in MODES:
        raise SettingError(f'tta={mode!r} is not one of {MODES}.')
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
            scaled = [
                dict(step, scale=_scaled(step['scale'], ratio))
                for ratio in RATIOS
            ]
            return [*views[:index], scaled, *views[index + 1 :]]
    resize = {'type': 'Resize', 'keep_ratio': True}
    return [[dict(resize, scale_factor=ratio) for ratio in RATIOS], *views]


def _scaled(scale: int | Sequence[int], ratio: float) -> int | tuple[int, ...]:
    if isinstance(scale, int):
        return round(scale * ratio)
    return tuple(round(side * ratio) for side in scale)


def use_tta(cfg: Config, mode: str) -> None:
    """Edit a config so that it is tested with the views of ``mode``.

    ``'ms-flip'`` uses the config's own ``tta_pipeline`` if there is one, so
    that the results equal those of upstream's ``--tta``.
    """
    own = cfg.get('tta_pipeline') if mode == 'ms-flip' else None
    for dataset in leaf_datasets(cfg.test_dataloader.dataset):
        dataset.pipeline = own or tta_pipeline(dataset.pipeline, mode)
    wrapper = cfg.get('tta_model') or {'type': 'SegTTAModel'}
    if registered_name(wrapper) == 'SegTTAModel':
        wrapper = dict(wrapper, type='ScoreTTAModel')
    cfg.model = dict(wrapper, module=cfg.model)


@MODELS.register_module()
class ScoreTTAModel(SegTTAModel):
    """Predicts as upstream's ``SegTTAModel`` and keeps the merged scores.

    The score of a class is the logarithm of its mean probability over the
    views: the arg max is the prediction, and with one view the margins are
    those of the logits. Views are summed one at a time, so memory does not
    grow with their number. Scores of a sigmoid head are probabilities.

    Example:
        >>> tta_model = dict(type='ScoreTTAModel')
    """

    def test_step(self, data: dict) -> list[SegDataSample]:
        """Predict images whose views are ``data[key][view][image]``."""
        num_views = len(data['inputs'])
        totals = [torch.zeros(())] * len(data['inputs'][0])
        samples: list[SegDataSample] = []
        for view in range(num_views):
            inputs = {key: values[view] for key, values in data.items()}
            found = self.module.test_step(inputs)
            samples = samples or found
            for image, sample in enumerate(found):
                totals[image] = totals[image] + _probabilities(sample)
        for sample, total in zip(samples, totals, strict=True):
            self._set_prediction(sample, total / num_views)
        return samples

    def _set_prediction(self, sample: SegDataSample, mean: Tensor) -> None:
        if len(mean) > 1:
            prediction, scores = mean.argmax(dim=0, keepdim=True), mean.log()
        else:
            threshold = self.module.decode_head.threshold
            prediction, scores = (mean > threshold).to(mean), mean
        sample.pred_sem_seg = PixelData(data=prediction)
        sample.seg_logits = PixelData(data=scores)


def _probabilities(sample: SegDataSample) -> Tensor:
    scores = sample.seg_logits.data
    return scores.softmax(dim=0) if len(scores) > 1 else scores
