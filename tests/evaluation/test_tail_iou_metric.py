"""Groups of classes beside upstream's metrics, and their class counts."""

import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.runner import Runner
from mmseg.datasets import CityscapesDataset
from mmseg.evaluation import IoUMetric
from mmseg.registry import METRICS
from PIL import Image

from mmseg_margin.errors import SettingError
from mmseg_margin.evaluation import PerClassIoUMetric, TailIoUMetric
from mmseg_margin.stats import ClassStats
from mmseg_margin.tooling.launch import add_metrics
from tests.evaluation.fakes import load, write_checkpoint

CLASSES = ('background', 'b', 'c', 'd', 'e', 'absent')
COUNTS = [10, 500, 0, 70, 30, 0]


def evaluate(metric):
    """Two random images with five classes; the IoU of each in percent."""
    generator = torch.Generator().manual_seed(0)
    metric.dataset_meta = {'classes': CLASSES}
    for _ in range(2):
        label = torch.randint(0, 5, (1, 8, 8), generator=generator)
        noise = torch.randint(0, 5, (1, 8, 8), generator=generator)
        keep = torch.rand((1, 8, 8), generator=generator) < 0.6
        found, truth = (
            {'data': torch.where(keep, label, noise)},
            {'data': label},
        )
        metric.process({}, [{'pred_sem_seg': found, 'gt_sem_seg': truth}])
    intersect, union = (sum(x[i] for x in metric.results) for i in (0, 1))
    return metric.evaluate(2), (100 * intersect / union).numpy()


def test_adds_groups_and_classes_to_upstreams_metrics():
    settings = {'class_counts': COUNTS, 'exclude': ['background']}
    ours, iou = evaluate(TailIoUMetric(**settings))
    assert ours.items() > evaluate(IoUMetric())[0].items()
    # Thirds are ranked by training pixels.
    groups = {'head': [1, 3], 'middle': [4, 0], 'tail': [2]}
    groups['foreground'] = [1, 2, 3, 4]
    for group, members in groups.items():
        mean = pytest.approx(iou[members].mean(), abs=0.006)
        assert ours[f'mIoU_{group}'] == mean
    for name, value in zip(CLASSES[:5], iou.tolist(), strict=False):
        assert ours[f'IoU/{name}'] == pytest.approx(value, abs=0.006)
    assert 'IoU/absent' not in ours
    for metric in (PerClassIoUMetric(exclude='void'), TailIoUMetric()):
        with pytest.raises(SettingError, match='class'):
            evaluate(metric)


def test_the_foreground_with_a_flag():
    cfg = Config({'test_evaluator': {'type': 'IoUMetric'}})
    add_metrics(cfg, ['foreground'], 'test')
    found, _ = evaluate(METRICS.build(cfg.test_evaluator[0]))
    expected, _ = evaluate(PerClassIoUMetric(exclude=['background']))
    assert found == expected


@pytest.mark.parametrize('origin', ['labels', 'checkpoint'])
def test_counts_of_the_checkpoint_or_the_labels(
    cityscapes, config, checkpoint, tmp_path, origin
):
    expected = np.zeros(256, int)
    for path in cityscapes.glob('gtFine/train/*/*_labelTrainIds.png'):
        expected += Image.open(path).histogram()
    expected = expected[:19].tolist()
    if origin == 'checkpoint':
        expected = [*range(1, 20)]
        names = list(CityscapesDataset.METAINFO['classes'])
        stats = ClassStats(names, expected, [1] * 19, [400] * 19)
        meta = {'class_stats': stats.to_dict()}
        checkpoint = write_checkpoint(config, tmp_path / 'model.pth', meta)
    cfg = load(config, checkpoint)
    kinds = 'TailIoUMetric', 'MarginBoundMetric'
    cfg.test_evaluator = [{'type': kind} for kind in kinds]
    cache = str(tmp_path / 'cache')
    cfg.custom_hooks = [{'type': 'TrainingCountsHook', 'cache_dir': cache}]
    runner = Runner.from_cfg(cfg)
    metrics = runner.test()
    assert {'mIoU', 'mIoU_tail', 'margin/mIoU_bound'} < set(metrics)
    for metric in runner.test_evaluator.metrics:
        assert list(metric.class_counts) == expected
