"""The paper's Figures 3 and 4: curves, and predictions side by side."""

import heapq
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from mmseg_margin.report.pictures import colours_of, picture, title_lines
from mmseg_margin.terminal import drawable
from mmseg_margin.tooling.mosaic import draw_mosaic, paint

from .records import PREDICTIONS, RunResult, run_folder
from .results import Comparison

# Train and validation share a colour, so their lines differ.
LINES = {'train': ('--', 'training'), 'val': ('-', 'validation')}
QUANTITIES = {'mIoU': 'mIoU in %', 'loss': 'loss'}
IGNORED = 255
WIDTH = 480
MOSAIC_INCHES = 14.0


def draw_curves(
    comparison: Comparison, folder: Path
) -> tuple[Path, dict[str, Path]] | None:
    """A file with all objectives and one of each; None without curves."""
    colours = {
        name: colour
        for name, colour in colours_of(comparison.names).items()
        if any(any(run.curves.values()) for run in comparison.runs(name))
    }
    if not colours:
        return None
    together = folder / 'curves.png'
    with picture(together, 6.4, 4.6) as figure:
        axes = figure.subplots()
        for name, colour in colours.items():
            _draw(axes, comparison.runs(name), 'val_mIoU', colour, '-', name)
        axes.set_xlabel('iteration')
        axes.set_ylabel('validation mIoU in %')
        columns = 4 if max(map(len, colours)) < 16 else 1
        figure.legend(loc='outside lower center', ncols=columns, frameon=False)
    single = {}
    for i, (name, colour) in enumerate(colours.items(), 1):
        single[name] = folder / f'curves-{i}.png'
        _draw_one(comparison.runs(name), name, colour, single[name])
    return together, single


def average_curve(
    curves: list[list[tuple[int, float]]],
) -> tuple[NDArray, NDArray, NDArray]:
    """Iterations, and mean and deviation of what the runs have at each."""
    values: dict[int, list[float]] = defaultdict(list)
    for points in curves:
        for iteration, value in points:
            values[iteration].append(value)
    found = sorted(values.items())
    return (
        np.array([iteration for iteration, _ in found]),
        np.array([np.mean(each) for _, each in found]),
        np.array([np.std(each, ddof=len(each) > 1) for _, each in found]),
    )


def _draw_one(
    runs: list[RunResult], name: str, colour: str, path: Path
) -> None:
    """The mIoU above the loss, each on training and validation images."""
    with picture(path, 4.4, 4.6) as figure:
        panels = figure.subplots(2, 1, sharex=True)
        for axes, quantity in zip(panels, QUANTITIES, strict=True):
            for split, (line, label) in LINES.items():
                _draw(axes, runs, f'{split}_{quantity}', colour, line, label)
            axes.set_ylabel(QUANTITIES[quantity])
        panels[0].set_ylim(0, 100)
        panels[0].set_title(title_lines(name), fontsize=11)
        panels[0].legend(frameon=False)
        panels[1].set_xlabel('iteration')


def _draw(
    axes: Any,
    runs: list[RunResult],
    curve: str,
    colour: str,
    line: str,
    label: str,
) -> None:
    x, mean, deviation = average_curve([r.curves.get(curve, []) for r in runs])
    style = dict(marker='.', color=colour, label=drawable(label))
    axes.plot(x, mean, line, **style)
    band = (mean - deviation, mean + deviation)
    axes.fill_between(x, *band, color=colour, alpha=0.15, linewidth=0)


def draw_examples(
    comparison: Comparison,
    out: Path,
    samples: Iterable[dict[str, Any]],
    folder: Path,
    rows: int = 4,
) -> dict[str, Any] | None:
    """A mosaic of the samples on which the objectives differ most.

    Returns:
        Its ``file``, the ``seed`` of its predictions and its ``images``.
    """
    setup = comparison.setup
    seed = setup.all_seeds[0]
    folders = {
        name: predicted
        for name in setup.losses
        if (predicted := run_folder(out, name, seed) / PREDICTIONS).is_dir()
    }
    examples = _examples(list(folders.values()), samples)
    chosen = heapq.nlargest(rows, examples, key=lambda each: each[0])
    if not chosen:
        return None
    pictures = []
    shown: set[int] = set()
    for _, image, labels in chosen:
        shown.update(*(np.unique(each).tolist() for each in labels))
        painted = [paint(each, setup.palette) for each in labels]
        with Image.open(image) as file:
            photo = np.asarray(file.convert('RGB'))
        # By leaving out pixels: mixed colours would belong to no class.
        step = max(1, photo.shape[1] // WIDTH)
        pictures.append([p[::step, ::step] for p in (photo, *painted)])
    classes = sorted(shown & set(range(len(setup.classes))))
    path = folder / 'examples.png'
    draw_mosaic(
        pictures,
        ['image', *map(title_lines, folders), 'ground truth'],
        [setup.classes[k] for k in classes],
        [setup.palette[k] for k in classes],
        str(path),
        # Fewer inches make the letters of a wide mosaic larger.
        column_inches=min(2.4, MOSAIC_INCHES / len(pictures[0])),
    )
    images = ', '.join(f'{image.stem} ({d:.1%})' for d, image, _ in chosen)
    return {'file': path, 'seed': seed, 'images': images}


def _examples(
    folders: Sequence[Path], samples: Iterable[dict[str, Any]]
) -> Iterator[tuple[float, Path, list[NDArray]]]:
    """Disagreement, image, and all predictions before the labels."""
    for sample in samples:
        image, truth = Path(sample['img_path']), sample['gt_seg_map']
        files = [folder / f'{image.stem}.png' for folder in folders]
        if files and all(file.exists() for file in files):
            predictions = [np.asarray(Image.open(file)) for file in files]
            share = disagreement(predictions, truth)
            yield share, image, [*predictions, truth]


def disagreement(predictions: Sequence[NDArray], truth: NDArray) -> float:
    """Share of the labelled pixels that not all predict the same."""
    differs = np.any([each != predictions[0] for each in predictions], axis=0)
    labelled = truth != IGNORED
    return float(differs[labelled].mean()) if labelled.any() else 0.0
