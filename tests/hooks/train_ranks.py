"""Train on the CPU, for each argument ROOT:WORK_DIR:LOADER:WORLD_SIZE.

In WORK_DIR ``<rank>.json`` says how each rank ended. Ranks are forked, so that
the imports, which take longest, are done once.
"""

import json
import multiprocessing
import os
import socket
import sys
from pathlib import Path

import torch.distributed

from tests.hooks.builders import (
    dataset_config,
    labels_read,
    losses,
    make_runner,
)


def train(
    rank: int, size: int, port: int, root: Path, folder: Path, loader: str
) -> dict:
    """One rank; what it counted and read."""
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


def run_rank(
    rank: int, size: int, port: int, root: Path, folder: Path, loader: str
) -> None:
    """Write down how the rank ended, and leave with its exit code."""
    torch.set_num_threads(1)
    path = folder / f'{rank}.json'
    try:
        result = train(rank, size, port, root, folder, loader)
    except Exception as error:
        result = {'error': type(error).__name__, 'message': str(error)}
        raise
    finally:
        path.write_text(json.dumps(result))


def main() -> None:
    """Run the trainings one after the other."""
    fork = multiprocessing.get_context('fork')
    for argument in sys.argv[1:]:
        root, folder, loader, size = argument.split(':')
        with socket.socket() as free:
            free.bind(('127.0.0.1', 0))
            port = free.getsockname()[1]
        ranks = [
            fork.Process(
                target=run_rank,
                args=(rank, int(size), port, Path(root), Path(folder), loader),
            )
            for rank in range(int(size))
        ]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join()
        codes = [process.exitcode for process in ranks]
        (Path(folder) / 'exit_codes.json').write_text(json.dumps(codes))


if __name__ == '__main__':
    main()
