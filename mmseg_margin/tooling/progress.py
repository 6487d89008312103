"""What the tools show on the screen; the log file contains everything.

``--verbose`` shows the whole log, as upstream's tools do.
"""

import functools
import logging
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from numbers import Real
from typing import Any

from mmengine.hooks import Hook
from mmengine.logging import MMLogger
from mmengine.runner import Runner
from torch import nn

from mmseg_margin.heads import bare_model, heads_of_model
from mmseg_margin.losses import JaccardLoss

OURS = 'mmseg_margin'
# Modules whose metrics log a table per evaluation.
TABLES = ('mmseg.evaluation', 'mmseg_margin.evaluation')
LOGGING = ('logging', 'mmengine.logging', __name__)
# Warnings of upstream that users cannot act on.
IGNORED_WARNINGS = (
    'The prefix is not set in metric class',
    '"FileClient" will be deprecated',
    '"HardDiskBackend" is the alias of',
    'Dataset ',  # ... has no metainfo
    '`build_loss` would be deprecated',
)
PARTS = 5  # lines of a run whose output is not a terminal
LONGEST_SILENCE = 600.0
REWRITE = '\r\x1b[K'

show = functools.partial(print, flush=True)


class Screen(logging.Formatter):
    """Shows warnings, messages of this package and tables of metrics."""

    shows_tables = True

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        if record.levelno >= logging.WARNING:
            only_in_file = getattr(record, 'only_in_file', False)
            return not only_in_file and not message.startswith(
                IGNORED_WARNINGS
            )
        frame = sys._getframe(1)
        while frame.f_back and frame.f_globals['__name__'].startswith(LOGGING):
            frame = frame.f_back
        origin = frame.f_globals['__name__']
        is_ours = origin.startswith(OURS)
        if origin.startswith(TABLES):
            return self.shows_tables and (is_ours or '+--' in message)
        return is_ours

    def format(self, record: logging.LogRecord) -> str:
        """Without time, level and the empty line before upstream's tables."""
        return record.getMessage().lstrip('\n')


SCREEN = Screen()


@contextmanager
def quiet_screen() -> Iterator[None]:
    """Shows warnings, our own messages and metric tables only.

    A Runner creates its logger and logs hundreds of lines before it returns,
    so every logger that mmengine creates inside gets the filter at once.
    """
    show_warning, init = warnings.showwarning, MMLogger.__init__

    def log_warning(
        message: Any, category: Any, filename: str, *place: Any, **more: Any
    ) -> None:
        if 'site-packages' not in filename:
            show_warning(message, category, filename, *place, **more)
            return
        logger = MMLogger.get_current_instance()
        logger.warning(str(message), extra={'only_in_file': True})

    @functools.wraps(init)
    def filtered_init(self: MMLogger, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        for handler in self.handlers:
            if not isinstance(handler, logging.FileHandler):
                handler.addFilter(SCREEN)
                handler.setFormatter(SCREEN)

    MMLogger.__init__ = filtered_init
    try:
        with warnings.catch_warnings():
            warnings.showwarning = log_warning
            yield
    finally:
        MMLogger.__init__ = init


class Progress:
    """One line that is rewritten in a terminal, or a few lines in a file."""

    def __init__(
        self, what: str, total: int, done: int = 0, parts: int = PARTS
    ) -> None:
        self.what, self.total, self.first = what, total, done
        self.parts, self.part = parts, done * parts // max(total, 1)
        self.start = self.shown = time.monotonic()

    def step(self, done: int, note: Callable[[], str] = str) -> None:
        """Print progress and remaining time, if the last line is old."""
        now, part = time.monotonic(), done * self.parts // self.total
        rewrites = sys.stdout.isatty()
        silence = 1.0 if rewrites else LONGEST_SILENCE
        if part == self.part and now - self.shown < silence:
            return
        self.part, self.shown = part, now
        seconds = (now - self.start) / (done - self.first)
        left = timedelta(seconds=round(seconds * (self.total - done)))
        show(
            f'{REWRITE if rewrites else ""}{self.what} {done}/{self.total}, '
            f'{left} left{note()}',
            end='' if rewrites and done < self.total else '\n',
        )


class ProgressHook(Hook):
    """Prints the start, the progress and the result of a training or test.

    In a training only the last validation prints its tables.
    """

    priority = 'HIGHEST'

    def before_train(self, runner: Runner) -> None:
        done, total = runner.iter, runner.max_iters
        if done >= total:
            show(
                f'Nothing to train: the checkpoint in {runner.work_dir} has '
                f'all {total} iterations. Choose another --work-dir to train '
                'again, or raise max_iters or max_epochs to train longer.'
            )
            return
        show(
            f'Training {_describe(runner)} with '
            f'{_kinds(_losses(runner.model)) or "its own loss"}\n'
            f'on {_images(runner.train_dataloader)}, {total} iterations; log '
            f'and checkpoints are in {runner.work_dir}'
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
        SCREEN.shows_tables = runner.iter >= runner.max_iters

    def before_test(self, runner: Runner) -> None:
        SCREEN.shows_tables = True
        loader = runner.test_dataloader
        show(
            f'Testing {_describe(runner)}\n'
            f'on {_images(loader)}; the log is in {runner.log_dir}'
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
        show(f'validation at {runner.iter}: {_figures(self.metrics)}')

    def after_test(self, runner: Runner) -> None:
        show(f'result: {_figures(self.metrics)}')


def _describe(runner: Runner) -> str:
    """For example ``ResNetV1c + FCNHead (1.2 million parameters, ...)``."""
    model = bare_model(runner.model)
    backbone = getattr(model, 'backbone', model)
    parts = _kinds([backbone, *heads_of_model(model).values()])
    parameters = list(model.parameters())
    size = sum(parameter.numel() for parameter in parameters) / 1e6
    device = parameters[0].device.type.upper()
    return f'{parts} ({size:.2f} million parameters, on the {device})'


def _images(loader: Any) -> str:
    return f'{len(loader.dataset)} images of {type(loader.dataset).__name__}'


def _losses(model: nn.Module) -> list[nn.Module]:
    """The losses of all heads; lists may contain further lists."""

    def flat(loss: Any) -> list[nn.Module]:
        if not isinstance(loss, nn.ModuleList):
            return [loss]
        return [each for part in loss for each in flat(part)]

    heads = heads_of_model(model).values()
    return [loss for head in heads for loss in flat(head.loss_decode)]


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
