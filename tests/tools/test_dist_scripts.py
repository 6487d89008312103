"""The launch scripts as upstream's users call them, without a GPU."""

import os
import sys

from tests.commands import TOOLS, free_port, run
from tests.small_training import PLAIN, write_config


def run_script(folder, script, *arguments, code=0, **environment):
    """What a script says; it has to exit with ``code``."""
    environment |= {'PORT': free_port(), 'PYTHON': sys.executable}
    found, said = run([TOOLS / script, *arguments], folder, **environment)
    assert found == code, said[-3000:]
    return said


def test_train_on_two_ranks_and_test(tmp_path):
    settings = {'max_iters': 2, 'pipeline': PLAIN, 'log_level': 'INFO'}
    config = write_config(tmp_path / 'config.py', **settings)
    flags = ['--no-validate', '--verbose', '--cfg-options']
    flags.append('env_cfg.dist_cfg.timeout=240')
    said = run_script(tmp_path, 'dist_train.sh', config, 2, *flags)
    assert said.count('everything runs on the CPU') == 1
    assert 'Distributed training: True' in said
    checkpoint = tmp_path / 'iter_2.pth'
    said = run_script(tmp_path, 'dist_test.sh', config, checkpoint, 1)
    assert 'mIoU' in said


def test_slurm(tmp_path):
    """With a stand-in for srun."""
    srun = tmp_path / 'srun'
    srun.write_text('#!/usr/bin/env bash\necho "srun $*"\n')
    srun.chmod(0o755)
    said = run_script(
        *(tmp_path, 'slurm_train.sh'),
        *('gpu', 'margins', 'config.py', '--loss', 'jaccard'),
        PATH=f'{tmp_path}:{os.environ["PATH"]}',
        GPUS='8',
        SRUN_ARGS='--time=10 --quiet',
    )
    for option in (
        '--partition=gpu --job-name=margins --gres=gpu:4 --ntasks=8',
        '--ntasks-per-node=4 --cpus-per-task=5 --kill-on-bad-exit=1',
        '--time=10 --quiet',
        'config.py --launcher slurm --loss jaccard',
    ):
        assert option in said


def test_too_few_arguments(tmp_path):
    for script, usage in (
        ('dist_train.sh', 'CONFIG GPUS'),
        ('dist_test.sh', 'CONFIG CHECKPOINT GPUS'),
        ('slurm_train.sh', 'PARTITION JOB_NAME CONFIG'),
    ):
        said = run_script(tmp_path, script, code=2)
        assert said == f'usage: tools/{script} {usage} [arguments]\n'
