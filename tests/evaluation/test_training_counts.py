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


def metrics_config(
    config: Path, checkpoint: Path | None, tmp_path: Path
) -> Config:
    cfg = load(config, checkpoint)
    cfg.val_evaluator = {'type': 'TailIoUMetric'}
    cfg.test_evaluator = [cfg.val_evaluator, {'type': 'MarginBoundMetric'}]
    hook = {'type': 'TrainingCountsHook', 'cache_dir': str(tmp_path / 'cache')}
    cfg.custom_hooks = [hook]
    return cfg


def used_counts(runner: Runner) -> list[np.ndarray]:
    return [metric.class_counts for metric in runner.test_evaluator.metrics]


def test_counted_if_the_checkpoint_has_none(
    cityscapes, config, checkpoint, tmp_path
):
    runner = Runner.from_cfg(metrics_config(config, checkpoint, tmp_path))
    metrics = runner.test()
    assert {'mIoU', 'mIoU_tail', 'margin/mIoU_bound'} < set(metrics)
    for counts in used_counts(runner):
        np.testing.assert_array_equal(counts, count_labels(cityscapes))


def test_counts_of_the_checkpoint_are_used(config, tmp_path):
    cfg = metrics_config(config, None, tmp_path)
    names = list(CityscapesDataset.METAINFO['classes'])
    stats = ClassStats(names, [*range(1, 20)], [1] * 19, [400] * 19)
    meta = {'class_stats': stats.to_dict()}
    cfg.load_from = str(write_checkpoint(config, tmp_path / 'model.pth', meta))
    runner = Runner.from_cfg(cfg)
    runner.test()
    for counts in used_counts(runner):
        assert counts.tolist() == list(range(1, 20))
    assert not (tmp_path / 'cache').exists()


def test_counts_in_the_config_are_kept(config, checkpoint, tmp_path):
    cfg = metrics_config(config, checkpoint, tmp_path)
    for metric in cfg.test_evaluator:
        metric['class_counts'] = [7] * 19
    runner = Runner.from_cfg(cfg)
    runner.test()
    for counts in used_counts(runner):
        assert counts.tolist() == [7] * 19


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
    with pytest.raises(ValueError, match='MarginBoundMetric has no class'):
        Runner.from_cfg(cfg).test()
    cfg.test_evaluator = cfg.test_evaluator[:1]
    assert 'mIoU_tail' not in Runner.from_cfg(cfg).test()
