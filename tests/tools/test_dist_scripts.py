"""The launch scripts as upstream's users call them, without a GPU."""

import os
import sys

import pytest
import torch

from tests.commands import TOOLS, free_port, run
from tests.small_training import PLAIN, write_config

# Stand-ins for slurm: the tasks of one node, with the variables they get.
SRUN = """#!/usr/bin/env bash
for argument in "$@"; do
  case $argument in
    --ntasks=*) export SLURM_NTASKS=${argument#*=} ;;
    --*) ;;
    *) break ;;
  esac
done
echo "srun $*" > srun.txt
while [[ $1 == --* ]]; do shift; done
export SLURM_NODELIST=node[1-2]
for ((i = 0; i < SLURM_NTASKS; i++)); do
  SLURM_PROCID=$i SLURM_LOCALID=$i "$@" & tasks+=($!)
done
for task in "${tasks[@]}"; do wait "$task" || exit 1; done
"""
SCONTROL = '#!/usr/bin/env bash\necho 127.0.0.1\necho elsewhere\n'


def run_script(folder, script, *arguments, code=0, **environment):
    """What a script says; it has to exit with ``code``."""
    environment |= {'PORT': free_port(), 'PYTHON': sys.executable}
    found, said = run([TOOLS / script, *arguments], folder, **environment)
    assert found == code, said[-3000:]
    return said


@pytest.fixture
def config(tmp_path):
    """Two iterations, then a test on the same images."""
    settings = {'max_iters': 2, 'pipeline': PLAIN, 'log_level': 'INFO'}
    return write_config(tmp_path / 'config.py', **settings)


def test_train_on_two_ranks_and_test(tmp_path, config):
    flags = ['--no-validate', '--verbose', '--cfg-options']
    flags.append('env_cfg.dist_cfg.timeout=240')
    said = run_script(tmp_path, 'dist_train.sh', config, 2, *flags)
    assert said.count('everything runs on the CPU') == 1
    assert 'Distributed training: True' in said
    assert 'timeout=240' in said
    checkpoint = tmp_path / 'iter_2.pth'
    said = run_script(tmp_path, 'dist_test.sh', config, checkpoint, 1)
    assert 'mIoU' in said


def test_slurm_without_a_gpu(tmp_path, config):
    folder = tmp_path / 'bin'
    folder.mkdir()
    for name, text in (('srun', SRUN), ('scontrol', SCONTROL)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    said = run_script(
        *(tmp_path, 'slurm_train.sh'),
        *('cpu', 'margins', config, '--no-validate'),
        PATH=f'{folder}:{os.environ["PATH"]}',
        MASTER_PORT=free_port(),
        GPUS='2',
        GPUS_PER_NODE='0',
        CPUS_PER_TASK='1',
        SRUN_ARGS='--time=10 --quiet',
    )
    assert said.count('everything runs on the CPU') == 1
    called = (tmp_path / 'srun.txt').read_text()
    for option in (
        '--partition=cpu',
        '--job-name=margins',
        '--cpus-per-task=1',
        '--time=10 --quiet',
        '--kill-on-bad-exit=1',
        '--launcher slurm --no-validate',
    ):
        assert option in called
    saved = torch.load(tmp_path / 'iter_2.pth', weights_only=False)
    assert saved['meta']['iter'] == 2


def test_too_few_arguments(tmp_path):
    for script, usage in (
        ('dist_train.sh', 'CONFIG GPUS'),
        ('dist_test.sh', 'CONFIG CHECKPOINT GPUS'),
        ('slurm_train.sh', 'PARTITION JOB_NAME CONFIG'),
    ):
        said = run_script(tmp_path, script, code=2)
        assert said == f'usage: tools/{script} {usage} [arguments]\n'
