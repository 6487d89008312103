"""What the tools show on the screen; the log file contains everything.

``--verbose`` shows the whole log, as upstream's tools do.
"""

import logging
import time
import warnings
from numbers import Real
from typing import Any

from mmengine.dist import is_main_process
from mmengine.hooks import Hook
from mmengine.logging import MMLogger
from mmengine.runner import Runner
from rich.progress import MofNCompleteColumn, Progress, TextColumn
from torch import nn

OURS = logging.getLogger('mmseg_margin')
# Warnings of upstream that users cannot act on.
IGNORED_WARNINGS = (
    'Although resumed key',
    'resumed key',
    'The prefix is not set in metric class',
    'allow_symlink will be deprecated',
    '"FileClient" will be deprecated',
    '"HardDiskBackend" is the alias of',
    'Dataset ',  # ... has no metainfo
    '`build_loss` would be deprecated',
)
# Reading the loss waits for the device, so it is not done in every iteration.
SECONDS_PER_UPDATE = 1.0


class ScreenHandler(logging.Handler):
    """Prints our messages, warnings and, in a test, tables of metrics."""

    shows_tables = False

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        is_table = self.shows_tables and '+--' in message
        is_warning = record.levelno >= logging.WARNING
        is_ignored = message.startswith(IGNORED_WARNINGS)
        is_ours = record.name == OURS.name
        if is_ours or is_table or (is_warning and not is_ignored):
            # print puts it above the progress bar, if there is one.
            print(message.strip('\n'), flush=True)


def replace_console(logger: MMLogger) -> ScreenHandler:
    """Show little of a log on the screen; its file is not affected."""
    screen = ScreenHandler(
        logging.INFO if is_main_process() else logging.ERROR
    )
    for handler in list(logger.handlers):
        if not isinstance(handler, logging.FileHandler):
            screen.filters = handler.filters
            logger.removeHandler(handler)
    logger.addHandler(screen)
    return screen


def hide_upstream_messages() -> None:
    """Do the same for what happens without a Runner."""
    replace_console(MMLogger.get_instance('mmengine'))
    for package in ('mmcv', 'mmengine', 'mmseg'):
        warnings.filterwarnings('ignore', module=rf'{package}\.')


class QuietRunner(Runner):
    """A Runner with a progress bar and a quiet console."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.bar = Progress(
            *Progress.get_default_columns(),
            MofNCompleteColumn(),
            TextColumn('{task.fields[note]}'),
        )
        if is_main_process():
            self.register_hook(ProgressHook(self.bar))

    def build_logger(self, *args: Any, **kwargs: Any) -> MMLogger:
        logger = super().build_logger(*args, **kwargs)
        self.screen = replace_console(logger)
        return logger

    def train(self) -> nn.Module:
        try:
            return super().train()
        finally:
            self.bar.stop()

    def test(self) -> dict[str, float]:
        self.screen.shows_tables = True
        try:
            return super().test()
        finally:
            self.bar.stop()


class ProgressHook(Hook):
    """Shows the start, the progress and the result of a training or test."""

    priority = 'HIGHEST'

    def __init__(self, bar: Progress) -> None:
        self.bar = bar
        self.updated = 0.0

    def before_train(self, runner: Runner) -> None:
        done, total = runner.iter, runner.max_iters
        if done >= total:
            OURS.info(
                f'Nothing to train: the checkpoint in {runner.work_dir} has '
                f'all {total} iterations. Choose another --work-dir to train '
                'again, or raise max_iters or max_epochs to train longer.'
            )
            return
        OURS.info(
            f'Training iterations {done + 1} to {total} on '
            f'{_images(runner.train_dataloader)}; log and checkpoints are in '
            f'{runner.work_dir}'
        )

    def before_train_epoch(self, runner: Runner) -> None:
        """Begin after the bars of hooks that count labels."""
        self._begin('iteration', runner.max_iters, runner.iter)

    def after_train_iter(
        self, runner: Runner, batch_idx: int, data_batch: Any, outputs: Any
    ) -> None:
        done, now = runner.iter + 1, time.monotonic()
        if done < runner.max_iters and now - self.updated < SECONDS_PER_UPDATE:
            return
        self.updated = now
        note = f'loss {float(outputs["loss"].detach()):.4g}'
        self.bar.update(self.task, completed=done, note=note)

    def after_train(self, runner: Runner) -> None:
        self.bar.stop()

    def before_test(self, runner: Runner) -> None:
        loader = runner.test_dataloader
        OURS.info(
            f'Testing on {_images(loader)}; the log is in {runner.log_dir}'
        )
        self._begin('batch', len(loader), 0)

    def after_test_iter(
        self, runner: Runner, batch_idx: int, *args: Any, **kwargs: Any
    ) -> None:
        self.bar.update(self.task, completed=batch_idx + 1)

    # Other hooks add to the metrics, so they are printed one event later.
    def after_val_epoch(self, runner: Runner, metrics: Any = None) -> None:
        self.metrics = metrics

    after_test_epoch = after_val_epoch

    def after_val(self, runner: Runner) -> None:
        OURS.info(f'validation at {runner.iter}: {_summary(self.metrics)}')

    def after_test(self, runner: Runner) -> None:
        self.bar.stop()
        OURS.info(f'result: {_summary(self.metrics)}')

    def _begin(self, what: str, total: int, done: int) -> None:
        if done < total and not self.bar.live.is_started:
            self.task = self.bar.add_task(
                what, total=total, completed=done, note=''
            )
            self.bar.start()


def _images(loader: Any) -> str:
    return f'{len(loader.dataset)} images of {type(loader.dataset).__name__}'


def _summary(metrics: dict[str, Any] | None) -> str:
    """The metrics, without those of single classes."""
    return ', '.join(
        f'{name} {value:.2f}' if isinstance(value, Real) else f'{name} {value}'
        for name, value in (metrics or {}).items()
        if isinstance(value, (Real, str)) and 'IoU/' not in name
    )
