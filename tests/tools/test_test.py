"""tools/test.py as users call it."""

import json
import signal
import subprocess
import sys
import time
import zipfile

import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.runner import Runner
from mmseg.datasets import CityscapesDataset

from tests.commands import TOOLS, load_tool, output_of, output_of_python
from tests.evaluation.fakes import predict, read_train_ids

TOOL = TOOLS / 'test.py'
OBJECTIVES = [
    {'type': 'LovaszLoss', 'reduction': 'none'},
    {'type': 'DiceLoss', 'use_sigmoid': False},
    {'type': 'MarginCalibrationLoss', 'backend': 'eager'},
]


@pytest.fixture
def command(world, tmp_path, monkeypatch) -> list[str]:
    """Arguments of a run with a work dir and a cache of its own."""
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path / 'cache'))
    options = ['--cfg-options', f'visualizer.name={tmp_path.name}']
    work_dir = ['--work-dir', str(tmp_path / 'work_dir')]
    return [*map(str, world[1:]), *work_dir, *options]


def check_submission(world, out) -> None:
    """One label image for each test image, equal to the prediction."""
    root, config, checkpoint = world
    images = sorted(root.glob('leftImg8bit/test/*/*.png'))
    with zipfile.ZipFile(out / 'cityscapes.zip') as archive:
        assert archive.namelist() == [image.name for image in images]
    expected = predict(config, checkpoint, images)
    for image, prediction in zip(images, expected, strict=True):
        found = read_train_ids(out / image.name)
        np.testing.assert_array_equal(found, prediction)


def test_flags():
    """Upstream's, and --tta with a value or none."""
    parse = load_tool('test')['parse_args']
    flags = '--work-dir w --out o --show --show-dir s --wait-time 1'
    flags += ' --launcher slurm --local-rank 3 --cfg-options a.b=1'
    args = parse(['c.py', 'm.pth', *flags.split()])
    assert (args.work_dir, args.out, args.show_dir) == ('w', 'o', 's')
    assert (args.show, args.wait_time, args.local_rank) == (True, 1.0, 3)
    assert (args.launcher, args.cfg_options) == ('slurm', {'a.b': 1})
    modes = {'': None, '--tta': 'ms-flip', '--tta flip': 'flip'}
    for flags, mode in modes.items():
        assert parse(['c.py', 'm.pth', *flags.split()]).tta == mode


@pytest.mark.parametrize('loss', OBJECTIVES, ids=lambda loss: loss['type'])
def test_every_metric_on_a_checkpoint_of_any_objective(
    world, command, tmp_path, capsys, loss
):
    pytest.importorskip('cityscapesscripts', reason='needs cityscapesscripts')
    cfg = Config.fromfile(world[1])
    cfg.model.decode_head.loss_decode = loss
    cfg.custom_hooks = [{'type': 'ClassStatsHook'}]
    cfg.work_dir = str(tmp_path / 'training')
    cfg.visualizer.name = cfg.work_dir
    Runner.from_cfg(cfg).train()
    # A checkpoint is tested with the config of another objective.
    command[1] = str(tmp_path / 'training/iter_2.pth')
    metrics = ['--metrics', 'tail', 'gap', 'cityscapes', '--tta']
    out = tmp_path / 'predictions'
    said = output_of(capsys, 'test', *command, '--out', out, *metrics)
    result = said[said.index('result: ') :]
    assert 'margin/gap_mIoU' in result
    assert 'IoU/' not in result
    assert 'mIoU_tail' in said[: said.index('result: ')]
    (written,) = (tmp_path / 'work_dir').glob('*/*.json')
    figures = json.loads(written.read_text())
    expected = {'mIoU', 'mIoU_head', 'mIoU_middle', 'mIoU_tail'}
    expected |= {'margin/mIoU_bound', 'margin/gap_mIoU'}
    expected |= {
        f'IoU/{name}' for name in CityscapesDataset.METAINFO['classes']
    }
    assert expected | {'cityscapes/iIoU_class'} < set(figures)
    assert figures['margin/mIoU'] == pytest.approx(figures['mIoU'], abs=0.01)
    assert figures['margin/mIoU_bound'] <= figures['margin/mIoU']
    assert len(list(out.glob('*.png'))) == 3


def test_weights_alone_with_the_config_of_a_resumed_training(
    command, tmp_path, capsys
):
    checkpoint = torch.load(command[1], weights_only=False)
    weights = tmp_path / 'weights.pth'
    torch.save(
        {key: checkpoint[key] for key in ('meta', 'state_dict')}, weights
    )
    command[1] = str(weights)
    said = output_of(capsys, 'test', *command, 'resume=True')
    assert 'result: aAcc' in said


def test_a_submission_on_two_ranks(world, command, tmp_path):
    start = ['-m', 'torch.distributed.run', '--standalone', '--nproc_per_node']
    flags = ['--format-only', '--out', 'out', '--launcher=pytorch']
    said = output_of_python(tmp_path, *start, 2, TOOL, *command, *flags)
    assert said.count('60 label images (60 new)') == 1
    check_submission(world, tmp_path / 'out')


def test_a_killed_submission_is_completed(world, command, tmp_path, capsys):
    out = tmp_path / 'out'
    args = [*command, '--format-only', '--out', str(out)]
    process = subprocess.Popen(
        [sys.executable, str(TOOL), *args],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while len(list(out.glob('*.png'))) < 5:
        assert process.poll() is None, 'finished before it could be killed'
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.wait()
    stamps = {path: path.stat().st_mtime_ns for path in out.glob('*.png')}
    assert 5 <= len(stamps) < 60
    assert not (out / 'cityscapes.zip').exists()
    said = output_of(capsys, 'test', *args)
    assert f'60 label images ({60 - len(stamps)} new)' in said
    check_submission(world, out)
    assert {path: path.stat().st_mtime_ns for path in stamps} == stamps
    assert '60 label images (0 new)' in output_of(capsys, 'test', *args)
