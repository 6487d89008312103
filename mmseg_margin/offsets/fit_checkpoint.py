"""From a checkpoint to one with fitted offsets, if these help."""

from pathlib import Path

from mmengine.dist import is_main_process
from mmengine.logging import print_log
from mmengine.runner import Runner

from .checkpoint import load_weights, write_fitted
from .fit_runner import NUM_IMAGES, fit_runner
from .result import FittedOffsets

SUFFIX = '_offsets.pth'


def fit_checkpoint(
    runner: Runner,
    checkpoint: str,
    target: Path | None = None,
    split: str = 'train',
    num_images: int = NUM_IMAGES,
    metric: str = 'mIoU',
    force: bool = False,
) -> FittedOffsets:
    """Fit offsets to a checkpoint, log what they change, and write them.

    Args:
        runner: Made from the config of the checkpoint, which is loaded into
            its model.
        checkpoint: Path or address of the weights; the file is not changed.
        target: The checkpoint to write, with a JSON file and a picture
            beside it. None: ``<checkpoint>_offsets.pth``.
        split, num_images, metric: As in :func:`fit_runner`.
        force: Write even if nothing is gained beyond the standard error.
    """
    load_weights(runner, checkpoint)
    result = fit_runner(runner, split, num_images, metric)
    target = target or default_target(checkpoint, runner.work_dir)
    if is_main_process():
        _say(f'{result.table()}\n{result.summary()}')
        if result.is_better or force:
            write_fitted(checkpoint, target, runner.model, result)
            _say(f'Wrote {target}, and beside it a .json and a .png file.')
        else:
            _say(
                'No checkpoint was written, because the gain is not larger '
                'than its standard error: keep the original, or ask for the '
                'new one with --force or force=True.'
            )
    return result


def default_target(checkpoint: str, work_dir: str) -> Path:
    """Beside the checkpoint, or in the work dir for one with an address."""
    path = Path(checkpoint)
    folder = Path(work_dir) if '://' in checkpoint else path.parent
    return folder / f'{path.stem}{SUFFIX}'


def _say(text: str) -> None:
    print_log(text, logger='current')
