"""Progress and results of a training or test on the screen."""

import sys
import time
from collections.abc import Callable, Iterable
from datetime import timedelta
from numbers import Real
from typing import Any

from mmengine.hooks import Hook
from mmengine.model import is_model_wrapper
from mmengine.runner import Runner
from torch import nn

from mmseg_margin.heads import heads_of_model
from mmseg_margin.losses import JaccardLoss

from .screen import SCREEN

PARTS = 5  # lines of a run whose output is not a terminal
LONGEST_SILENCE = 600.0
REWRITE = '\r\x1b[K'


class Progress:
    """One line that is rewritten in a terminal, or a few lines in a file."""

    def __init__(
        self, what: str, total: int, done: int = 0, parts: int = PARTS
    ) -> None:
        self.what, self.total, self.first = what, total, done
        self.parts = parts
        self.part = self._part(done)
        self.start = self.shown = time.monotonic()

    def step(self, done: int, note: Callable[[], str] = str) -> None:
        """Print progress and remaining time, if the last line is old."""
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
    """Prints the start, the progress and the result of a training or test.

    In a training only the last validation prints its tables.
    """

    priority = 'HIGHEST'

    def before_train(self, runner: Runner) -> None:
        done, total = runner.iter, runner.max_iters
        if done >= total:
            print(
                f'Nothing to train: the checkpoint in {runner.work_dir} has '
                f'all {total} iterations. Choose another --work-dir to train '
                'again, or raise max_iters or max_epochs to train longer.',
                flush=True,
            )
            return
        print(
            f'Training {_describe(runner)} with '
            f'{_kinds(_losses(runner.model)) or "its own loss"}\n'
            f'on {_images(runner.train_dataloader)}, {total} iterations; log '
            f'and checkpoints are in {runner.work_dir}',
            flush=True,
        )
        self.progress = Progress('iteration', total, done)

    def after_train_iter(
        self, runner: Runner, batch_idx: int, data_batch: Any, outputs: Any
    ) -> None:
        def losses() -> str:
            # Reading the loss waits for the device, so its parts come after.
            total = float(outputs['loss'].detach())
            return f', loss {total:.4g}{_loss_parts(runner.model)}'

        self.progress.step(runner.iter + 1, losses)

    def before_val(self, runner: Runner) -> None:
        SCREEN.tables = runner.iter >= runner.max_iters

    def before_test(self, runner: Runner) -> None:
        SCREEN.tables = True
        loader = runner.test_dataloader
        print(
            f'Testing {_describe(runner)}\n'
            f'on {_images(loader)}; the log is in {runner.log_dir}',
            flush=True,
        )
        self.progress = Progress('batch', len(loader), parts=1)

    def after_test_iter(
        self, runner: Runner, batch_idx: int, *args, **kwargs
    ) -> None:
        self.progress.step(batch_idx + 1)

    # Other hooks add to the metrics, so they are printed one event later.
    def after_val_epoch(self, runner: Runner, metrics: Any = None) -> None:
        self.metrics = metrics

    after_test_epoch = after_val_epoch

    def after_val(self, runner: Runner) -> None:
        print(
            f'validation at {runner.iter}: {_figures(self.metrics)}',
            flush=True,
        )

    def after_test(self, runner: Runner) -> None:
        print(f'result: {_figures(self.metrics)}', flush=True)


def _describe(runner: Runner) -> str:
    """For example ``ResNetV1c + FCNHead (1.2 million parameters, ...)``."""
    model = runner.model
    model = model.module if is_model_wrapper(model) else model
    parts = [
        getattr(model, 'backbone', model),
        *heads_of_model(model).values(),
    ]
    parameters = list(model.parameters())
    size = sum(parameter.numel() for parameter in parameters) / 1e6
    device = parameters[0].device.type.upper()
    return f'{_kinds(parts)} ({size:.2f} million parameters, on the {device})'


def _images(loader: Any) -> str:
    return f'{len(loader.dataset)} images of {type(loader.dataset).__name__}'


def _losses(model: nn.Module) -> list[nn.Module]:
    heads = heads_of_model(model).values()
    return [loss for head in heads for loss in _flat(head.loss_decode)]


def _flat(loss: nn.Module) -> list[nn.Module]:
    """A loss, or the losses in a list, which may contain further lists."""
    if not isinstance(loss, nn.ModuleList):
        return [loss]
    return [each for part in loss for each in _flat(part)]


def _loss_parts(model: nn.Module) -> str:
    """The parts of this step's JaccardLoss, summed over the heads."""
    losses = [x for x in _losses(model) if isinstance(x, JaccardLoss)]
    parts = [loss.last_parts() for loss in losses]
    if not all(parts) or not parts:
        return ''
    jaccard, ce = (sum(p[name] for p in parts) for name in ('jaccard', 'ce'))
    return (
        f' (jaccard {jaccard:.4g}, cross-entropy {ce:.4g} with weight '
        f'{parts[0]["ce_weight"]:.3g})'
    )


def _kinds(objects: Iterable[object]) -> str:
    return ' + '.join(dict.fromkeys(type(each).__name__ for each in objects))


def _figures(metrics: dict[str, Any] | None) -> str:
    """The metrics, without those of single classes."""
    return ', '.join(
        f'{name} {value:.2f}' if isinstance(value, Real) else f'{name} {value}'
        for name, value in (metrics or {}).items()
        if isinstance(value, (Real, str)) and 'IoU/' not in name
    )
