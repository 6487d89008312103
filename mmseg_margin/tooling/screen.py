"""What the tools show without --verbose; the log file has everything."""

import logging
import warnings
from typing import Any

from mmengine.dist import is_main_process
from mmengine.hooks import Hook
from mmengine.logging import MMLogger
from mmengine.runner import Runner

from mmseg_margin.hooks.swap_loss_hook import SwapLossHook

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
# The progress, the results, and where they are.
SHOWN = ('Iter(', 'Epoch(', 'Checkpoints will be saved')
OBJECTIVE_KEY = 'objective'


class ScreenHandler(logging.Handler):
    """Prints our messages, progress, warnings and, in a test, tables."""

    shows_tables = False

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if (
            record.name == OURS.name
            or message.startswith(SHOWN)
            or (self.shows_tables and '+--' in message)
            or (
                record.levelno >= logging.WARNING
                and not message.startswith(IGNORED_WARNINGS)
            )
        ):
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
    """A Runner with a quiet console."""

    def build_logger(self, *args: Any, **kwargs: Any) -> MMLogger:
        logger = super().build_logger(*args, **kwargs)
        self.screen = replace_console(logger)
        return logger

    def test(self) -> dict[str, float]:
        self.screen.shows_tables = True
        return super().test()


class ObjectiveHook(Hook):
    """Warns if a training is resumed with another objective."""

    loaded: str | None = None

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        self.loaded = checkpoint.get('meta', {}).get(OBJECTIVE_KEY)

    def before_train(self, runner: Runner) -> None:
        swaps = [x for x in runner.hooks if isinstance(x, SwapLossHook)]
        self.objective = str(swaps[-1].terms) if swaps else "the config's loss"
        is_resumed = runner.iter > 0  # otherwise it is fine-tuned
        if is_resumed and self.loaded not in (None, self.objective):
            OURS.warning(
                f'The checkpoint was trained with {self.loaded} and is '
                f'resumed with {self.objective}: give the same --loss to go '
                'on as before.'
            )

    def before_save_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        checkpoint['meta'][OBJECTIVE_KEY] = self.objective
