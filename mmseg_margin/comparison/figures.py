"""Pictures of comparisons: curves, fitted offsets, predictions, differences.

The first and the third are the paper's Figures 3 and 4.
"""

import heapq
from collections.abc import Collection, Iterable, Sequence
from itertools import chain, cycle
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from mmseg_margin.errors import SettingError
from mmseg_margin.functional import OffsetSettings
from mmseg_margin.report import pictures
from mmseg_margin.report.numbers import mean_difference, signed
from mmseg_margin.report.pages import Block, Picture
from mmseg_margin.report.pictures import picture, short, title_lines
from mmseg_margin.tooling.mosaic import draw_mosaic, paint

from .runs import (
    BASELINE,
    FITTED_PREDICTIONS,
    PREDICTIONS,
    Results,
    Run,
    by_name,
    mean_over_seeds,
    run_folder,
)
from .training import PARTS

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
SCHEDULES = (pictures.BLUE, pictures.ORANGE, pictures.GREEN, pictures.PINK)
# The curves that share a panel, with their lines and labels.
PANELS = {
    'mIoU in %': {
        'train_mIoU': ('--', 'training'),
        'val_mIoU': ('-', 'validation'),
    },
    'loss': {'train_loss': ('--', ''), 'val_loss': ('-', '')},
}
PART_LINES = dict(zip(PARTS, ('-', '--', ':'), strict=True))
# Fitted offsets are smaller; the margins of a small data set can be 100.
LARGEST_LINEAR = 10
OFFSETS_CAPTION = (
    'Dots: offsets fitted to the trained networks, which are added to the '
    'scores at inference (mean and standard deviation over the seeds). Bars: '
    'rho_k0 - rho_0k of Algorithm 1 with the default settings; training with '
    'these margins (Eq. 16) asks for a score that is higher by rho_k0 on the '
    'pixels of a class and lower by rho_0k on all others. So above 0 both '
    'raise the score of a class, and below 0 both lower it. The mean over the '
    'classes is subtracted from each, because a number that is added to all '
    'scores changes no prediction. The most frequent class is on the left; a '
    'class without pixels has no bar. An axis is logarithmic beyond 10.'
)
IGNORED = 255
WIDTH = 480
MOSAIC_INCHES = 14.0


def colours_of(names: Iterable[str]) -> dict[str, str]:
    """A colour for each objective; the common ones always have the same."""
    spare = cycle(SPARE)
    return {name: COLOURS.get(name) or next(spare) for name in names}


def curve_blocks(results: Results, folder: Path) -> list[Block]:
    """All objectives in one picture, and one picture of each."""
    colours = colours_of(by_name(results.runs))
    runs = by_name(run for run in results.runs if any(run.curves.values()))
    if not runs:
        return ['No run has recorded any curves.']
    together = folder / 'curves.png'
    with picture(together, 6.4, 4.6) as figure:
        axes = figure.subplots()
        for name, own in runs.items():
            _draw_curve(axes, own, 'val_mIoU', '-', short(name), colours[name])
        axes.set(xlabel='iteration', ylabel='validation mIoU in %')
        columns = 4 if max(map(len, runs)) < 16 else 1
        figure.legend(loc='outside lower center', ncols=columns, frameon=False)
    single = []
    for i, (name, own) in enumerate(runs.items(), 1):
        file = folder / f'curves-{i}.png'
        _draw_objective(own, title_lines(name), colours[name], file)
        single.append(Picture(file, f'{name}: mIoU and loss.'))
    return [
        'Means over the seeds; the bands are one standard deviation wide on '
        'either side. The losses of different objectives have different units '
        'and cannot be compared with each other.',
        Picture(together, 'Validation mIoU of all objectives.'),
        single,
    ]


def _draw_objective(
    runs: list[Run], title: str, colour: str, path: Path
) -> None:
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
        for axes, (quantity, curves) in zip(
            column, panels.items(), strict=True
        ):
            for curve, (line, label) in curves.items():
                _draw_curve(axes, runs, curve, line, label, colour)
            axes.set_ylabel(quantity)
        column[0].set_ylim(0, 100)
        column[0].set_title(title, fontsize=11)
        column[-1].set_xlabel('iteration')
        for axes in column[::2]:  # the panel of the loss has no labels
            axes.legend(frameon=False, fontsize=8)


def _draw_curve(
    axes: Any, runs: list[Run], curve: str, line: str, label: str, colour: str
) -> None:
    x, mean, deviation = average_curve([r.curves.get(curve, []) for r in runs])
    axes.plot(x, mean, line, marker='.', color=colour, label=label)
    band = (mean - deviation, mean + deviation)
    axes.fill_between(x, *band, color=colour, alpha=0.15, linewidth=0)


def average_curve(curves: list[list[tuple[int, float]]]) -> NDArray:
    """Iterations, mean and deviation of what the runs have there, (3, n)."""
    values: dict[int, list[float]] = {}
    for iteration, value in chain.from_iterable(curves):
        values.setdefault(iteration, []).append(value)
    rows = [
        (iteration, np.mean(found), np.std(found, ddof=len(found) > 1))
        for iteration, found in sorted(values.items())
    ]
    return np.array(rows).reshape(-1, 3).T


def draw_offsets(
    results: Results, names: Collection[str], folder: Path
) -> Picture | None:
    """Fitted offsets and those of Algorithm 1, class by class.

    The named objectives are drawn, in a panel for each data set.
    """
    panels: dict[tuple[str, ...], dict[str, list[Run]]] = {}
    for label, runs in results.compared.items():
        schedule, _, data = label.rpartition('/')
        for name, fitted in by_name(r for r in runs if r.fitted).items():
            if name in names:
                # Two data sets may have the same name.
                panel = panels.setdefault((data, *fitted[0].classes), {})
                panel[f'{name}, {schedule}' if schedule else name] = fitted
    if not panels:
        return None
    colours = colours_of(dict.fromkeys(n for p in panels.values() for n in p))
    path = folder / 'offsets.png'
    with picture(path, 10, 3 * len(panels)) as figure:
        column = figure.subplots(len(panels), squeeze=False)[:, 0]
        for axes, (title, *classes), panel in zip(
            column, panels, panels.values(), strict=True
        ):
            first = next(iter(panel.values()))[0]
            order, places = first.class_order, np.arange(len(classes))
            bars = margin_shifts(first.class_counts)[order]
            axes.bar(places, bars, color='#cccccc', label='Algorithm 1')
            for i, (name, fitted) in enumerate(panel.items()):
                offsets = np.array(
                    [r.fitted['offsets'] for r in fitted if r.fitted]
                )
                offsets -= offsets.mean(axis=1, keepdims=True)
                # Side by side, so that equal offsets do not hide each other.
                shift = 0.6 * ((i + 0.5) / len(panel) - 0.5)
                axes.errorbar(
                    places + shift,
                    offsets.mean(axis=0)[order],
                    offsets.std(axis=0, ddof=len(fitted) > 1)[order],
                    fmt='o',
                    markersize=4,
                    color=colours[name],
                    label=short(name),
                )
            names = [short(classes[k], 20) for k in order]
            axes.set_xticks(places, names, rotation=90, fontsize=8)
            if (abs(bars) > LARGEST_LINEAR).any():
                axes.set_yscale('symlog', linthresh=LARGEST_LINEAR, linscale=2)
            axes.axhline(0, color='black', linewidth=0.8)
            axes.set_ylabel('offset less its mean')
            axes.set_title(short(title), fontsize=11)
            axes.legend(loc='upper left', bbox_to_anchor=(1, 1), frameon=False)
    return Picture(path, OFFSETS_CAPTION, wide=True)


def margin_shifts(class_counts: Sequence[int]) -> NDArray:
    """``rho_k0 - rho_0k`` less the mean, (K,); NaN where there is none."""
    present = np.array(class_counts) > 0
    try:
        settings = OffsetSettings(absent_class='zero')
        rho_0k, rho_k0 = settings.offsets(class_counts)
    except SettingError:  # a single class has every pixel
        return np.full(len(present), np.nan)
    shifts = np.where(present, rho_k0 - rho_0k, np.nan)
    return shifts - np.nanmean(shifts)


def draw_examples(
    results: Results,
    out: Path,
    samples: Iterable[dict[str, Any]],
    folder: Path,
    rows: int = 4,
) -> Picture | None:
    """A mosaic of the samples on which the objectives differ most."""
    seed, first = results.seeds[0], results.runs[0]
    kinds = {PREDICTIONS: '', FITTED_PREDICTIONS: ',fitted offsets'}
    folders = {
        name + kind: predicted
        for name in results.names
        for subfolder, kind in kinds.items()
        if (predicted := run_folder(out, name, seed) / subfolder).is_dir()
    }
    chosen: list[tuple[float, Path, list[NDArray]]] = []
    for sample in samples:
        image, truth = Path(sample['img_path']), sample['gt_seg_map']
        files = [folder / f'{image.stem}.png' for folder in folders.values()]
        if files and all(file.exists() for file in files):
            labels = [np.asarray(Image.open(file)) for file in files]
            fraction = disagreement(labels, truth)
            chosen.append((fraction, image, [*labels, truth]))
            chosen = heapq.nlargest(rows, chosen, key=itemgetter(0))
    if not chosen:
        return None
    images = []
    for _, image, labels in chosen:
        with Image.open(image) as file:
            photo = np.asarray(file.convert('RGB'))
        painted = [paint(each, first.palette) for each in labels]
        # By leaving out pixels: mixed colours would belong to no class.
        step = max(1, photo.shape[1] // WIDTH)
        images.append([p[::step, ::step] for p in (photo, *painted)])
    present = {k for _, _, labels in chosen for k in np.unique(labels)}
    shown = [k for k in range(len(first.classes)) if k in present]
    path = folder / 'examples.png'
    draw_mosaic(
        images,
        ['image', *map(title_lines, folders), 'ground truth'],
        [first.classes[k] for k in shown],
        [first.palette[k] for k in shown],
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


def disagreement(predictions: Sequence[NDArray], truth: NDArray) -> float:
    """Fraction of the labelled pixels that not all predict the same."""
    differs = np.any([each != predictions[0] for each in predictions], axis=0)
    labelled = truth != IGNORED
    return float(differs[labelled].mean()) if labelled.any() else 0.0


def draw_differences(results: Results, folder: Path) -> Picture | None:
    """Differences to the baseline: each comparison's, their mean, interval."""
    values = mean_over_seeds(results.differences())
    found = [mean_difference(row) for row in values]
    if not any(found):
        return None
    means = np.array([each.mean if each else np.nan for each in found])
    highs = np.array([each and each.high for each in found], np.float64)
    gains = mean_over_seeds(mean_over_seeds(results.values('gain')))
    rows = np.broadcast_to(np.arange(len(values))[:, None], values.shape)
    style: dict[str, Any] = {'color': pictures.RED, 'zorder': 3}
    path = folder / 'summary.png'
    with picture(path, 8, 1.4 + 0.34 * len(values)) as figure:
        axes = figure.subplots()
        for (schedule, places), colour in zip(
            results.schedules.items(), cycle(SCHEDULES), strict=False
        ):
            label = short(schedule) or 'one comparison'
            points = axes.scatter(values[:, places], rows[:, places], s=22)
            points.set(color=colour, alpha=0.75, label=label)
        intervals = {'xerr': highs - means, 'ecolor': '#444444', 'fmt': 'D'}
        axes.errorbar(means, rows[:, 0], **intervals, **style, label='mean')
        if results.is_fitted:
            style |= {'facecolors': 'none', 'label': 'with fitted offsets'}
            axes.scatter(means + gains, rows[:, 0], marker='D', **style)
        for row in np.flatnonzero(np.isfinite(means)).tolist():
            text = f'{signed(means[row])}   rank {results.ranks()[row]:.2f}'
            beside = axes.get_yaxis_transform()
            axes.text(1.01, row, text, transform=beside, va='center', size=9)
        axes.set_yticks(rows[:, 0], map(short, results.names))
        axes.invert_yaxis()
        axes.axvline(0, color='#000000', linewidth=0.8)
        axes.set_xlabel(f'mIoU, difference to {BASELINE} in points')
        figure.legend(loc='outside upper left', ncols=5, frameon=False)
    caption = (
        f'Difference of the mean mIoU to {BASELINE}: a dot for each '
        'comparison, the mean over them and its 95 % interval '
        "(Student's t over the comparisons)."
    )
    if results.is_fitted:
        caption += (
            f' Fitted offsets are compared with {BASELINE} without them.'
        )
    return Picture(path, caption)
