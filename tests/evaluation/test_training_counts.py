"""Where the metrics of a run get their class counts from."""

from pathlib import Path

import numpy as np
import pytest
from mmengine.config import Config
from mmengine.runner import Runner
from mmseg.datasets import CityscapesDataset
from PIL import Image

from mmseg_margin.stats import ClassStats
from tests.evaluation.fakes import load, write_checkpoint


def count_labels(root: Path) -> np.ndarray:
    """Pixels of each class in the training labels, file by file."""
    counts = np.zeros(256, int)
    for path in root.glob('gtFine/train/*/*_labelTrainIds.png'):
        counts += Image.open(path).histogram()
    return counts[:19]


def metrics_config(config: Path, checkpoint: Path | None, tmp_path) -> Config:
    cfg = load(config, checkpoint)
    cfg.val_evaluator = {'type': 'TailIoUMetric'}
    cfg.test_evaluator = [cfg.val_evaluator, {'type': 'MarginBoundMetric'}]
    hook = {'type': 'TrainingCountsHook', 'cache_dir': str(tmp_path / 'cache')}
    cfg.custom_hooks = [hook]
    return cfg


@pytest.mark.parametrize('origin', ['labels', 'checkpoint', 'config'])
def test_counts_of_the_config_the_checkpoint_or_the_labels(
    cityscapes, config, checkpoint, tmp_path, origin
):
    """In this order; the labels are counted if nothing else has counts."""
    cfg = metrics_config(config, checkpoint, tmp_path)
    expected = count_labels(cityscapes).tolist()
    if origin == 'checkpoint':
        expected = [*range(1, 20)]
        names = list(CityscapesDataset.METAINFO['classes'])
        stats = ClassStats(names, expected, [1] * 19, [400] * 19)
        meta = {'class_stats': stats.to_dict()}
        path = write_checkpoint(config, tmp_path / 'model.pth', meta)
        cfg.load_from = str(path)
    if origin == 'config':
        expected = [7] * 19
        for metric in cfg.test_evaluator:
            metric['class_counts'] = expected
    runner = Runner.from_cfg(cfg)
    metrics = runner.test()
    assert {'mIoU', 'mIoU_tail', 'margin/mIoU_bound'} < set(metrics)
    for metric in runner.test_evaluator.metrics:
        assert list(metric.class_counts) == expected
    assert (tmp_path / 'cache').exists() == (origin == 'labels')


def test_a_training_with_class_stats_hook_shares_its_counts(
    cityscapes, config, tmp_path
):
    cfg = metrics_config(config, None, tmp_path)
    stats = {'type': 'ClassStatsHook', 'cache_dir': str(tmp_path / 'other')}
    cfg.custom_hooks = [stats, *cfg.custom_hooks]
    runner = Runner.from_cfg(cfg)
    runner.train()
    (metric,) = runner.val_evaluator.metrics
    np.testing.assert_array_equal(
        metric.class_counts, count_labels(cityscapes)
    )
    assert not (tmp_path / 'cache').exists()


def test_without_training_labels_the_bound_says_what_is_missing(
    config, checkpoint, tmp_path
):
    cfg = metrics_config(config, checkpoint, tmp_path)
    cfg.train_dataloader.dataset.data_root = str(tmp_path / 'nowhere')
    with pytest.raises(ValueError, match='no class counts'):
        Runner.from_cfg(cfg).test()
    cfg.test_evaluator = cfg.test_evaluator[:1]
    assert 'mIoU_tail' not in Runner.from_cfg(cfg).test()
