"""The gap in the log, the metrics and the visualiser's backends."""

import json
from pathlib import Path

import pytest
from mmengine.config import Config
from mmengine.runner import Runner

from mmseg_margin.evaluation import GeneralisationGapHook
from tests.evaluation.fakes import load

COUNTS = [10**6 // (k + 1) for k in range(19)]
ADDED = 'train_mIoU train_mIoU_bound train_inside gap_mIoU gap_bound'
NAMES = {f'margin/{name}' for name in ADDED.split()}


def gap_config(config: Path, checkpoint: Path, num_images: int = 2) -> Config:
    cfg = load(config, checkpoint)
    bound = {'type': 'MarginBoundMetric', 'class_counts': COUNTS}
    cfg.val_evaluator = [cfg.val_evaluator, bound]
    cfg.test_evaluator = [cfg.test_evaluator, bound]
    hook = {'type': 'GeneralisationGapHook', 'num_images': num_images}
    cfg.custom_hooks = [hook]
    return cfg


def written(work_dir: str) -> tuple[dict, str]:
    """The scalars that LocalVisBackend has written, and the log."""
    paths = Path(work_dir).glob('*/vis_data/*.json')
    lines = [line for path in paths for line in path.open()]
    (log,) = Path(work_dir).glob('*/*.log')
    shown = {k: v for line in lines for k, v in json.loads(line).items()}
    return shown, log.read_text()


def test_after_a_test(config, checkpoint):
    """The training figures are those of the training images."""
    cfg = gap_config(config, checkpoint, num_images=100)
    metrics = Runner.from_cfg(cfg).test()
    gap = metrics['margin/train_mIoU'] - metrics['margin/mIoU']
    assert metrics['margin/gap_mIoU'] == pytest.approx(gap)
    assert gap != 0
    gap = metrics['margin/train_mIoU_bound'] - metrics['margin/mIoU']
    assert metrics['margin/gap_bound'] == pytest.approx(gap)
    shown, log = written(cfg.work_dir)
    assert not NAMES - set(shown)
    assert 'margin/gap_mIoU: ' in log
    on_train = gap_config(config, checkpoint)
    on_train.custom_hooks = []
    on_train.test_dataloader.dataset.data_prefix = (
        on_train.train_dataloader.dataset.data_prefix
    )
    expected = Runner.from_cfg(on_train).test()
    for name in ('mIoU', 'mIoU_bound', 'inside'):
        assert metrics[f'margin/train_{name}'] == expected[f'margin/{name}']


def test_after_each_validation_of_a_training(config, checkpoint):
    cfg = gap_config(config, checkpoint)
    cfg.train_cfg.val_interval = 1
    runner = Runner.from_cfg(cfg)
    runner.train()
    scalars = runner.message_hub.log_scalars
    for name in NAMES:
        assert len(scalars[f'val/{name}'].data[0]) == 2
    trained = runner.val_evaluator.metrics[1].class_scores
    assert (trained['bound'] <= trained['iou']).all()
    shown, log = written(cfg.work_dir)
    assert not NAMES - set(shown)
    assert log.count('On 2 training images:') == 2


def test_nothing_to_compare(config, checkpoint):
    """Without a bound, and with no images."""
    cfg = gap_config(config, checkpoint)
    cfg.test_evaluator = cfg.test_evaluator[:1]
    assert not NAMES & set(Runner.from_cfg(cfg).test())
    with pytest.raises(ValueError, match='num_images=0'):
        GeneralisationGapHook(num_images=0)
