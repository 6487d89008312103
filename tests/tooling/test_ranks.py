"""Ranks without a supervisor: how they start, and how all end together."""

import os
import re
import signal
import time

import pytest
from mmengine.config import Config
from mmengine.hooks import Hook
from mmseg.datasets.transforms import LoadAnnotations
from mmseg.registry import HOOKS, TRANSFORMS

from mmseg_margin.tooling.ranks import VARIABLES, join_ranks
from tests.commands import free_port, load_tool
from tests.processes import fork, run_tool, wait_for
from tests.small_training import PLAIN, add_validation, training_config
from tests.stats.builders import write_set

SIZE = 3
SECONDS = 60


def die(victim, others_are_busy=True):
    """Kill this rank if it is the victim; let the others work on."""
    if os.environ['RANK'] == str(victim):
        os.kill(os.getpid(), signal.SIGKILL)
    if others_are_busy:
        time.sleep(10 * SECONDS)


@TRANSFORMS.register_module()
class DeadlyLoader(LoadAnnotations):
    """Labels that kill the rank that scans them."""

    def __init__(self, victim):
        super().__init__()
        self.victim = victim

    def transform(self, results):
        die(self.victim)
        return super().transform(results)


@HOOKS.register_module()
class DeadlyHook(Hook):
    """Kills one rank in the third iteration, or in what follows it."""

    def __init__(self, phase, victim):
        self.phase = phase
        self.victim = victim

    def before_train_iter(self, runner, batch_idx, data_batch=None):
        if self.phase == 'training' and runner.iter == 2:
            die(self.victim, others_are_busy=False)

    def before_val_iter(self, runner, batch_idx, data_batch=None):
        if self.phase == 'validation':
            die(self.victim)

    def before_save_checkpoint(self, runner, checkpoint):
        if self.phase == 'saving':
            die(self.victim)


def run_rank(environment, log, arguments):
    os.environ.update(environment)
    run_tool(load_tool('train')['main'], arguments, log)


@pytest.fixture
def start(tmp_path, capfd):
    """Start ranks of tools/train.py in forked processes."""
    ranks = []

    def start(config, environments, launcher='pytorch'):
        load_tool('train')
        config.dump(str(tmp_path / 'config.py'))
        arguments = [str(tmp_path / 'config.py'), '--launcher', launcher]
        if not config.get('val_cfg'):
            arguments.append('--no-validate')
        with capfd.disabled():
            for number, environment in enumerate(environments):
                log = tmp_path / f'{number}.txt'
                ranks.append(fork(run_rank, environment, log, arguments))
        return ranks

    yield start
    for process in ranks:
        process.kill()


def environments(port, size=SIZE, names=('RANK', 'WORLD_SIZE', 'LOCAL_RANK')):
    place = {'MASTER_ADDR': '127.0.0.1', 'MASTER_PORT': port}
    return [
        {**place, **dict(zip(names, map(str, (i, size, i)), strict=True))}
        for i in range(size)
    ]


@pytest.fixture
def config(tmp_path):
    root = write_set(tmp_path / 'data', 6)
    return training_config(root, tmp_path / 'work', pipeline=PLAIN)


@pytest.mark.parametrize(
    ('phase', 'victim'),
    [('scan', 1), ('training', 1), ('validation', 2), ('saving', 0)],
)
def test_when_one_dies_all_end(tmp_path, config, start, phase, victim):
    config.default_hooks.checkpoint.interval = 3
    if phase == 'scan':
        labels = {'type': 'DeadlyLoader', 'victim': victim}
        config.train_dataloader.dataset.pipeline[1] = labels
    else:
        config.custom_hooks.append(
            {'type': 'DeadlyHook', 'phase': phase, 'victim': victim}
        )
    if phase == 'validation':
        add_validation(config, interval=3)
    ranks = start(config, environments(free_port()))
    assert wait_for([ranks[victim]], 120) == [-signal.SIGKILL]
    assert wait_for(ranks, SECONDS).count(1) == SIZE - 1
    for rank in set(range(SIZE)) - {victim}:
        said = (tmp_path / f'{rank}.txt').read_text()
        found = re.findall(r'error: rank (\d) has ended early, .*\.\n', said)
        assert found in ([str(victim)], ['0']), said
        assert 'Traceback' not in said


def test_ranks_of_mpi_meet_and_end(tmp_path, config, start):
    settings = environments(free_port(), 2, VARIABLES['mpi'])
    ranks = start(config, settings, 'mpi')
    assert wait_for(ranks, 120) == [0, 0]
    assert (tmp_path / 'work' / 'iter_8.pth').is_file()


def test_a_rank_that_never_starts(tmp_path, config, start):
    config.env_cfg = {'dist_cfg': {'timeout': 1}}
    port = free_port()
    ranks = start(config, environments(port)[:1])
    assert wait_for(ranks, 120) == [1]
    said = (tmp_path / '0.txt').read_text()
    assert f'The 3 ranks did not meet at 127.0.0.1:{port}' in said
    assert 'Traceback' not in said


@pytest.mark.parametrize(
    ('launcher', 'variables', 'said'),
    [
        ('pytorch', (), 'no RANK .* torchrun'),
        ('slurm', (), 'no SLURM_PROCID .* srun'),
        ('mpi', (), 'no OMPI_COMM_WORLD_RANK .* mpirun'),
        ('pytorch', VARIABLES['pytorch'], 'MASTER_ADDR .* host of rank 0'),
    ],
)
def test_missing_variables_of_the_launcher(
    monkeypatch, launcher, variables, said
):
    monkeypatch.delenv('MASTER_ADDR', raising=False)
    for name in (n for names in VARIABLES.values() for n in names):
        monkeypatch.delenv(name, raising=False)
    for name in variables:
        monkeypatch.setenv(name, '0')
    with pytest.raises(ValueError, match=said):
        join_ranks(Config({'launcher': launcher}))
