"""Comparisons that nobody ran, in the folders where real ones are."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from mmseg_margin.comparison.runs import (
    PREDICTIONS,
    Results,
    Run,
    by_name,
    run_folder,
    write_run,
)
from mmseg_margin.losses.objectives import parse_objective

# Mean mIoU of each objective, and what the seeds add to it.
LEVELS = {'margin': 72.5, 'ce': 66.2, 'focal': 69.5, 'lovasz': 68.9}
NOISE = (0.4, -0.9, 0.7)
COLOURS = ((60, 60, 60), (220, 60, 60), (60, 160, 60), (60, 90, 220))


def make_run(name: str, seed: int = 0, **fields: Any) -> Run:
    """A run that has not finished."""
    run = Run(
        number=0,
        name=name,
        seed=seed,
        objective=name,
        losses=parse_objective(name),
        config='deeplabv3plus_r18-small_1xb4-1k2_instrument-parts-128x128.py',
        iterations=1200,
        init=None,
        classes=['tissue', 'shaft', 'wrist', 'claspers', 'probe'],
        palette=[*map(list, COLOURS), [230, 190, 40]],
        class_counts=[912_000, 49_000, 14_000, 16_000, 8_000],
        versions={'python': '3.11.2', 'torch': '2.13.0', 'mmseg': '1.4.2'},
        command='compare.py CONFIG --losses margin ce lovasz --seeds 3',
    )
    return replace(run, **fields)


def finish(run: Run, miou: float) -> Run:
    """The run with invented figures."""
    gains = {'mIoU_head': 10, 'mIoU_middle': 0, 'mIoU_tail': -10}
    ends = {'train_mIoU': 90, 'val_mIoU': miou}
    ends |= {'train_loss': 0.4, 'val_loss': 0.7}
    fractions = np.linspace(0.1, 1, 10).tolist()
    metrics = {'aAcc': 90.0, 'mIoU': miou}
    return replace(
        run,
        metrics=metrics | {k: miou + v for k, v in gains.items()},
        class_iou=[miou + 9 - 4 * k for k in range(len(run.classes))],
        curves={
            curve: [(int(x * run.iterations), end * x) for x in fractions]
            for curve, end in ends.items()
        },
        seconds=1.0 + len(run.name) / 10,
        memory=1500 + 10 * len(run.name),
    )


def make_results(runs: list[Run]) -> Results:
    return Results({'': runs}, [*by_name(runs)])


def comparison_of(
    miou: Mapping[str, Sequence[float | None]], **fields: Any
) -> Results:
    """With the mIoU of the seeds of each objective; None has not finished."""
    runs = []
    for name, values in miou.items():
        for seed, value in enumerate(values):
            run = make_run(name, seed, **fields)
            runs.append(run if value is None else finish(run, value))
    return make_results(runs)


def make_comparison(
    names: Collection[str] = ('margin', 'ce', 'lovasz'),
    seeds: Sequence[int] = (0, 1, 2),
    skip: Collection[tuple[str, int]] = (),
    **fields: Any,
) -> Results:
    """All runs have finished but those that are skipped."""
    miou: dict[str, list[float | None]] = {}
    for name in names:
        level = LEVELS[name.partition(':')[0]]
        miou[name] = [
            None if (name, seed) in skip else level + NOISE[seed]
            for seed in seeds
        ]
    return comparison_of(miou, **fields)


def fit(results: Results, gain: float = 2.0) -> Results:
    """The same, measured with fitted offsets as well."""
    runs = []
    for run in results.runs:
        fitted = {
            'offsets': [0.1] * len(run.classes),
            'metrics': {k: v + gain for k, v in run.metrics.items()},
            'class_iou': [iou + gain for iou in run.class_iou],
        }
        runs.append(replace(run, fitted=fitted if run.is_done() else None))
    return make_results(runs)


def write_comparison(out: Path, results: Results) -> None:
    for number, run in enumerate(results.runs):
        folder = run_folder(out, run.name, run.seed)
        write_run(replace(run, number=number), folder)


def write_samples(
    out: Path, results: Results, n: int, kind: str = PREDICTIONS
) -> list[dict[str, Any]]:
    """Images with labels, and the first seed's predictions.

    The objectives differ more on each image than on the one before.
    """
    samples = []
    for i in range(n):
        blocks = np.arange(96, dtype=np.uint8).reshape(8, 12) % 5
        labels = blocks.repeat(8, 0).repeat(8, 1)
        labels[:2] = 255
        stem = f'frame{i:03d}'
        image = _save(40 * labels, out / 'data' / f'{stem}.jpg')
        samples.append({'img_path': str(image), 'gt_seg_map': labels})
        for k, name in enumerate(results.names):
            predicted = np.where(labels == 255, 0, labels)
            predicted[: 8 * i] = k
            folder = run_folder(out, name, results.seeds[0]) / kind
            _save(predicted, folder / f'{stem}.png')
    return samples


def _save(pixels: np.ndarray, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)
    return path
