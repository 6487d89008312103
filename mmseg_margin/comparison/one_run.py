"""One run: ``python -m mmseg_margin.comparison.one_run FOLDER``.

A process of its own, so that memory is measured for one objective at a time
and a run that fails takes no other with it. Its standard input is a pipe from
the comparison and closes with it, whatever has ended it.
"""

import argparse
import os
import resource
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import torch
from filelock import FileLock
from mmengine.config import Config
from mmengine.hooks import Hook
from mmengine.runner import Runner

from mmseg_margin.checkpoints import newest_whole_checkpoint
from mmseg_margin.tooling.cli import report_errors
from mmseg_margin.tooling.launch import build_runner, prepare_for_device

from .class_iou_metric import ClassIoUMetric
from .curves_hook import CurvesHook
from .records import RESULT_FILE, RunResult, write_record

CONFIG_FILE = 'run.py'


def train_and_test(cfg: Config, hooks: Sequence[Hook] = ()) -> RunResult:
    """Train from where the work dir is, test, and say how it went.

    Args:
        cfg: A whole config.
        hooks: More hooks than it has.
    """
    checkpoint = newest_whole_checkpoint(cfg.work_dir)
    if checkpoint:
        cfg.resume, cfg.load_from = True, checkpoint
    prepare_for_device(cfg)
    runner = build_runner(cfg)
    for hook in hooks:
        runner.register_hook(hook)
    runner.train()
    metrics = runner.test()
    curves = next(h for h in runner.hooks if isinstance(h, CurvesHook))
    return RunResult(
        name=cfg.comparison.name,
        seed=cfg.comparison.seed,
        metrics={name: float(value) for name, value in metrics.items()},
        class_iou=_class_iou(runner),
        curves=curves.curves,
        seconds_per_iteration=median(curves.seconds or [0.0]),
        peak_memory_mib=_peak_memory() / 2**20,
    )


def _class_iou(runner: Runner) -> list[float | None]:
    metrics = runner.test_loop.evaluator.metrics
    return next(m for m in metrics if isinstance(m, ClassIoUMetric)).class_iou


def _peak_memory() -> int:
    """Bytes: of the GPU if there is one, or of the process."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated()
    # Linux counts kibibytes, macOS bytes.
    unit = 1 if sys.platform == 'darwin' else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _end_with_comparison() -> None:
    # Not through sys.stdin, whose lock would be held when Python shuts down.
    os.read(0, 1)
    # Two runs in one folder would spoil each other.
    os._exit(1)


@report_errors
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('folder', type=Path, help='where run.py is')
    folder = parser.parse_args().folder
    threading.Thread(target=_end_with_comparison, daemon=True).start()
    # Two comparisons may be at work in one folder.
    with FileLock(folder / 'lock'):
        if not (folder / RESULT_FILE).exists():
            result = train_and_test(Config.fromfile(folder / CONFIG_FILE))
            write_record(result, folder / RESULT_FILE)


if __name__ == '__main__':
    main()
