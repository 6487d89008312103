"""Run functions in forked processes, which have nothing to import."""

import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import distributed

FORK = multiprocessing.get_context('fork')


def run_ranks(
    world_size: int,
    function: Callable[..., Any],
    folder: Path,
    *args: Any,
    seconds: float = 120,
) -> list[Any]:
    """The results of ``function(*args)`` on each rank of a gloo group."""
    folder.mkdir()
    ranks = [
        FORK.Process(
            target=_run_rank, args=(rank, world_size, function, folder, args)
        )
        for rank in range(world_size)
    ]
    for process in ranks:
        process.start()
    assert wait_for(ranks, seconds) == [0] * world_size
    paths = [folder / f'{rank}.pt' for rank in range(world_size)]
    return [torch.load(path, weights_only=False) for path in paths]


def wait_for(processes: Sequence[Any], seconds: float) -> list[int | None]:
    """The exit codes; processes that exceed the limit are killed."""
    deadline = time.monotonic() + seconds
    for process in processes:
        process.join(max(0.0, deadline - time.monotonic()))
        process.kill()
        process.join()
    return [process.exitcode for process in processes]


def _run_rank(
    rank: int, world_size: int, function: Any, folder: Path, args: tuple
) -> None:
    torch.set_num_threads(1)  # the parent's threads do not survive a fork
    os.environ.update(LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(world_size))
    # Before the Runner, whose own initialisation needs a CUDA device.
    distributed.init_process_group(
        'gloo',
        init_method=f'file://{folder}/store',
        rank=rank,
        world_size=world_size,
    )
    torch.save(function(*args), folder / f'{rank}.pt')
