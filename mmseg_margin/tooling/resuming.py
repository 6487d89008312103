"""What a user has to know before a training is resumed."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mmengine.hooks import Hook
from mmengine.runner import CheckpointLoader, Runner

from mmseg_margin.hooks.swap_loss_hook import SwapLossHook

OBJECTIVE_KEY = 'objective'


@contextmanager
def resume_hint(work_dir: str) -> Iterator[None]:
    """Let Ctrl-C end a training with what ``--resume`` will do."""
    try:
        yield
    except KeyboardInterrupt as error:
        record = Path(work_dir, 'last_checkpoint')  # what --resume reads
        path = record.read_text('utf-8').strip() if record.is_file() else ''
        hint = 'nothing was saved yet, so --resume begins at iteration 1.'
        if os.path.isfile(path):
            meta = CheckpointLoader.load_checkpoint(path, 'cpu')['meta']
            hint = f'--resume goes on after iteration {meta["iter"]}.'
        raise KeyboardInterrupt(f'Stopped by Ctrl-C: {hint}') from error


class ObjectiveHook(Hook):
    """Warns if a training is resumed with another objective."""

    def __init__(self) -> None:
        self.loaded: str | None = None

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        self.loaded = checkpoint.get('meta', {}).get(OBJECTIVE_KEY)

    def before_train(self, runner: Runner) -> None:
        swaps = [x for x in runner.hooks if isinstance(x, SwapLossHook)]
        self.objective = str(swaps[-1].terms) if swaps else "the config's loss"
        is_resumed = runner.iter > 0  # otherwise it is fine-tuned
        if is_resumed and self.loaded not in (None, self.objective):
            logging.getLogger('mmseg_margin').warning(
                f'The checkpoint was trained with {self.loaded} and is '
                f'resumed with {self.objective}: give the same --loss to go '
                'on as before.'
            )

    def before_save_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        checkpoint['meta'][OBJECTIVE_KEY] = self.objective
