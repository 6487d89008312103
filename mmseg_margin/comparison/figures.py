"""The paper's Figures 3 and 4: curves, and predictions side by side."""

import heapq
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from mmseg_margin.report import pictures
from mmseg_margin.report.pages import Block, Picture
from mmseg_margin.report.pictures import picture, short, title_lines
from mmseg_margin.tooling.mosaic import draw_mosaic, paint

from .curves import PARTS
from .records import FITTED_PREDICTIONS, PREDICTIONS, Run, run_folder
from .results import Results

COLOURS = {
    'margin': pictures.RED,
    'ce': pictures.BLACK,
    'wce': pictures.SKY,
    'focal': pictures.ORANGE,
    'lovasz': pictures.BLUE,
    'dice': pictures.GREEN,
    'jaccard': pictures.PINK,
}
# Tol's colours, for all other objectives.
SPARE = ('#882255', '#999933', '#332288', '#44AA99', '#777777')
# The curves that share a panel, with their lines and labels.
PANELS = {
    'mIoU in %': {
        'train_mIoU': ('--', 'training'),
        'val_mIoU': ('-', 'validation'),
    },
    'loss': {'train_loss': ('--', ''), 'val_loss': ('-', '')},
}
PART_LINES = dict(zip(PARTS, ('-', '--', ':'), strict=True))
IGNORED = 255
WIDTH = 480
MOSAIC_INCHES = 14.0


def colours_of(names: list[str]) -> dict[str, str]:
    """A colour for each objective; the common ones always have the same."""
    spare = cycle(SPARE)
    return {name: COLOURS.get(name) or next(spare) for name in names}


def curve_blocks(results: Results, folder: Path) -> list[Block]:
    """All objectives in one picture, and one picture of each."""
    colours = {
        name: colour
        for name, colour in colours_of(results.names).items()
        if any(any(run.curves.values()) for run in _runs(results, name))
    }
    if not colours:
        return ['No run has recorded any curves.']
    together = folder / 'curves.png'
    with picture(together, 6.4, 4.6) as figure:
        axes = figure.subplots()
        for name, colour in colours.items():
            line = ('-', short(name), colour)
            _draw(axes, _runs(results, name), 'val_mIoU', *line)
        axes.set_xlabel('iteration')
        axes.set_ylabel('validation mIoU in %')
        columns = 4 if max(map(len, colours)) < 16 else 1
        figure.legend(loc='outside lower center', ncols=columns, frameon=False)
    single = []
    for i, (name, colour) in enumerate(colours.items(), 1):
        file = folder / f'curves-{i}.png'
        _draw_one(_runs(results, name), name, colour, file)
        single.append(Picture(file, f'{name}: mIoU and loss.'))
    return [
        'Means over the seeds; the bands are one standard deviation wide on '
        'either side. The losses of different objectives have different units '
        'and cannot be compared with each other.',
        Picture(together, 'Validation mIoU of all objectives.'),
        single,
    ]


def _runs(results: Results, name: str) -> list[Run]:
    return [run for run in results.runs if run.name == name]


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


def _draw_one(runs: list[Run], name: str, colour: str, path: Path) -> None:
    """A panel for the mIoU, the loss, and the parts of the loss if any.

    The parts are those of the decode head: those of auxiliary heads would
    have the same lines.
    """
    kinds = {key: key.rpartition('.')[2] for run in runs for key in run.curves}
    parts = {
        curve: (PART_LINES[kind], curve)
        for curve, kind in kinds.items()
        if kind in PART_LINES and not curve.startswith('aux')
    }
    panels = PANELS | ({'parts of the loss': parts} if parts else {})
    with picture(path, 4.4, 2.3 * len(panels)) as figure:
        column = figure.subplots(len(panels), 1, sharex=True)
        for axes, quantity in zip(column, panels, strict=True):
            for curve, (line, label) in panels[quantity].items():
                _draw(axes, runs, curve, line, label, colour)
            axes.set_ylabel(quantity)
        column[0].set_ylim(0, 100)
        column[0].set_title(title_lines(name), fontsize=11)
        column[-1].set_xlabel('iteration')
        for axes in column[::2]:  # the panel of the loss has no labels
            axes.legend(frameon=False, fontsize=8)


def _draw(
    axes: Any, runs: list[Run], curve: str, line: str, label: str, colour: str
) -> None:
    x, mean, deviation = average_curve([r.curves.get(curve, []) for r in runs])
    axes.plot(x, mean, line, marker='.', color=colour, label=label)
    band = (mean - deviation, mean + deviation)
    axes.fill_between(x, *band, color=colour, alpha=0.15, linewidth=0)


def draw_examples(
    results: Results,
    out: Path,
    samples: Iterable[dict[str, Any]],
    folder: Path,
    rows: int = 4,
) -> Picture | None:
    """A mosaic of the samples on which the objectives differ most."""
    seed, classes = results.seeds[0], results.runs[0].classes
    kinds = {PREDICTIONS: '', FITTED_PREDICTIONS: ',fitted offsets'}
    folders = {
        name + kind: predicted
        for name in results.names
        for subfolder, kind in kinds.items()
        if (predicted := run_folder(out, name, seed) / subfolder).is_dir()
    }
    examples = _examples(list(folders.values()), samples)
    chosen = heapq.nlargest(rows, examples, key=lambda each: each[0])
    if not chosen:
        return None
    palette, images = results.runs[0].palette, []
    for _, path, labels in chosen:
        with Image.open(path) as file:
            photo = np.asarray(file.convert('RGB'))
        painted = [paint(each, palette) for each in labels]
        # By leaving out pixels: mixed colours would belong to no class.
        step = max(1, photo.shape[1] // WIDTH)
        images.append([p[::step, ::step] for p in (photo, *painted)])
    present = {k for _, _, labels in chosen for k in np.unique(labels)}
    shown = [k for k in range(len(classes)) if k in present]
    path = folder / 'examples.png'
    draw_mosaic(
        images,
        ['image', *map(title_lines, folders), 'ground truth'],
        [classes[k] for k in shown],
        [palette[k] for k in shown],
        str(path),
        # Fewer inches make the letters of a wide mosaic larger.
        column_inches=min(2.4, MOSAIC_INCHES / len(images[0])),
    )
    names = ', '.join(f'{image.stem} ({d:.1%})' for d, image, _ in chosen)
    return Picture(
        path,
        f'Predictions with seed {seed} on the images where the objectives '
        f'differ on most labelled pixels: {names}. White is ignored.',
        wide=True,
    )


def _examples(
    folders: Sequence[Path], samples: Iterable[dict[str, Any]]
) -> Iterator[tuple[float, Path, list[NDArray]]]:
    """Disagreement, image, and all predictions before the labels."""
    for sample in samples:
        image, truth = Path(sample['img_path']), sample['gt_seg_map']
        files = [folder / f'{image.stem}.png' for folder in folders]
        if files and all(file.exists() for file in files):
            predictions = [np.asarray(Image.open(file)) for file in files]
            fraction = disagreement(predictions, truth)
            yield fraction, image, [*predictions, truth]


def disagreement(predictions: Sequence[NDArray], truth: NDArray) -> float:
    """Fraction of the labelled pixels that not all predict the same."""
    differs = np.any([each != predictions[0] for each in predictions], axis=0)
    labelled = truth != IGNORED
    return float(differs[labelled].mean()) if labelled.any() else 0.0
