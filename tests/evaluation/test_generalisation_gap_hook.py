"""The gap in the log, the metrics and the visualiser's backends."""

import json
import uuid
from pathlib import Path

import pytest
from mmengine.config import Config
from mmengine.runner import Runner

from mmseg_margin.evaluation import GeneralisationGapHook

COUNTS = [10**6 // (k + 1) for k in range(19)]
ADDED = 'train_mIoU train_mIoU_bound train_inside gap_mIoU gap_bound'
NAMES = {f'margin/{name}' for name in ADDED.split()}


def load(config: Path, checkpoint: Path, num_images: int = 2) -> Config:
    cfg = Config.fromfile(config)
    cfg.load_from = str(checkpoint)
    # Runners of one process share the visualiser and the logger of a name.
    cfg.visualizer.name = cfg.work_dir
    cfg.experiment_name = uuid.uuid4().hex
    bound = {'type': 'MarginBoundMetric', 'class_counts': COUNTS}
    cfg.val_evaluator = [cfg.val_evaluator, bound]
    cfg.test_evaluator = [cfg.test_evaluator, bound]
    cfg.custom_hooks = [
        {'type': 'GeneralisationGapHook', 'num_images': num_images}
    ]
    return cfg


def logged_scalars(work_dir: str) -> dict:
    """Everything that LocalVisBackend has been shown."""
    paths = Path(work_dir).glob('*/vis_data/*.json')
    lines = [line for path in paths for line in path.open()]
    return {k: v for line in lines for k, v in json.loads(line).items()}


def test_after_a_test(config, checkpoint):
    cfg = load(config, checkpoint)
    metrics = Runner.from_cfg(cfg).test()
    assert not NAMES - set(metrics)
    gap = metrics['margin/train_mIoU'] - metrics['margin/mIoU']
    assert metrics['margin/gap_mIoU'] == pytest.approx(gap)
    gap = metrics['margin/train_mIoU_bound'] - metrics['margin/mIoU']
    assert metrics['margin/gap_bound'] == pytest.approx(gap)
    assert not NAMES - set(logged_scalars(cfg.work_dir))
    (log,) = Path(cfg.work_dir).glob('*/*.log')
    assert 'On 2 training images:' in log.read_text()
    assert 'margin/gap_mIoU: ' in log.read_text()


def test_the_training_figures_are_those_of_the_training_images(
    config, checkpoint
):
    cfg = load(config, checkpoint, num_images=100)
    found = Runner.from_cfg(cfg).test()
    on_train = load(config, checkpoint)
    on_train.custom_hooks = []
    on_train.test_dataloader.dataset.data_prefix = (
        on_train.train_dataloader.dataset.data_prefix
    )
    expected = Runner.from_cfg(on_train).test()
    for name in ('mIoU', 'mIoU_bound', 'inside'):
        assert found[f'margin/train_{name}'] == expected[f'margin/{name}']
    assert found['margin/mIoU'] != found['margin/train_mIoU']


def test_after_each_validation_of_a_training(config, checkpoint):
    cfg = load(config, checkpoint)
    cfg.train_cfg.val_interval = 1
    runner = Runner.from_cfg(cfg)
    runner.train()
    scalars = runner.message_hub.log_scalars
    for name in NAMES:
        assert len(scalars[f'val/{name}'].data[0]) == 2
    trained = runner.val_evaluator.metrics[1].class_scores
    assert (trained['bound'] <= trained['iou']).all()
    assert not NAMES - set(logged_scalars(cfg.work_dir))


def test_without_a_bound_there_is_nothing_to_compare(config, checkpoint):
    cfg = load(config, checkpoint)
    cfg.test_evaluator = cfg.test_evaluator[:1]
    metrics = Runner.from_cfg(cfg).test()
    assert not NAMES & set(metrics)


def test_an_empty_sample_is_refused():
    with pytest.raises(ValueError, match='num_images=0'):
        GeneralisationGapHook(num_images=0)
