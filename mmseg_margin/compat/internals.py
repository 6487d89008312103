"""What we have to reach for inside mmengine, mmseg, Optuna and Pillow."""

import functools
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

LOSS_STAGE = 'loss_by_feat'
# What a loss stage is: a head, its scores and labels (N, H, W) to a log.
LossStage = Callable[[Any, Any, Any], dict[str, Any]]


@contextmanager
def log_on_screen(
    is_shown: Callable[[logging.LogRecord], bool], format_: logging.Formatter
) -> Iterator[None]:
    """Let the loggers that mmengine makes meanwhile show only some records.

    It makes one for each runner, which at once logs hundreds of lines, so
    there is no later moment.
    """
    from mmengine.logging import MMLogger

    make = MMLogger.__init__

    @functools.wraps(make)
    def make_quiet(self: MMLogger, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        for handler in self.handlers:
            if not isinstance(handler, logging.FileHandler):
                handler.addFilter(is_shown)
                handler.setFormatter(format_)

    MMLogger.__init__ = make_quiet
    try:
        yield
    finally:
        MMLogger.__init__ = make


class ResumedBatches:
    """The batches of a loader that stands where the training stands.

    Before a resumed training goes on, the forks ask an iteration-based loop's
    iterator to skip what has been trained on, and upstream's mmengine draws
    and discards it. There is nothing to skip here, nor to load.
    """

    def __init__(self, loader: Iterable, discarded: int) -> None:
        self._loader = loader
        self._discarded = discarded
        self._batches: Iterator | None = None

    def __iter__(self) -> Iterator:
        return self

    def __next__(self) -> object:
        if self._discarded > 0:
            self._discarded -= 1
            return None
        if self._batches is None:
            self._batches = iter(self._loader)
        return next(self._batches)

    def skip_iter(self, num_iters: int) -> None:
        """What the forks call; see above."""


def loader_settings(runner: Any) -> Any:
    """The config of the training's data loader, or the loader itself.

    A runner need not have a config, but it keeps what it builds lazily.
    """
    return runner._train_dataloader


def is_endless(loop: Any) -> bool:
    """Whether a training loop counts iterations and not epochs."""
    return hasattr(loop, 'dataloader_iterator')


def draw_batches_from(loader: Iterable, loop: Any) -> None:
    """Let a training loop use a loader that stands at its iteration."""
    loop.dataloader = loader
    if is_endless(loop):
        can_skip = hasattr(loop.dataloader_iterator, 'skip_iter')
        discarded = 0 if can_skip else loop.iter
        loop.dataloader_iterator = ResumedBatches(loader, discarded)


def weight_cross_entropy(
    loss: Any, weights: Sequence[float], criterion: Callable
) -> bool:
    """Give weights to a ``CrossEntropyLoss``, unless it has its own.

    mmseg's own function fails on ignored pixels once there are weights (in
    some versions only with ``avg_non_ignore=True``), so it is replaced in
    this loss by ``criterion``, which takes the same arguments.
    """
    if loss.class_weight is not None and loss.cls_criterion is not criterion:
        return False
    loss.class_weight = list(weights)
    loss.cls_criterion = criterion
    return True


def go_on_with_trial(study: Any, trial: Any) -> Any:
    """A running trial of an Optuna study, to report to and to finish.

    Optuna hands these out for new trials only.
    """
    from optuna.trial import Trial

    return Trial(study, trial._trial_id)


def decode_into(pixels: Any, image: Any) -> bool:
    """Let Pillow decode a PNG into zeros of ours, one byte for each pixel.

    It has no other way to read an image without copying it. False if that
    did not work, because another Pillow takes memory of its own.
    """
    from PIL import Image

    target = Image.frombuffer(
        image.mode, image.size, pixels, 'raw', image.mode, 0, 1
    )
    image.im = target.im
    image.load()
    return image.im is target.im


def has_stock_loss_stage(head: Any) -> bool:
    """Whether a head has mmseg's own up-sampling, losses and accuracy."""
    from mmseg.models.decode_heads.decode_head import BaseDecodeHead

    names = (LOSS_STAGE, '_stack_batch_gt')
    return LOSS_STAGE not in vars(head) and all(
        getattr(type(head), name) is getattr(BaseDecodeHead, name)
        for name in names
    )


def replace_loss_stage(head: Any, stage: LossStage) -> None:
    """Let one head compute its losses by another function."""
    # A partial, unlike a closure, is copied and pickled with its head.
    setattr(head, LOSS_STAGE, functools.partial(_run_stage, head, stage))


def restore_loss_stage(head: Any) -> None:
    """Give back what :func:`replace_loss_stage` took."""
    vars(head).pop(LOSS_STAGE, None)


def _run_stage(
    head: Any, stage: LossStage, scores: Any, batch_data_samples: Any
) -> dict[str, Any]:
    labels = head._stack_batch_gt(batch_data_samples)
    return stage(head, scores, labels.squeeze(1))
