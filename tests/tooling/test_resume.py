"""--resume after a kill: from a complete checkpoint, to equal weights."""

import os
import random
import shutil
import time
from pathlib import Path

import pytest
import torch
from mmengine.config import Config

from mmseg_margin.checkpoints import CheckpointError, newest_whole_checkpoint
from mmseg_margin.tooling.flags import resume_training
from tests.commands import load_tool
from tests.processes import fork, run_tool
from tests.small_training import same_weights, training_config
from tests.stats.builders import write_set

KILLS = int(os.environ.get('MMSEG_MARGIN_KILLS', '5'))
ITERATIONS = 40


def write_checkpoints(folder, *numbers, record='last'):
    """Checkpoints, the first of which is the newest by its time."""
    folder.mkdir(exist_ok=True)
    for age, number in enumerate(numbers):
        path = folder / f'iter_{number}.pth'
        torch.save({'meta': {'iter': number}, 'x': torch.rand(99)}, path)
        os.utime(path, (1000 - age, 1000 - age))
    if record is not None:
        text = path if record == 'last' else record and folder / record
        (folder / 'last_checkpoint').write_text(str(text))


def newest(folder):
    return str(Path(newest_whole_checkpoint(str(folder))).relative_to(folder))


def cut(content):
    return content[: len(content) // 2]


def zeros_in_the_middle(content):
    middle = content.index(b'iter_10/data/0') + 200
    return content[:middle] + bytes(64) + content[middle + 64 :]


@pytest.mark.parametrize(
    'damage', [cut, zeros_in_the_middle, lambda content: b'', None, 'link']
)
def test_a_bad_checkpoint_is_skipped_with_a_message(tmp_path, damage, capsys):
    record = None if damage == 'link' else 'last'
    write_checkpoints(tmp_path, 5, 10, record=record)
    path = tmp_path / 'iter_10.pth'
    content = path.read_bytes()
    path.unlink()
    if damage == 'link':
        path.symlink_to(tmp_path / 'nowhere.pth')
    elif damage:
        path.write_bytes(damage(content))
    assert newest(tmp_path) == 'iter_5.pth'
    (sentence,) = capsys.readouterr().out.strip().splitlines()
    assert f'{path} is missing or damaged' in sentence
    (tmp_path / 'iter_5.pth').unlink()
    with pytest.raises(CheckpointError, match=r'Cannot resume.*iter_10\.pth'):
        newest(tmp_path)


@pytest.mark.parametrize(
    ('record', 'expected'),
    [
        # A folder may contain checkpoints of an earlier, longer training.
        ('last', 'iter_900.pth'),
        # Otherwise the number decides, not the time, which a copy changes.
        ('', 'iter_8000.pth'),
        ('no/iter_1.pth', 'iter_8000.pth'),
        (None, 'iter_8000.pth'),
    ],
)
def test_the_record_comes_before_the_numbers(tmp_path, record, expected):
    write_checkpoints(tmp_path, 1000, 8000, 900, record=record)
    torch.save({}, tmp_path / 'best_mIoU_iter_9000.pth')
    assert newest(tmp_path) == expected


def test_a_folder_of_checkpoints_elsewhere(tmp_path):
    write_checkpoints(tmp_path / 'out', 5, 10)
    (tmp_path / 'out' / 'last_checkpoint').rename(tmp_path / 'last_checkpoint')
    (tmp_path / 'out' / 'iter_10.pth').write_bytes(b'PK')
    assert newest(tmp_path) == 'out/iter_5.pth'


@pytest.mark.parametrize(
    ('load_from', 'files', 'expected'),
    [
        (None, (), (None, False)),
        (None, (5,), ('iter_5.pth', True)),
        ('other.pth', (5,), ('other.pth', True)),
    ],
)
def test_what_the_flag_does(tmp_path, load_from, files, expected):
    if files:
        write_checkpoints(tmp_path, *files)
    cfg = Config(
        {'resume': True, 'load_from': load_from, 'work_dir': str(tmp_path)}
    )
    resume_training(cfg)
    assert (cfg.load_from and Path(cfg.load_from).name, cfg.resume) == expected


def live(folder, seconds=None):
    """Train until the end, or until killed: the last checkpoint, or None.

    After the end the work dir is empty.
    """
    work_dir, log = folder / 'work', folder / 'log.txt'
    is_resumed = newest_whole_checkpoint(str(work_dir)) is not None
    arguments = [str(folder / 'config.py'), '--resume', '--no-validate']
    # Killed early enough, it will not even open its log.
    log.write_text('')
    process = fork(run_tool, load_tool('train')['main'], arguments, log)
    process.join(seconds)
    process.kill()
    process.join()
    assert process.exitcode in (0, -9), log.read_text()[-3000:]
    if is_resumed:
        assert 'Reading labels' not in log.read_text()
    if process.exitcode:
        return None
    path = work_dir / f'iter_{ITERATIONS}.pth'
    checkpoint = torch.load(path, weights_only=False)
    shutil.rmtree(work_dir)
    return checkpoint


def test_killed_at_any_moment(tmp_path, record_property):
    """A training that is killed at random moments ends with equal weights.

    Once it has ended it begins anew, until it has been killed often enough:
    ``MMSEG_MARGIN_KILLS=100`` makes a longer test of it.
    """
    root = write_set(tmp_path / 'data', 5)
    form = {'type': 'JaccardLoss'}
    config = training_config(root, tmp_path / 'work', ITERATIONS, loss=form)
    config.default_hooks.checkpoint.interval = 5
    config.custom_hooks[0].use_cache = False
    config.dump(str(tmp_path / 'config.py'))
    start = time.monotonic()
    whole = live(tmp_path)
    duration = time.monotonic() - start
    rng = random.Random(0)
    kills, ends = 0, []
    while kills < KILLS:
        end = live(tmp_path, rng.random() * duration)
        kills += end is None
        ends += [end] if end else []
    for end in (*ends, live(tmp_path)):
        assert same_weights(end['state_dict'], whole['state_dict'])
        assert end['meta']['class_stats'] == whole['meta']['class_stats']
    record_property('kills of a training', kills)
