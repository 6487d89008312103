"""What CurvesHook measures, and that its time is not counted."""

import json
import time
from statistics import median

import pytest
from mmcv.transforms import BaseTransform
from mmengine.hooks import Hook
from mmengine.runner import Runner
from mmseg.registry import TRANSFORMS

from mmseg_margin.comparison.training import CURVES_FILE, CurvesHook
from tests.small_training import PLAIN, training_config
from tests.stats.builders import write_set

SECONDS = 0.5
LOST = 12345.0


@TRANSFORMS.register_module()
class SleepTransform(BaseTransform):
    """Makes measuring far slower than an iteration."""

    def transform(self, results):
        time.sleep(SECONDS)
        return results


class PartsHook(Hook):
    """Reports the parts of a loss before CurvesHook, as JaccardLoss does."""

    priority = 'HIGH'

    def after_train_iter(self, runner, *args, **kwargs):
        hub = runner.message_hub
        hub.update_scalar('train/decode.jaccard', runner.iter)
        hub.update_scalar('train/decode.ce_weight', 0.5)


def _add_point_without_checkpoint(path):
    """As if a kill came between a point and the next checkpoint."""
    curves = json.loads(path.read_text())
    for points in curves.values():
        points.append([4, LOST])
    path.write_text(json.dumps(curves))


@pytest.fixture(scope='module')
def trained(tmp_path_factory):
    """The hook after a training of 3 and a resumed one of 6 iterations."""
    folder = tmp_path_factory.mktemp('curves')
    root, work_dir = write_set(folder / 'data', 3), folder / 'work'
    for iterations, resume in ((3, False), (6, True)):
        config = training_config(root, work_dir, max_iters=iterations)
        dataset = dict(
            config.train_dataloader.dataset,
            pipeline=[{'type': 'SleepTransform'}, *PLAIN],
        )
        config.custom_hooks.append(
            {
                'type': 'CurvesHook',
                'datasets': {'val': dataset},
                'interval': 2,
                'images': 1,
            }
        )
        config.resume = resume
        runner = Runner.from_cfg(config)
        runner.register_hook(PartsHook())
        runner.train()
        if not resume:
            _add_point_without_checkpoint(work_dir / CURVES_FILE)
    hook = next(h for h in runner.hooks if isinstance(h, CurvesHook))
    return hook, work_dir


def test_measuring_does_not_count_in_the_time_of_an_iteration(trained):
    hook, _ = trained
    assert len(hook.seconds) == 3
    assert median(hook.seconds) < SECONDS


def test_a_resumed_training_goes_on_with_its_points(trained):
    hook, work_dir = trained
    kept = json.loads((work_dir / CURVES_FILE).read_text())
    parts = {'decode.jaccard', 'decode.ce_weight'}
    assert kept.keys() == {'val_loss', 'val_mIoU', *parts}
    for name, points in kept.items():
        assert [iteration for iteration, _ in points] == [2, 4, 6]
        assert LOST not in [value for _, value in points]
        assert [list(point) for point in hook.curves[name]] == points


def test_the_parts_of_a_loss_are_averaged_over_the_interval(trained):
    hook, _ = trained
    values = [value for _, value in hook.curves['decode.jaccard']]
    assert values == [pytest.approx(each) for each in (0.5, 2.5, 4.5)]
