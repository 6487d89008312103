"""One run in this process: what is measured, from where, and how."""

import json
import shutil
import time
from statistics import median

import pytest
import torch
from mmcv.transforms import BaseTransform
from mmengine.config import Config
from mmengine.registry import init_default_scope
from mmengine.runner import Runner
from mmseg.registry import MODELS, TRANSFORMS

from mmseg_margin.comparison import records, training
from mmseg_margin.comparison.curves import CurvesHook
from tests.comparison import invented
from tests.small_training import PLAIN, training_config, write_config
from tests.stats.builders import write_set

SECONDS = 0.5
VOID = 4


@TRANSFORMS.register_module()
class SleepTransform(BaseTransform):
    """Makes measuring far slower than an iteration."""

    def transform(self, results):
        time.sleep(SECONDS)
        return results


def begin(out, config, counts=(9, 9, 9, 9)):
    """The folder of a comparison with one run of ce that has not begun."""
    run = invented.make_run('ce', 0, None)
    common = {**invented.COMMON, 'class_counts': list(counts)}
    invented.write_comparison(out, records.Comparison(common, [run]))
    shutil.copy(config, out / records.CONFIG_FILE)
    return records.run_folder(out, 'ce', 0)


def measured_by_upstream(config, checkpoint, tmp_path):
    """The mIoU of a stock Runner with the config's own evaluator."""
    cfg = Config.fromfile(config)
    cfg.load_from, cfg.work_dir = str(checkpoint), str(tmp_path / 'stock')
    cfg.experiment_name = checkpoint.stem + tmp_path.name
    cfg.val_dataloader = None
    return Runner.from_cfg(cfg).test()['mIoU']


@pytest.fixture(scope='module')
def run(tmp_path_factory):
    """A finished run on labels whose ignored value is no 255."""
    folder = tmp_path_factory.mktemp('void')
    config = write_config(folder / 'void.py', max_iters=8)
    cfg = Config.fromfile(config)
    write_set(folder / 'data', 6, values=(0, 1, 2, 3, VOID))
    cfg.test_evaluator.ignore_index = VOID
    cfg.model.decode_head.ignore_index = VOID
    cfg.model.data_preprocessor.seg_pad_val = VOID
    cfg.train_cfg.val_interval = 4
    cfg.dump(config)
    run = begin(folder / 'out', config)
    training.carry_out(run, '', fit=True)
    return config, run


def test_the_settings_of_the_evaluator_are_kept(run, tmp_path):
    """The test, the curves and the fit ignore what the config ignores."""
    config, folder = run
    record = records.read_run(folder)
    expected = measured_by_upstream(config, folder / 'iter_8.pth', tmp_path)
    assert record.metrics['mIoU'] == expected
    fitted = folder / 'fitted_offsets.pth'
    expected = measured_by_upstream(config, fitted, tmp_path)
    measured = record.fitted['metrics']['mIoU']
    assert measured == pytest.approx(expected, abs=0.02)
    # The curves have their points at the val_interval of the config.
    assert [iteration for iteration, _ in record.curves['val_mIoU']] == [4, 8]
    hooks = Config.fromfile(folder / records.CONFIG_FILE).custom_hooks
    (curves,) = (hook for hook in hooks if hook.type == 'CurvesHook')
    assert curves.evaluator.ignore_index == VOID


def times_of_files(folder):
    """But not of vis_data: mmengine gives Runners of one second one folder."""
    return {
        path: path.stat().st_mtime_ns
        for path in folder.rglob('*')
        if 'vis_data' not in path.parts
    }


def test_a_copied_folder_works_in_the_copy(run, tmp_path):
    out = run[1].parents[2]
    copy = shutil.copytree(out, tmp_path / 'copy')
    before = times_of_files(out)
    folder = records.run_folder(copy, 'ce', 0)
    path = folder / records.RECORD_FILE
    record = json.loads(path.read_text())
    path.write_text(json.dumps(record | {'metrics': {}, 'fitted': None}))
    (folder / 'fitted_offsets.pth').unlink()
    training.carry_out(folder, '', fit=True)
    found = records.read_run(folder)
    assert found.metrics == record['metrics']
    assert found.resumed == []  # nothing was left to train
    assert (folder / 'fitted_offsets.pth').exists()
    assert before == times_of_files(out)


@pytest.mark.parametrize('given', ['config', 'init'])
def test_where_a_run_starts(tmp_path, given):
    """From the config's own checkpoint, or from another one."""
    config = write_config(tmp_path / 'small.py', max_iters=1)
    cfg = Config.fromfile(config)
    cfg.optim_wrapper.optimizer.lr = 0.0
    init_default_scope('mmseg')
    model = MODELS.build(cfg.model)
    weights = {k: torch.rand_like(v) for k, v in model.state_dict().items()}
    start = str(tmp_path / 'start.pth')
    torch.save({'state_dict': weights, 'meta': {}}, start)
    if given == 'config':
        cfg.load_from = start
    cfg.dump(config)
    folder = begin(tmp_path / 'out', config)
    training.carry_out(folder, start if given == 'init' else '', fit=False)
    saved = torch.load(folder / 'iter_1.pth', weights_only=False)
    for key, value in weights.items():
        assert torch.equal(saved['state_dict'][key], value), key


def trained(cfg, datasets, **settings):
    """The CurvesHook of a training, and its Runner."""
    num_classes = cfg.model.decode_head.num_classes
    evaluator = training.iou_evaluator(cfg, [1] * num_classes)
    hook = dict(settings, type='CurvesHook', evaluator=evaluator)
    cfg.custom_hooks.append({**hook, 'datasets': datasets})
    runner = Runner.from_cfg(cfg)
    runner.train()
    found = [h for h in runner.hooks if isinstance(h, CurvesHook)]
    return found[0], runner


def test_curves_and_time_of_a_resumed_training(tmp_path):
    """It goes on with its points, and measuring is not part of the time."""
    root, work_dir = write_set(tmp_path / 'data', 3), tmp_path / 'work'
    for iterations, resume in ((3, False), (6, True)):
        cfg = training_config(root, work_dir, max_iters=iterations)
        dataset = dict(cfg.train_dataloader.dataset)
        dataset['pipeline'] = [{'type': 'SleepTransform'}, *PLAIN]
        cfg.resume = resume
        hook, _ = trained(cfg, {'val': dataset}, interval=2, images=1)
    for points in (hook.curves['val_loss'], hook.curves['val_mIoU']):
        assert [iteration for iteration, _ in points] == [2, 4, 6]
    assert len(hook.seconds) == 3
    assert median(hook.seconds) < SECONDS


@pytest.mark.parametrize(
    ('evaluators', 'kept'),
    [
        ([], {}),
        ({'type': 'IoUMetric', 'nan_to_num': 0, 'prefix': 'x'}, 'nan_to_num'),
        ([{'type': 'Falling'}, {'type': 'TailIoUMetric', 'beta': 2}], 'beta'),
    ],
)
def test_what_is_kept_of_the_evaluators(evaluators, kept):
    found = training.iou_evaluator(
        Config({'test_evaluator': evaluators}), [1, 2]
    )
    ours = {'type', 'class_counts', 'iou_metrics'}
    assert found.keys() == ours | ({kept} if kept else set())
