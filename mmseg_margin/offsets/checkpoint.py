"""From a checkpoint to one with fitted offsets, if these help.

The two differ only in the bias of the classifier and in the meta data.
"""

import json
import logging
from pathlib import Path
from typing import Any

import torch
from mmengine.dist import is_main_process
from mmengine.runner import CheckpointLoader, Runner

from mmseg_margin.atomic_write import atomic_write, atomic_write_text
from mmseg_margin.errors import SettingError
from mmseg_margin.heads import bare_model

from .fit_runner import NUM_IMAGES, FittedOffsets, fit_runner
from .network import find_classifier, shift_bias

META_KEY = 'fitted_offsets'


def fit_checkpoint(
    runner: Runner,
    checkpoint: str,
    target: Path | None = None,
    num_images: int = NUM_IMAGES,
    force: bool = False,
) -> FittedOffsets:
    """Fit offsets to a checkpoint, log what they change, and write them.

    Args:
        runner: Made from the config of the checkpoint, which is loaded into
            its model.
        checkpoint: Path or address of the weights; the file is not changed.
        target: The checkpoint to write, with a JSON file and a picture
            beside it. None: ``<checkpoint>_offsets.pth``, in the work dir for
            an address, instead of that of an earlier fit.
        num_images: Number of training images to fit on, at most.
        force: Write even if nothing is gained, and over existing files.
    """
    source = Path(checkpoint)
    if target is None:
        is_address = '://' in checkpoint
        folder = Path(runner.work_dir) if is_address else source.parent
        target = folder / f'{source.stem}_offsets.pth'
    else:
        _check_target(target, source, force)
    original = load_weights(runner, checkpoint)
    result = fit_runner(runner, num_images)
    if is_main_process():
        logger = logging.getLogger('mmseg_margin')
        logger.info(f'{result.table()}\n{result.summary()}')
        text = (
            'No checkpoint was written, because nothing is gained: keep the '
            'original, or ask for the new one with --force or force=True.'
        )
        if result.gain > 0 or force:
            target.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(target) as draft:
                torch.save(with_offsets(original, runner, result), draft)
            record = {'checkpoint': checkpoint, **result.to_dict()}
            written = json.dumps(record, indent=2)
            atomic_write_text(target.with_suffix('.json'), f'{written}\n')
            result.draw(target.with_suffix('.png'))
            text = f'Wrote {target}, and beside it a .json and a .png file.'
        logger.info(text)
    return result


def _check_target(target: Path, source: Path, force: bool) -> None:
    if target.suffix != '.pth' or target.resolve() == source.resolve():
        raise SettingError(
            f'{target} cannot be the new checkpoint: choose another .pth file.'
        )
    files = [target.with_suffix(x) for x in ('.pth', '.json', '.png')]
    existing = [path for path in files if path.exists()]
    if existing and not force:
        raise SettingError(
            f'{existing[0]} exists: choose another target, or replace it with '
            '--force or force=True.'
        )


def fitted_offsets_of(checkpoint: dict[str, Any]) -> dict[str, Any] | None:
    """The record in a checkpoint whose offsets were fitted, or None."""
    return (checkpoint.get('meta') or {}).get(META_KEY)


def load_weights(runner: Runner, path: str) -> dict[str, Any]:
    """Load a checkpoint that belongs to the model and was not fitted yet."""
    checkpoint = CheckpointLoader.load_checkpoint(path, map_location='cpu')
    if fitted_offsets_of(checkpoint):
        raise SettingError(
            f'{path} has fitted offsets already: give the original checkpoint.'
        )
    model = bare_model(runner.model)
    state = checkpoint.get('state_dict', checkpoint)
    try:
        missing = model.load_state_dict(state, strict=False).missing_keys
        problems = [
            f'{name} is missing'
            for name in missing
            if not name.startswith('auxiliary_head')
        ]
    except RuntimeError as error:
        problems = [str(error).strip().splitlines()[-1].strip()]
    if problems:
        raise SettingError(
            f"{path} does not belong to the config's network ({problems[0]}): "
            'give the config that it was trained with.'
        )
    return checkpoint


def with_offsets(
    checkpoint: dict[str, Any], runner: Runner, result: FittedOffsets
) -> dict[str, Any]:
    """A copy of a checkpoint with the offsets in its bias and its meta."""
    state = checkpoint.get('state_dict', checkpoint)
    key = f'{find_classifier(runner.model)[0]}.bias'
    bias = shift_bias(state[key], torch.tensor(result.offsets))
    meta = checkpoint.get('meta') or {}
    return {
        'meta': {**meta, META_KEY: result.to_dict()},
        'state_dict': {**state, key: bias},
    }
