"""tools/test.py as users call it."""

import importlib.util
import json
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest
from mmengine.config import Config
from mmengine.runner import Runner

from tests.evaluation.fakes import (
    make_benchmark,
    predict,
    read_train_ids,
    write_checkpoint,
    write_config,
)

TOOL = Path(__file__).parents[2] / 'tools' / 'test.py'


def load_tool():
    spec = importlib.util.spec_from_file_location('tools_test', TOOL)
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    return tool


@pytest.fixture(scope='module')
def tool():
    return load_tool()


@pytest.fixture(scope='module')
def world(tmp_path_factory):
    """Data with many test images, a config and a checkpoint."""
    folder = tmp_path_factory.mktemp('world')
    root = make_benchmark(folder / 'cityscapes', [(61, 33)] * 60)
    config = write_config(folder / 'config.py', root)
    return root, config, write_checkpoint(config, folder / 'model.pth')


@pytest.fixture
def command(world, tmp_path, monkeypatch) -> list[str]:
    """Arguments of a run with a work dir and a cache of its own."""
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path / 'cache'))
    _, config, checkpoint = world
    options = ['--cfg-options', f'visualizer.name={tmp_path.name}']
    return [
        str(config),
        str(checkpoint),
        '--work-dir',
        str(tmp_path / 'work_dir'),
        *options,
    ]


def run_on_two_ranks(
    cwd: Path, args: list[str]
) -> subprocess.CompletedProcess:
    start = [sys.executable, '-m', 'torch.distributed.run', '--standalone']
    return subprocess.run(
        [
            *start,
            '--nproc_per_node=2',
            str(TOOL),
            *args,
            '--launcher=pytorch',
        ],
        cwd=cwd,
        capture_output=True,
        text=True,
    )


def check_submission(world, out: Path) -> None:
    """One label image for each test image, equal to the prediction."""
    root, config, checkpoint = world
    images = sorted(root.glob('leftImg8bit/test/*/*.png'))
    with zipfile.ZipFile(out / 'cityscapes.zip') as archive:
        assert archive.namelist() == [image.name for image in images]
    expected = predict(config, checkpoint, images)
    for image, prediction in zip(images, expected, strict=True):
        found = read_train_ids(out / image.name)
        np.testing.assert_array_equal(found, prediction)


@pytest.mark.parametrize(
    ('args', 'mode'),
    [([], None), (['--tta'], 'ms-flip'), (['--tta', 'flip'], 'flip')],
)
def test_tta_takes_a_value_or_none(tool, args, mode):
    assert tool.parse_args(['c.py', 'm.pth', *args]).tta == mode


def test_upstreams_flags_are_there(tool):
    flags = '--work-dir w --out o --show --show-dir s --wait-time 1'
    flags += ' --launcher slurm --local-rank 3 --cfg-options a.b=1'
    args = tool.parse_args(['c.py', 'm.pth', *flags.split()])
    assert (args.work_dir, args.out, args.show_dir) == ('w', 'o', 's')
    assert (args.show, args.wait_time, args.local_rank) == (True, 1.0, 3)
    assert (args.launcher, args.cfg_options) == ('slurm', {'a.b': 1})


OBJECTIVES = [
    {'type': 'LovaszLoss', 'reduction': 'none'},
    {'type': 'DiceLoss', 'use_sigmoid': False},
    {'type': 'MarginCalibrationLoss', 'backend': 'eager'},
]


@pytest.mark.parametrize('loss', OBJECTIVES, ids=lambda loss: loss['type'])
def test_every_metric_on_a_checkpoint_of_any_objective(
    tool, world, command, tmp_path, loss
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
    choices = ['tail', 'gap', 'cityscapes']
    out = tmp_path / 'predictions'
    tool.main([*command, '--out', str(out), '--metrics', *choices, '--tta'])
    (written,) = (tmp_path / 'work_dir').glob('*/*.json')
    figures = json.loads(written.read_text())
    assert {
        'mIoU',
        'mIoU_head',
        'mIoU_middle',
        'mIoU_tail',
        'margin/mIoU_bound',
        'margin/gap_mIoU',
        'cityscapes/iIoU_class',
    } < set(figures)
    assert figures['margin/mIoU'] == pytest.approx(figures['mIoU'], abs=0.01)
    assert figures['margin/mIoU_bound'] <= figures['margin/mIoU']
    assert len(list(out.glob('*.png'))) == 3


def test_a_submission_on_two_ranks(world, command, tmp_path):
    out = tmp_path / 'out'
    args = [*command, '--format-only', '--out', str(out)]
    done = run_on_two_ranks(tmp_path, args)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count('60 label images (60 new)') == 1
    check_submission(world, out)


def test_a_killed_submission_is_completed(world, command, tmp_path):
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
    load_tool().main(args)
    check_submission(world, out)
    assert {path: path.stat().st_mtime_ns for path in stamps} == stamps


def test_somebodys_folder_is_left_alone(tool, command, tmp_path, capsys):
    out = tmp_path / 'thesis'
    out.mkdir()
    (out / 'chapter1.tex').write_text('Introduction')
    with pytest.raises(SystemExit) as stop:
        tool.main([*command, '--format-only', '--out', str(out)])
    assert stop.value.code == 1
    assert 'nothing was touched' in capsys.readouterr().err
    assert [path.name for path in out.iterdir()] == ['chapter1.tex']
    assert (out / 'chapter1.tex').read_text() == 'Introduction'


@pytest.mark.parametrize('missing', ['config', 'checkpoint'])
def test_a_file_that_does_not_exist_is_named(
    tool, world, tmp_path, capsys, missing
):
    _, config, checkpoint = world
    files = {'config': str(config), 'checkpoint': str(checkpoint)}
    files[missing] = str(tmp_path / 'nowhere')
    with pytest.raises(SystemExit) as stop:
        tool.main([*files.values(), '--work-dir', str(tmp_path)])
    assert stop.value.code == 1
    assert 'nowhere' in capsys.readouterr().err
