"""From a checkpoint to one with fitted offsets, if these help.

The two differ only in the bias of the classifier and in the meta data.
"""

import io
import json
import logging
from pathlib import Path
from typing import Any

import torch
from mmengine.dist import is_main_process
from mmengine.runner import CheckpointLoader, Runner
from torch import Tensor, nn

from mmseg_margin.atomic_write import atomic_write, atomic_write_text
from mmseg_margin.errors import SettingError
from mmseg_margin.heads import bare_model

from .fit_runner import FitSettings, fit_runner
from .network import find_classifier, shift_bias
from .result import FittedOffsets

META_KEY = 'fitted_offsets'
PREFIX = 'module.'  # of checkpoints of wrapped models


def fit_checkpoint(
    runner: Runner,
    checkpoint: str,
    target: Path | None = None,
    settings: FitSettings | None = None,
    force: bool = False,
) -> FittedOffsets:
    """Fit offsets to a checkpoint, log what they change, and write them.

    Args:
        runner: Made from the config of the checkpoint, which is loaded into
            its model.
        checkpoint: Path or address of the weights; the file is not changed.
        target: The checkpoint to write, with a JSON file and a picture
            beside it. None: ``<checkpoint>_offsets.pth``, in the work dir for
            an address.
        settings: What to fit on, and for which metric, if not the defaults.
        force: Write even if nothing is gained beyond the standard error, and
            over existing files.
    """
    if target is None:
        source = Path(checkpoint)
        is_address = '://' in checkpoint
        folder = Path(runner.work_dir) if is_address else source.parent
        target = folder / f'{source.stem}_offsets.pth'
    check_target(target, checkpoint, force)
    load_weights(runner, checkpoint)
    result = fit_runner(runner, settings or FitSettings())
    if is_main_process():
        logger = logging.getLogger('mmseg_margin')
        logger.info(f'{result.table()}\n{result.summary()}')
        text = (
            'No checkpoint was written, because the gain is not larger than '
            'its standard error: keep the original, or ask for the new one '
            'with --force or force=True.'
        )
        if result.is_better or force:
            write_fitted(checkpoint, target, runner.model, result)
            text = f'Wrote {target}, and beside it a .json and a .png file.'
        logger.info(text)
    return result


def check_target(target: Path, checkpoint: str, force: bool) -> None:
    """Refuse a target that would replace files of another origin."""
    if (
        target.suffix != '.pth'
        or target.resolve() == Path(checkpoint).resolve()
    ):
        raise SettingError(
            f'{target} cannot be the new checkpoint: choose another .pth file.'
        )
    record = target.with_suffix('.json')
    existing = [
        path
        for path in (target, record, target.with_suffix('.png'))
        if path.exists()
    ]
    if existing and not force and not _is_record(record):
        raise SettingError(
            f'{existing[0]} exists and is not of an earlier fit: choose '
            'another target, or replace it with --force or force=True.'
        )


def _is_record(path: Path) -> bool:
    """Whether a JSON file is that of an earlier fit."""
    try:
        record = json.loads(path.read_text('utf-8'))
    except (OSError, ValueError):
        return False
    return isinstance(record, dict) and {'checkpoint', 'offsets'} <= {*record}


def fitted_offsets_of(checkpoint: dict[str, Any]) -> dict[str, Any] | None:
    """The record in a checkpoint whose offsets were fitted, or None."""
    return (checkpoint.get('meta') or {}).get(META_KEY)


def load_weights(runner: Runner, path: str) -> None:
    """Load a checkpoint that belongs to the model and was not fitted yet."""
    checkpoint = CheckpointLoader.load_checkpoint(path, map_location='cpu')
    record = fitted_offsets_of(checkpoint)
    if record is not None:
        raise SettingError(
            f'{path} has fitted offsets already ({record["metric"]} '
            f'{record["before"]["mean"]:.2f} -> '
            f'{record["after"]["mean"]:.2f}): give the original checkpoint.'
        )
    model = bare_model(runner.model)
    find_classifier(model)
    state = {
        key.removeprefix(PREFIX): value
        for key, value in _state_of(checkpoint).items()
    }
    problems = []
    try:
        missing = model.load_state_dict(state, strict=False).missing_keys
        for name, _ in model.named_parameters():
            if name in missing and not name.startswith('auxiliary_head'):
                problems.append(f'{name} is missing')
    except RuntimeError as error:
        problems.append(str(error).strip().splitlines()[-1].strip())
    if problems:
        raise SettingError(
            f"{path} does not belong to the config's network ({problems[0]}): "
            'give the config that it was trained with.'
        )


def write_fitted(
    source: str, target: Path, model: nn.Module, result: FittedOffsets
) -> None:
    """Write ``source`` with the offsets, a JSON file and a picture."""
    checkpoint = CheckpointLoader.load_checkpoint(source, map_location='cpu')
    state = _state_of(checkpoint)
    key = f'{find_classifier(model)[0]}.bias'
    key = key if key in state else f'{PREFIX}{key}'
    bias = shift_bias(state[key], torch.tensor(result.offsets))
    record = result.to_dict()
    fitted = {
        'meta': {**(checkpoint.get('meta') or {}), META_KEY: record},
        'state_dict': {**state, key: bias},
    }
    target.parent.mkdir(parents=True, exist_ok=True)
    # In memory first: torch reports a full disk as an error of its own.
    content = io.BytesIO()
    torch.save(fitted, content)
    with atomic_write(target) as draft:
        draft.write_bytes(content.getbuffer())
    text = json.dumps({'checkpoint': source, **record}, indent=2)
    atomic_write_text(target.with_suffix('.json'), f'{text}\n')
    result.draw(target.with_suffix('.png'))


def _state_of(checkpoint: dict[str, Any]) -> dict[str, Tensor]:
    return checkpoint.get('state_dict', checkpoint)
