"""Comparisons that nobody ran, in the folders where real ones are."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from mmseg_margin.comparison.records import (
    COMMON_FILE,
    PREDICTIONS,
    Comparison,
    Run,
    run_folder,
    write_run,
)
from mmseg_margin.losses.objectives import parse_objective

COMMON = {
    'config': 'deeplabv3plus_r18-small_1xb4-1k2_instrument-parts-128x128.py',
    'iterations': 1200,
    'classes': ['tissue', 'shaft', 'wrist', 'claspers', 'probe'],
    'palette': [[60] * 3, [220] * 3, [60, 160, 60], [9, 90, 220], [230] * 3],
    'class_counts': [912_000, 49_000, 14_000, 16_000, 8_000],
}


def make_run(name: str, seed: int, miou: float | None, **fields: Any) -> Run:
    """A run with invented measurements, or an unfinished one."""
    losses = parse_objective(name)
    run = Run(0, name, seed, name, losses, None, 'compare.py CONFIG')
    if miou is None:
        return replace(run, **fields)
    ends = {'train_mIoU': 90, 'val_mIoU': miou, 'train_loss': 1, 'val_loss': 2}
    found = {
        'metrics': {'aAcc': 90.0, 'mIoU': miou, 'mIoU_tail': miou - 10},
        'class_iou': [miou + 9 - 4 * k for k in range(5)],
        'predicted': [0, 1, 2],
        'curves': {
            curve: [(600, end / 2), (1200, float(end))]
            for curve, end in ends.items()
        },
        'seconds': 1.0 + len(name) / 10,
        'versions': {'torch': '2.13.0'},
    }
    return replace(run, **found | fields)


def comparison_of(
    miou: Mapping[str, Sequence[float | None]], **common: Any
) -> Comparison:
    """With the mIoU of the seeds of each objective; None has not finished."""
    runs = [
        make_run(name, seed, value)
        for name, values in miou.items()
        for seed, value in enumerate(values)
    ]
    return Comparison({**COMMON, **common}, runs)


def fit(comparison: Comparison, gain: float) -> Comparison:
    """The same, measured with fitted offsets as well."""
    runs = []
    for run in comparison.runs:
        fitted = {
            'offsets': [0.1] * 5,
            'metrics': {k: v + gain for k, v in run.metrics.items()},
            'class_iou': [iou + gain for iou in run.class_iou],
        }
        runs.append(replace(run, fitted=fitted))
    return replace(comparison, runs=runs)


def write_comparison(out: Path, comparison: Comparison) -> None:
    out.mkdir(exist_ok=True)
    (out / COMMON_FILE).write_text(json.dumps(comparison.common))
    for number, run in enumerate(comparison.runs):
        folder = run_folder(out, run.name, run.seed)
        write_run(replace(run, number=number), folder)


def write_samples(
    out: Path, comparison: Comparison, n: int
) -> list[dict[str, Any]]:
    """Images with labels, and the predictions with seed 0."""
    samples = []
    for i in range(n):
        blocks = np.arange(96, dtype=np.uint8).reshape(8, 12) % 5
        labels = blocks.repeat(8, 0).repeat(8, 1)
        labels[:2] = 255
        image = _save(40 * labels, out / 'data' / f'frame{i}.jpg')
        samples.append({'img_path': str(image), 'gt_seg_map': labels})
        for run in comparison.runs:
            folder = run_folder(out, run.name, 0) / PREDICTIONS
            _save(labels % 5, folder / f'frame{i}.png')
    return samples


def _save(pixels: np.ndarray, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)
    return path
