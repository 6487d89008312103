"""Comparisons that nobody ran, in the folders where real ones are."""

from collections.abc import Collection, Mapping, Sequence
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
from mmseg_margin.comparison.results import Comparison
from mmseg_margin.losses.objectives import parse_objective
from mmseg_margin.report.pages import Table

# Mean mIoU of each objective.
LEVELS = {'margin': 72.5, 'ce': 66.2, 'focal': 69.5, 'lovasz': 68.9}
COLOURS = ((60, 60, 60), (220, 60, 60), (60, 160, 60), (60, 90, 220))


def make_setup(
    losses: Collection[str] = ('margin', 'ce', 'lovasz'),
    seeds: Collection[int] = (0, 1, 2),
    **fields: Any,
) -> Setup:
    setup = Setup(
        config='deeplabv3plus_r18-small_1xb4-1k2_instrument-parts-128x128.py',
        objectives={name: name for name in losses},
        losses={name: parse_objective(name) for name in losses},
        seeds={name: list(seeds) for name in losses},
        iterations=1200,
        init=None,
        classes=['tissue', 'shaft', 'wrist', 'claspers', 'probe'],
        palette=[*map(list, COLOURS), [230, 190, 40]],
        class_counts=[912_000, 49_000, 14_000, 16_000, 8_000],
        versions={'python': '3.11.2', 'torch': '2.13.0', 'mmseg': '1.4.2'},
        commands=['compare.py CONFIG --losses margin ce lovasz --seeds 3'],
    )
    return replace(setup, **fields)


def make_comparison(
    setup: Setup | None = None, skip: Collection[tuple[str, int]] = ()
) -> Comparison:
    """All runs of a setup but those that are skipped."""
    setup = setup or make_setup()
    return Comparison(
        setup,
        {
            (name, seed): make_result(setup, name, seed)
            for name, seeds in setup.seeds.items()
            for seed in seeds
            if (name, seed) not in skip
        },
    )


def comparison_of(miou: Mapping[str, Sequence[float | None]]) -> Comparison:
    """With the mIoU of the seeds of each objective; the tail is 10 below."""
    seeds = range(max(map(len, miou.values())))
    results = {
        (name, seed): RunResult(
            name, seed, {'mIoU': value, 'mIoU_tail': value - 10.0}, [50.0] * 5
        )
        for name, values in miou.items()
        for seed, value in enumerate(values)
        if value is not None
    }
    return Comparison(make_setup(miou, seeds), results)


def make_result(setup: Setup, name: str, seed: int) -> RunResult:
    rng = np.random.default_rng([seed, *name.encode()])
    level = LEVELS[name.partition(':')[0]] + rng.normal()
    gains = {'mIoU_head': 10, 'mIoU_middle': 0, 'mIoU_tail': -10}
    ends = {'train_mIoU': 90, 'val_mIoU': level}
    ends |= {'train_loss': 0.4, 'val_loss': 0.7}
    shares = np.linspace(0.1, 1, 10).tolist()
    return RunResult(
        name,
        seed,
        {
            'aAcc': 90.0,
            'mIoU': level,
            **{k: level + v for k, v in gains.items()},
        },
        (level + rng.normal(0, 9, len(setup.classes))).tolist(),
        {
            curve: [(int(x * setup.iterations), end * x) for x in shares]
            for curve, end in ends.items()
        },
        seconds_per_iteration=1.0 + len(name) / 10 + rng.random() / 50,
        peak_memory_mib=1500 + 10 * len(name),
    )


def cells(table: Table) -> dict[tuple[str, str], str]:
    """The cells of a table by the names of row and column."""
    return {
        (row[0], column): cell
        for row in table.rows
        for column, cell in zip(table.header, row, strict=True)
    }


def write_comparison(out: Path, comparison: Comparison) -> None:
    write_record(comparison.setup, out / SETUP_FILE)
    for (name, seed), result in comparison.results.items():
        write_record(result, run_folder(out, name, seed) / RESULT_FILE)


def write_samples(out: Path, setup: Setup, n: int) -> list[dict[str, Any]]:
    """Images with labels, and the first seed's predictions.

    The objectives differ more on each image than on the one before.
    """
    samples = []
    for i in range(n):
        rng = np.random.default_rng(i)
        blocks = rng.integers(len(setup.classes), size=(8, 12), dtype=np.uint8)
        labels = blocks.repeat(8, 0).repeat(8, 1)
        labels[:2] = 255
        stem = f'frame{i:03d}'
        image = _save(40 * labels, out / 'data' / f'{stem}.jpg')
        samples.append({'img_path': str(image), 'gt_seg_map': labels})
        for name in setup.losses:
            predicted = np.where(labels == 255, 0, labels)
            for _ in range(3 * i):
                y, x = rng.integers(0, labels.shape)
                predicted[y : y + 12, x : x + 12] = rng.integers(5)
            folder = run_folder(out, name, setup.all_seeds[0]) / PREDICTIONS
            _save(predicted, folder / f'{stem}.png')
    return samples


def _save(pixels: np.ndarray, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)
    return path
