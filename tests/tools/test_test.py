"""tools/test.py as users call it."""

import json
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


def test_every_metric_on_a_checkpoint_of_other_objectives(
    world, command, tmp_path, capsys
):
    pytest.importorskip('cityscapesscripts', reason='needs cityscapesscripts')
    cfg = Config.fromfile(world[1])
    cfg.model.decode_head.loss_decode = OBJECTIVES
    cfg.custom_hooks = [{'type': 'ClassStatsHook'}]
    cfg.work_dir = str(tmp_path / 'training')
    cfg.visualizer.name = cfg.work_dir
    Runner.from_cfg(cfg).train()
    # Its weights are tested with the config of another objective, which was
    # written by a resumed training.
    saved = torch.load(tmp_path / 'training/iter_2.pth', weights_only=False)
    command[1] = str(tmp_path / 'weights.pth')
    weights = {key: saved[key] for key in ('meta', 'state_dict')}
    torch.save(weights, command[1])
    metrics = ['--metrics', 'tail', 'bound', 'cityscapes', '--tta']
    out = tmp_path / 'predictions'
    command += ['resume=True', '--out', str(out), *metrics]
    said = output_of(capsys, 'test', *command)
    assert 'Iter(test) [3/3]' in said
    assert '   bicycle ' in said
    (written,) = (tmp_path / 'work_dir').glob('*/*.json')
    figures = json.loads(written.read_text())
    expected = {'mIoU', 'mIoU_head', 'mIoU_middle', 'mIoU_tail'}
    expected |= {'margin/mIoU_bound', 'cityscapes/iIoU_class'}
    classes = CityscapesDataset.METAINFO['classes']
    assert expected | {f'IoU/{name}' for name in classes} < set(figures)
    assert figures['margin/mIoU'] == pytest.approx(figures['mIoU'], abs=0.01)
    assert figures['margin/mIoU_bound'] <= figures['margin/mIoU']
    assert len(list(out.glob('*.png'))) == 3


def test_a_submission_on_two_ranks(world, command, tmp_path):
    out = tmp_path / 'out'
    command += ['--format-only', '--out', str(out)]
    start = ['-m', 'torch.distributed.run', '--standalone', '--nproc_per_node']
    ranks = [*start, 2, TOOL, *command, '--launcher=pytorch']
    said = output_of_python(tmp_path, *ranks)
    assert said.count('60 label images') == 1
    root, config, checkpoint = world
    images = sorted(root.glob('leftImg8bit/test/*/*.png'))
    with zipfile.ZipFile(out / 'cityscapes.zip') as archive:
        assert archive.namelist() == [image.name for image in images]
    expected = predict(config, checkpoint, images)
    for image, prediction in zip(images, expected, strict=True):
        found = read_train_ids(out / image.name)
        np.testing.assert_array_equal(found, prediction)
