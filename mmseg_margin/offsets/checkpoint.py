"""Checkpoints with fitted offsets, which differ only in the bias."""

import io
import json
from pathlib import Path
from typing import Any

import torch
from mmengine.runner import CheckpointLoader, Runner
from torch import Tensor, nn

from mmseg_margin.atomic_write import atomic_write, atomic_write_text
from mmseg_margin.errors import SettingError

from .classifier import find_classifier, shift_bias
from .images import bare_model
from .result import FittedOffsets

META_KEY = 'fitted_offsets'
PREFIX = 'module.'  # of checkpoints of wrapped models


def fitted_offsets_of(checkpoint: dict[str, Any]) -> dict[str, Any] | None:
    """The record in a checkpoint whose offsets were fitted, or None."""
    return (checkpoint.get('meta') or {}).get(META_KEY)


def load_weights(runner: Runner, path: str) -> None:
    """Load a checkpoint that belongs to the model and was not fitted yet."""
    checkpoint = CheckpointLoader.load_checkpoint(path, map_location='cpu')
    record = fitted_offsets_of(checkpoint)
    if record is not None:
        raise SettingError(
            f'{path} has offsets already, fitted on its {record["split"]} '
            f'split ({record["metric"]} {record["before"]["mean"]:.2f} -> '
            f'{record["after"]["mean"]:.2f}): give the original checkpoint.'
        )
    model = bare_model(runner)
    find_classifier(model)
    state = {
        key.removeprefix(PREFIX): value
        for key, value in _state_of(checkpoint).items()
    }
    problem = _load(model, state)
    if problem:
        raise SettingError(
            f"{path} does not belong to the config's network ({problem}): "
            'give the config that it was trained with.'
        )


def write_fitted(
    source: str, target: Path, model: nn.Module, result: FittedOffsets
) -> None:
    """Write a checkpoint with the offsets, a JSON file and a picture.

    Args:
        source: The checkpoint that the offsets were fitted to.
        target: The new checkpoint; the other files are written beside it.
        model: The model of both.
        result: The offsets and their figures.
    """
    # Matplotlib is not imported before a picture is drawn.
    from .picture import draw

    checkpoint = CheckpointLoader.load_checkpoint(source, map_location='cpu')
    state = _state_of(checkpoint)
    key = f'{find_classifier(model)[0]}.bias'
    key = key if key in state else f'{PREFIX}{key}'
    record = result.to_dict()
    fitted = {
        'meta': {**(checkpoint.get('meta') or {}), META_KEY: record},
        'state_dict': {
            **state,
            key: shift_bias(state[key], torch.tensor(result.offsets)),
        },
    }
    target.parent.mkdir(parents=True, exist_ok=True)
    # In memory first: torch reports a full disk as an error of its own.
    content = io.BytesIO()
    torch.save(fitted, content)
    with atomic_write(target) as draft:
        draft.write_bytes(content.getbuffer())
    text = json.dumps({'checkpoint': source, **record}, indent=2)
    atomic_write_text(target.with_suffix('.json'), f'{text}\n')
    draw(result, target.with_suffix('.png'))


def _state_of(checkpoint: dict[str, Any]) -> dict[str, Tensor]:
    return checkpoint.get('state_dict', checkpoint)


def _load(model: nn.Module, state: dict[str, Tensor]) -> str | None:
    """Load weights, or say what is wrong; auxiliary heads may be missing."""
    try:
        missing = model.load_state_dict(state, strict=False).missing_keys
    except RuntimeError as error:
        return str(error).strip().splitlines()[-1].strip()
    needed = [
        name
        for name, _ in model.named_parameters()
        if name in missing and not name.startswith('auxiliary_head')
    ]
    return f'{needed[0]} is missing' if needed else None
