"""Opens the process group of a distributed run."""

import os
import subprocess
from datetime import timedelta

import torch
from mmengine.config import Config
from mmengine.dist import is_distributed
from torch import distributed

from mmseg_margin.errors import SettingError

# Variables of rank, number of ranks and rank on this machine.
VARIABLES = {
    'pytorch': ('RANK', 'WORLD_SIZE', 'LOCAL_RANK'),
    'slurm': ('SLURM_PROCID', 'SLURM_NTASKS', 'SLURM_LOCALID'),
    'mpi': tuple(
        f'OMPI_COMM_WORLD_{name}' for name in ('RANK', 'SIZE', 'LOCAL_RANK')
    ),
}
STARTERS = {
    'pytorch': 'torchrun --nproc_per_node=N -m',
    'slurm': 'srun --ntasks=N python -m',
    'mpi': 'mpirun -n N python -m',
}
DEFAULT_PORT = '29500'


def join_ranks_on_cpu(cfg: Config) -> None:
    """Open the process group before there is a Runner.

    Without CUDA no Runner could open it, because mmengine selects a CUDA
    device first, even with gloo.
    """
    launcher = cfg.get('launcher', 'none')
    if launcher == 'none' or is_distributed() or torch.cuda.is_available():
        return
    _set_rank_variables(launcher)
    dist_cfg = (cfg.get('env_cfg') or {}).get('dist_cfg') or {}
    seconds = dist_cfg.get('timeout')
    try:
        distributed.init_process_group(
            'gloo', timeout=seconds and timedelta(seconds=seconds)
        )
    except RuntimeError as error:
        place = f'{os.environ["MASTER_ADDR"]}:{os.environ["MASTER_PORT"]}'
        raise SettingError(
            f'The {os.environ["WORLD_SIZE"]} ranks did not meet at {place}: '
            'start all of them, with the same MASTER_ADDR and a MASTER_PORT '
            'that is free.'
        ) from error


def _set_rank_variables(launcher: str) -> None:
    """Set torch's variables from those of the launcher."""
    for name, source in zip(
        VARIABLES['pytorch'], VARIABLES[launcher], strict=True
    ):
        if source not in os.environ:
            raise SettingError(
                f'--launcher {launcher} found no {source} in the environment: '
                f'start the ranks with {STARTERS[launcher]} mmseg_margin TOOL.'
            )
        os.environ[name] = os.environ[source]
    os.environ.setdefault('MASTER_PORT', DEFAULT_PORT)
    if launcher == 'slurm' and 'MASTER_ADDR' not in os.environ:
        nodes = os.environ['SLURM_NODELIST']
        command = ['scontrol', 'show', 'hostnames', nodes]
        hosts = subprocess.check_output(command, text=True)
        os.environ['MASTER_ADDR'] = hosts.split()[0]
    if 'MASTER_ADDR' not in os.environ:
        raise SettingError(
            f'--launcher {launcher} found no MASTER_ADDR in the environment: '
            'set it to the host of rank 0.'
        )
