"""Trainings on several processes of this machine, with gloo on the CPU."""

import json
import multiprocessing
import os
import socket
import time
from pathlib import Path
from typing import Any

import torch

from tests.hooks.builders import (
    dataset_config,
    labels_read,
    losses,
    make_runner,
)


def run_ranks(
    root: Path, folder: Path, loader: str, world_size: int, seconds: float
) -> list[tuple[int | None, dict[str, Any]]]:
    """Train in forked processes: (exit code, what it wrote) of each rank."""
    with socket.socket() as free:
        free.bind(('127.0.0.1', 0))
        port = free.getsockname()[1]
    fork = multiprocessing.get_context('fork')
    ranks = [
        fork.Process(
            target=_run_rank,
            args=(rank, world_size, port, root, folder, loader),
        )
        for rank in range(world_size)
    ]
    deadline = time.monotonic() + seconds
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(max(0.0, deadline - time.monotonic()))
        process.kill()
        process.join()
    return [
        (process.exitcode, json.loads((folder / f'{rank}.json').read_text()))
        for rank, process in enumerate(ranks)
    ]


def _run_rank(
    rank: int, size: int, port: int, root: Path, folder: Path, loader: str
) -> None:
    torch.set_num_threads(1)  # threads of the parent do not exist here
    result: dict[str, Any] = {'error': 'none written', 'message': ''}
    try:
        result = _train(rank, size, port, root, folder, loader)
    except Exception as error:
        result = {'error': type(error).__name__, 'message': str(error)}
        raise
    finally:
        (folder / f'{rank}.json').write_text(json.dumps(result))


def _train(
    rank: int, size: int, port: int, root: Path, folder: Path, loader: str
) -> dict[str, Any]:
    os.environ.update(LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(size))
    # Before the Runner, because mmengine would look for CUDA devices.
    torch.distributed.init_process_group(
        'gloo',
        init_method=f'tcp://127.0.0.1:{port}',
        rank=rank,
        world_size=size,
    )
    dataset = dataset_config(root)
    dataset['pipeline'][1]['type'] = loader
    runner = make_runner(
        root,
        folder,
        dataset=dataset,
        launcher='pytorch',
        cfg={
            'model_wrapper_cfg': {
                'type': 'MMDistributedDataParallel',
                'device_ids': None,
            }
        },
    )
    runner.train()
    return {
        'counts': losses(runner.model)[0].counts,
        'labels_read': labels_read(runner),
    }
