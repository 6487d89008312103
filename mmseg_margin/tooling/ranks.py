"""Opens the process group, and ends all ranks when one of them dies."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from threading import Thread

import torch
from mmengine.config import Config
from mmengine.dist import get_dist_info, init_dist, is_distributed
from mmengine.utils.dl_utils import set_multi_processing
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
WHOLE_TRAINING = timedelta(days=3650)


def join_ranks(cfg: Config) -> None:
    """Open the process group as a Runner would, for work before there is one.

    Without CUDA no Runner could open it, because mmengine selects a CUDA
    device first, even with gloo.
    """
    launcher = cfg.get('launcher', 'none')
    if launcher == 'none' or is_distributed():
        return
    env_cfg = cfg.get('env_cfg') or {}
    dist_cfg = env_cfg.get('dist_cfg') or {'backend': 'nccl'}
    if torch.cuda.is_available():
        set_multi_processing(**env_cfg.get('mp_cfg', {}), distributed=True)
        init_dist(launcher, **dist_cfg)
        return
    _set_rank_variables(launcher)
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


@contextmanager
def watch_ranks() -> Iterator[None]:
    """End this rank with a message as soon as another one dies.

    Otherwise a rank would not notice during a long validation, or while it
    waits for an NCCL kernel. Rank 0 listens to all others and they listen to
    rank 0, on connections that the system closes when a process ends; nothing
    is sent on them before the end of the work.
    """
    rank, world_size = get_dist_info()
    if world_size == 1:
        yield
        return
    group = distributed.new_group(backend='gloo', timeout=WHOLE_TRAINING)
    others = range(1, world_size) if rank == 0 else [0]
    threads = [
        Thread(target=_listen, args=(rank, other, group), daemon=True)
        for other in others
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    except RuntimeError:
        # A collective may notice the death of a rank before its listener.
        time.sleep(2)
        raise
    for other in others:
        distributed.send(torch.zeros(1), other, group)
    for thread in threads:
        thread.join()


def _listen(
    rank: int, other: int, group: distributed.ProcessGroup | None
) -> None:
    try:
        distributed.recv(torch.zeros(1), other, group)
    except RuntimeError:
        print(
            f'error: rank {other} has ended early, so rank {rank} ends too: '
            f'see the output of rank {other} for the reason.',
            file=sys.stderr,
            flush=True,
        )
        # The main thread may be blocked in a collective.
        os._exit(1)


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
