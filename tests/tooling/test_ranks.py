"""How ranks without a GPU meet, and what they say if they do not."""

import os

import pytest
from mmengine.config import Config

from mmseg_margin.errors import SettingError
from mmseg_margin.tooling.ranks import VARIABLES, join_ranks_on_cpu
from tests.commands import free_port, load_tool
from tests.processes import fork, run_tool, wait_for
from tests.small_training import write_config


def run_rank(environment, log, arguments):
    os.environ.update(environment)
    run_tool(load_tool('train')['main'], arguments, log)


def train_on_ranks(folder, names, size, launcher, numbers):
    """Exit codes of ranks of tools/train.py, in forked processes."""
    load_tool('train')
    config = write_config(folder / 'config.py', max_iters=2)
    cfg = Config.fromfile(config)
    cfg.env_cfg = {'dist_cfg': {'timeout': 60 if len(numbers) > 1 else 1}}
    cfg.dump(config)
    arguments = [str(config), '--launcher', launcher, '--no-validate']
    place = {'MASTER_ADDR': '127.0.0.1', 'MASTER_PORT': free_port()}
    ranks = []
    for i in numbers:
        values = map(str, (i, size, i))
        environment = place | dict(zip(names, values, strict=True))
        log = folder / f'{i}.txt'
        ranks.append(fork(run_rank, environment, log, arguments))
    return wait_for(ranks, 120)


def test_ranks_of_mpi_meet(tmp_path, capfd):
    with capfd.disabled():
        codes = train_on_ranks(tmp_path, VARIABLES['mpi'], 2, 'mpi', [0, 1])
    assert codes == [0, 0]
    assert (tmp_path / 'iter_2.pth').is_file()


def test_a_rank_that_never_starts(tmp_path, capfd):
    names = VARIABLES['pytorch']
    with capfd.disabled():
        codes = train_on_ranks(tmp_path, names, 3, 'pytorch', [0])
    assert codes == [1]
    said = (tmp_path / '0.txt').read_text()
    assert 'error: The 3 ranks did not meet' in said
    assert 'Traceback' not in said


@pytest.mark.parametrize(
    ('launcher', 'variables', 'key_word'),
    [
        ('pytorch', (), 'torchrun'),
        ('slurm', (), 'srun'),
        ('mpi', (), 'mpirun'),
        ('pytorch', VARIABLES['pytorch'], 'MASTER_ADDR'),
    ],
)
def test_missing_variables_of_the_launcher(
    monkeypatch, launcher, variables, key_word
):
    monkeypatch.delenv('MASTER_ADDR', raising=False)
    for name in (n for names in VARIABLES.values() for n in names):
        monkeypatch.delenv(name, raising=False)
    for name in variables:
        monkeypatch.setenv(name, '0')
    with pytest.raises(SettingError, match=key_word):
        join_ranks_on_cpu(Config({'launcher': launcher}))
