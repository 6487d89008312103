"""A full disk: one sentence, and every earlier file is unchanged."""

import errno
import os
import resource
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from mmengine.config import ConfigDict
from mmengine.logging import MMLogger
from mmengine.runner import save_checkpoint

from mmseg_margin.stats import ClassStats, plot_stats
from mmseg_margin.stats.cache import StatsCache
from mmseg_margin.stats.scan import collect_stats
from mmseg_margin.tooling.mosaic import draw_mosaic
from mmseg_margin.tooling.submission import SubmissionFolder, find_format
from tests.commands import TOOLS, output_of_python
from tests.layouts import make_camvid_segnet
from tests.processes import FORK, wait_for
from tests.small_training import training_config
from tests.stats.builders import open_set, write_set
from tests.test_checkpoints import load
from tools.converters.camvid import convert_camvid

NAMES = [f'class {i} {"x" * 500}' for i in range(19)]
STATS = ClassStats(NAMES, [5] * 19, [1] * 19, [95] * 19)
RNG = np.random.default_rng(0)
NOISE = RNG.integers(0, 256, (128, 128, 3)).astype(np.uint8)
FULL, LIMIT = 'full disks', 'files larger than allowed'
SMALL = 4096


def submission(path: Path) -> SubmissionFolder:
    form = find_format(ConfigDict(type='CityscapesDataset'))
    return SubmissionFolder(path.parent, replace(form, archive=path.name))


def prepare_conversion(path: Path) -> None:
    make_camvid_segnet(path.parents[2] / 'segnet', 1, size=(256, 128))
    path.parent.with_name('trainannot').mkdir()


# What writes the file, and what has to be there before.
WRITERS: dict[str, tuple[Callable[[Path], object], ...]] = {
    'stats.json': (STATS.to_json,),
    'plot.png': (lambda path: plot_stats(STATS, path),),
    'mosaic.png': (
        lambda path: draw_mosaic([[NOISE]], 'a', 'a', [[1, 2, 3]], str(path)),
    ),
    'iter_9.pth': (
        lambda path: save_checkpoint({'w': torch.ones(4000)}, str(path)),
    ),
    'results.zip': (
        lambda path: submission(path).pack(['a.png']),
        lambda path: submission(path).write('a.png', NOISE[..., 0] % 19, []),
    ),
    'train/0001TP_000000.png': (
        lambda path: convert_camvid(
            path.parents[2] / 'segnet', path.parents[1]
        ),
        prepare_conversion,
    ),
}


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob('*') if path.is_file())
    return {str(path): path.read_bytes() for path in files}


def fill(folder: Path) -> None:
    """Write until the disk is full."""
    with (folder / 'filler').open('wb', buffering=0) as file:
        try:
            while True:
                file.write(bytes(SMALL))
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise


@pytest.mark.parametrize(
    ('what', 'code'), [(FULL, errno.ENOSPC), (LIMIT, errno.EFBIG)]
)
@pytest.mark.parametrize('name', WRITERS)
def test_earlier_files_survive(
    name, what, code, request, tmp_path, record_property
):
    """A full disk; and without root, that no file may exceed 4 KiB."""
    is_full = what == FULL
    folder = request.getfixturevalue('disk') if is_full else tmp_path / 'files'
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b'good')
    task, *preparations = WRITERS[name]
    for prepare in preparations:
        prepare(path)
    if is_full:
        fill(folder)
    before = contents(folder)

    def write() -> None:
        if not is_full:
            resource.setrlimit(resource.RLIMIT_FSIZE, (SMALL, SMALL))
        try:
            task(path)
        except OSError as error:
            os._exit(error.errno)

    child = FORK.Process(target=write)
    child.start()
    assert wait_for([child], 100) == [code]
    assert contents(folder) == before
    record_property(what, 1)


def test_cache_on_a_full_disk_does_not_stop_a_scan(
    disk, tmp_path, record_property
):
    log = tmp_path / 'log'
    MMLogger.get_instance('full disk', log_file=str(log))
    root = write_set(tmp_path / 'data')
    fill(disk)
    right = collect_stats(open_set(root)).stats
    cache = StatsCache(disk / 'cache')
    assert collect_stats(open_set(root), cache=cache).stats == right
    assert 'No space left' in log.read_text()
    assert list(disk.rglob('*.*')) == []
    record_property(FULL, 1)


def test_training_on_a_full_disk(disk, tmp_path, record_property):
    """One sentence; with more space it resumes from the last checkpoint."""
    root, work_dir = write_set(tmp_path / 'data'), disk / 'w'
    config = training_config(root, work_dir, 30)
    config.default_hooks.checkpoint.interval = 2
    config.dump(str(tmp_path / 'config.py'))

    command = TOOLS / 'train.py', 'config.py', '--no-validate'
    said = output_of_python(tmp_path, *command, code=1)
    assert 'No space left on device' in said
    assert said.count('error: ') == 1
    assert 'Traceback' not in said.split('error: ')[1]
    assert [load(path) for path in work_dir.glob('*.pth')]
    options = ['-o', 'remount,size=64m', str(disk)]
    subprocess.run(['mount', *options], check=True)
    output_of_python(tmp_path, *command, '--resume')
    assert (work_dir / 'iter_30.pth').is_file()
    record_property(FULL, 1)
