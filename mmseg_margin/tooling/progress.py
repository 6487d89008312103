"""What is trained or tested, how far it is, and what came out."""

import sys
import time
from collections.abc import Callable
from datetime import timedelta
from numbers import Real
from typing import Any

from mmengine.hooks import Hook
from mmengine.model import is_model_wrapper
from mmengine.runner import Runner

from mmseg_margin.config_tools import as_list
from mmseg_margin.heads import heads_of_model

from .screen import SCREEN

PARTS = 5  # lines of a run that nobody watches in a terminal
LONGEST_SILENCE = 600.0
REWRITE = '\r\x1b[K'


class Progress:
    """A line that is rewritten in a terminal, or a few lines elsewhere."""

    def __init__(
        self, what: str, total: int, done: int = 0, parts: int = PARTS
    ) -> None:
        self.what, self.total, self.first = what, total, done
        self.parts = parts
        self.part = self._part(done)
        self.start = self.shown = time.monotonic()

    def step(self, done: int, note: Callable[[], str] = str) -> None:
        """Say how far it is and how long it will take, if it is time to."""
        now, part = time.monotonic(), self._part(done)
        rewrites = sys.stdout.isatty()
        silence = 1.0 if rewrites else LONGEST_SILENCE
        if part == self.part and now - self.shown < silence:
            return
        self.part, self.shown = part, now
        seconds = (now - self.start) / (done - self.first)
        left = timedelta(seconds=round(seconds * (self.total - done)))
        print(
            f'{REWRITE if rewrites else ""}{self.what} {done}/{self.total}, '
            f'{left} left{note()}',
            end='' if rewrites and done < self.total else '\n',
            flush=True,
        )

    def _part(self, done: int) -> int:
        return done * self.parts // max(self.total, 1)


class ProgressHook(Hook):
    """Shows the beginning, the way and the end of a training or test.

    Of the tables of a training only that of the last validation is shown.
    """

    priority = 'HIGHEST'

    def before_train(self, runner: Runner) -> None:
        print(
            f'Training {_describe(runner, runner.train_dataloader)}, '
            f'{runner.max_iters} iterations; log and checkpoints are in '
            f'{runner.work_dir}',
            flush=True,
        )
        self.progress = Progress('iteration', runner.max_iters, runner.iter)

    def after_train_iter(
        self, runner: Runner, batch_idx: int, data_batch: Any, outputs: Any
    ) -> None:
        loss = outputs['loss']
        self.progress.step(
            runner.iter + 1, lambda: f', loss {float(loss.detach()):.4g}'
        )

    def before_val(self, runner: Runner) -> None:
        SCREEN.tables = runner.iter >= runner.max_iters

    def after_val_epoch(self, runner: Runner, metrics: Any = None) -> None:
        print(f'validation at {runner.iter}: {_figures(metrics)}', flush=True)

    def before_test(self, runner: Runner) -> None:
        SCREEN.tables = True
        loader = runner.test_dataloader
        print(
            f'Testing {_describe(runner, loader)}; the log is in '
            f'{runner.log_dir}',
            flush=True,
        )
        self.progress = Progress('batch', len(loader), parts=1)

    def after_test_iter(
        self, runner: Runner, batch_idx: int, *args, **kwargs
    ) -> None:
        self.progress.step(batch_idx + 1)

    def after_test_epoch(self, runner: Runner, metrics: Any = None) -> None:
        print(f'result: {_figures(metrics)}', flush=True)


def _describe(runner: Runner, loader: Any) -> str:
    """For example ``ResNetV1c + FCNHead (...) with DiceLoss on 9 images``."""
    model = runner.model
    if is_model_wrapper(model):
        model = model.module
    heads = heads_of_model(model).values()
    losses = [loss for head in heads for loss in as_list(head.loss_decode)]
    parameters = list(model.parameters())
    size = sum(parameter.numel() for parameter in parameters) / 1e6
    images = loader.dataset
    return (
        f'{_kinds(getattr(model, "backbone", model), *heads)} '
        f'({size:.2f} million parameters, on the '
        f'{parameters[0].device.type.upper()}) with '
        f'{_kinds(*losses) or "its own loss"}\n'
        f'on {len(images)} images of {type(images).__name__}'
    )


def _kinds(*objects: object) -> str:
    return ' + '.join(dict.fromkeys(type(each).__name__ for each in objects))


def _figures(metrics: dict[str, Any] | None) -> str:
    return ', '.join(
        f'{name} {value:.2f}' if isinstance(value, Real) else f'{name} {value}'
        for name, value in (metrics or {}).items()
        if isinstance(value, (Real, str))
    )
