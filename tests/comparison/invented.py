"""Comparisons that nobody ran, in the folders where real ones are."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from mmseg_margin.comparison.records import (
    PREDICTIONS,
    RESULT_FILE,
    SETUP_FILE,
    RunResult,
    Setup,
    run_folder,
    write_record,
)
from mmseg_margin.losses.objectives import terms_of
from mmseg_margin.report.pages import Table

CLASSES = ['tissue', 'shaft', 'wrist', 'claspers', 'probe']
COUNTS = [912_000, 49_000, 14_000, 16_000, 8_000]
# Mean mIoU of each objective, and how it varies from seed to seed.
LEVELS = {
    'margin': 72.5,
    'ce': 66.2,
    'wce': 64.0,
    'focal': 69.5,
    'lovasz': 68.9,
    'dice': 27.3,
    'tversky': 43.8,
}
Sample = tuple[str, Path, Path]


def make_setup(
    losses: tuple[str, ...] = ('margin', 'ce', 'lovasz'),
    seeds: tuple[int, ...] = (0, 1, 2),
    **fields: Any,
) -> Setup:
    setup = Setup(
        config='deeplabv3plus_r18-small_1xb4-1k2_instrument-parts-128x128.py',
        objectives={name: name for name in losses},
        losses={name: terms_of(name) for name in losses},
        seeds={name: list(seeds) for name in losses},
        iterations=1200,
        init=None,
        classes=CLASSES,
        palette=[
            [60, 60, 60],
            [220, 60, 60],
            [60, 160, 60],
            [60, 90, 220],
            [230, 190, 40],
        ],
        class_counts=COUNTS,
        versions={'python': '3.11.2', 'torch': '2.13.0', 'mmseg': '1.4.2'},
        commands=['compare.py CONFIG --losses margin ce lovasz --seeds 3'],
    )
    return replace(setup, **fields)


def make_result(setup: Setup, objective: str, seed: int) -> RunResult:
    rng = np.random.default_rng([seed, *objective.encode()])
    kind = objective.partition(':')[0]
    level = LEVELS[kind] + np.random.default_rng(seed).normal()
    order = np.argsort(np.argsort(-np.array(setup.class_counts)))
    spread = 35 * (0.5 - order / len(order))
    iou = np.clip(level + spread + rng.normal(0, 1.5, len(order)), 0, 100)
    thirds = np.array_split(iou[np.argsort(order)], 3)
    names = ('mIoU_head', 'mIoU_middle', 'mIoU_tail')
    return RunResult(
        name=objective,
        seed=seed,
        metrics={
            'aAcc': 80 + level / 8,
            'mIoU': iou.mean(),
            'mAcc': level + 5,
            **{n: t.mean() for n, t in zip(names, thirds, strict=True)},
        },
        class_iou=iou.tolist(),
        curves=_make_curves(setup.iterations, level, rng),
        seconds_per_iteration=1.0 + len(objective) / 10 + rng.random() / 50,
        peak_memory_mib=1500 + 10 * len(objective),
    )


def cells(table: Table) -> dict[tuple[str, str], str]:
    """The cells of a table by the names of row and column."""
    return {
        (row[0], column): cell
        for row in table.rows
        for column, cell in zip(table.header, row, strict=True)
    }


def write_comparison(
    out: Path, setup: Setup, skip: tuple[tuple[str, int], ...] = ()
) -> None:
    """The setup and the result of every run that is not skipped."""
    write_record(setup, out / SETUP_FILE)
    for objective, seeds in setup.seeds.items():
        for seed in seeds:
            if (objective, seed) not in skip:
                write_result(out, make_result(setup, objective, seed))


def write_result(out: Path, result: RunResult) -> None:
    folder = run_folder(out, result.name, result.seed)
    write_record(result, folder / RESULT_FILE)


def write_samples(
    out: Path, setup: Setup, n: int = 6, size: tuple[int, int] = (96, 64)
) -> list[Sample]:
    """Images, labels and the first seed's predictions.

    The objectives differ more on each image than on the one before.
    """
    samples = []
    for i in range(n):
        truth = _blobs(len(setup.classes), size, seed=i)
        samples.append(_write_sample(out / 'data', f'frame{i:03d}', truth))
        for j, objective in enumerate(setup.losses):
            rng = np.random.default_rng([i, j])
            prediction = truth.copy()
            prediction[truth == 255] = 0
            for _ in range(3 * i):
                y, x = rng.integers(0, truth.shape)
                prediction[y : y + 12, x : x + 12] = rng.integers(
                    len(setup.classes)
                )
            folder = (
                run_folder(out, objective, setup.all_seeds[0]) / PREDICTIONS
            )
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(prediction).save(folder / f'frame{i:03d}.png')
    return samples


def _make_curves(
    iterations: int, level: float, rng: np.random.Generator
) -> dict[str, list[tuple[int, float]]]:
    steps = np.linspace(iterations / 10, iterations, 10).astype(int)
    rise = 1 - np.exp(-3 * steps / iterations)
    curves = {
        'train_mIoU': (level + 6) * rise + rng.normal(0, 0.8, 10),
        'val_mIoU': level * rise + rng.normal(0, 1.2, 10),
        'train_loss': 2 - 1.6 * rise + rng.normal(0, 0.03, 10),
        'val_loss': 2 - 1.3 * rise + rng.normal(0, 0.05, 10),
    }
    return {
        name: list(zip(steps.tolist(), values.tolist(), strict=True))
        for name, values in curves.items()
    }


def _blobs(classes: int, size: tuple[int, int], seed: int) -> np.ndarray:
    """Discs of the classes on class 0, and an ignored border."""
    width, height = size
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width]
    truth = np.zeros((height, width), np.uint8)
    for k in range(1, classes):
        centre = rng.random(2) * size
        radius = height * (0.1 + 0.15 * rng.random())
        truth[np.hypot(x - centre[0], y - centre[1]) < radius] = k
    truth[:2] = 255
    return truth


def _write_sample(folder: Path, stem: str, truth: np.ndarray) -> Sample:
    folder.mkdir(parents=True, exist_ok=True)
    image, label = folder / f'{stem}.jpg', folder / f'{stem}_label.png'
    noise = np.random.default_rng(1).integers(0, 60, (*truth.shape, 3))
    colours = 40 * (truth % 5)[..., None] + noise
    Image.fromarray(colours.astype(np.uint8)).save(image)
    Image.fromarray(truth).save(label)
    return stem, image, label
