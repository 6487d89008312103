"""The report of a comparison: one HTML page that needs nothing but itself.

Names of classes and objectives come from outside, so whatever the page holds
is plain text and is escaped by the template.
"""

import base64
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from PIL import Image

from mmseg_margin.atomic_write import atomic_write_text
from mmseg_margin.errors import drawable, printable
from mmseg_margin.pictures import BLUE, ORANGE, picture
from mmseg_margin.tooling.mosaic import draw_mosaic, paint

from . import tables
from .records import (
    PREDICTIONS,
    RESULTS_FILE,
    Comparison,
    read_comparison,
    run_folder,
    save_results,
)

LINES = {'train': ('training', ORANGE), 'val': ('validation', BLUE)}
LONGEST_NAME = 40


def write_report(out: Path, samples: Iterable[dict[str, Any]] = ()) -> Path:
    """Write ``OUT/report/index.html`` and return its path.

    All runs stand in ``results.json`` beside it. The comparison may be
    incomplete.

    Args:
        out: Its folder.
        samples: ``img_path`` and ``gt_seg_map`` of some tested images, whose
            predictions are shown.
    """
    comparison, folder = read_comparison(out), out / 'report'
    folder.mkdir(parents=True, exist_ok=True)
    save_results(comparison, folder / RESULTS_FILE)
    frame = comparison.frame()
    environment = Environment(
        loader=PackageLoader('mmseg_margin.comparison'),
        autoescape=True,
        finalize=lambda value: printable(str(value)),
        undefined=StrictUndefined,
    )
    # Of the tables and pictures, None is left out.
    page = environment.get_template('page.html').render(
        verdict=tables.verdict(comparison),
        warnings=warnings_about(comparison),
        overall=tables.overall_table(frame),
        differences=tables.difference_table(frame),
        classes=tables.class_table(comparison),
        curves=draw_curves(comparison, folder),
        examples=draw_examples(comparison, out, samples),
        settings=settings_of(comparison),
    )
    atomic_write_text(folder / 'index.html', page)
    return folder / 'index.html'


def settings_of(comparison: Comparison) -> dict[str, str]:
    """Settings of all runs; versions and commands may have several values."""
    common, runs = comparison.common, comparison.runs
    settings = {
        'config': [common['config']],
        'iterations': [f'{common["iterations"]:,}'],
        'start from': [
            run.start or 'the initialisation of the config' for run in runs
        ],
        'seeds': sorted(run.seed for run in runs),
    }
    for run in runs:
        settings[f'objective {run.name}'] = run.losses
        for package, version in run.versions.items():
            settings.setdefault(package, []).append(version)
    settings['commands'] = [run.command for run in runs]
    return {
        name: ', '.join(dict.fromkeys(map(str, values)))
        for name, values in settings.items()
    }


def warnings_about(comparison: Comparison) -> list[str]:
    """What a reader has to know about single runs."""
    warnings = []
    for run in comparison.runs:
        if run.error or not run.is_done():
            reason = run.error or 'it has not finished'
            warnings.append(f'{run} is incomplete: {reason}')
        if run.resumed:
            warnings.append(
                f'{run} was interrupted and resumed at iteration '
                f'{", ".join(map(str, run.resumed))}; from there it drew '
                'other samples than the others.'
            )
        if len(run.predicted) == 1:
            name = comparison.common['classes'][run.predicted[0]]
            warnings.append(f'{run} predicts {name} only: train longer.')
    return warnings


def draw_curves(comparison: Comparison, folder: Path) -> str | None:
    """mIoU and loss on training and validation images, as in Figure 3."""
    points = [
        (run.name, curve, iteration, value)
        for run in comparison.runs
        for curve, values in run.curves.items()
        for iteration, value in values
    ]
    if not points:
        return None
    keys = ['objective', 'curve', 'iteration']
    frame = pd.DataFrame(points, columns=[*keys, 'value'])
    curves = frame.groupby(keys)['value'].mean()
    names = frame['objective'].unique()
    path = folder / 'curves.png'
    with picture(path, 9, 2.6 * len(names)) as figure:
        grid = figure.subplots(len(names), 2, squeeze=False)
        for row, name in zip(grid, names, strict=True):
            for axes, quantity in zip(row, ('mIoU', 'loss'), strict=True):
                for split, (label, colour) in LINES.items():
                    means = curves.loc[name, f'{split}_{quantity}']
                    style = {'color': colour, 'label': label}
                    axes.plot(means.index, means, marker='.', **style)
                axes.set(xlabel='iteration', ylabel=quantity)
                axes.legend(frameon=False, fontsize=8)
            row[0].set_ylim(0, 100)
            row[0].set_title(drawable(name[:LONGEST_NAME]), fontsize=11)
    return _address(path)


def draw_examples(
    comparison: Comparison, out: Path, samples: Iterable[dict[str, Any]]
) -> str | None:
    """The samples that every objective has predicted with seed 0."""
    palette = comparison.common['palette']
    folders = {
        run.name: run_folder(out, run.name, 0) / PREDICTIONS
        for run in comparison.done
    }
    rows = []
    for sample in samples:
        image = Path(sample['img_path'])
        files = [place / f'{image.stem}.png' for place in folders.values()]
        if files and all(file.exists() for file in files):
            labels = [np.asarray(Image.open(file)) for file in files]
            labels.append(sample['gt_seg_map'])
            photo = np.asarray(Image.open(image).convert('RGB'))
            rows.append([photo, *(paint(each, palette) for each in labels)])
    if not rows:
        return None
    names = [drawable(name[:LONGEST_NAME]) for name in folders]
    titles = ['image', *names, 'ground truth']
    path = out / 'report' / 'examples.png'
    draw_mosaic(rows, titles, comparison.common['classes'], palette, path)
    return _address(path)


def _address(path: Path) -> str:
    """A picture as an address, which holds all of it."""
    content = base64.b64encode(path.read_bytes()).decode()
    return f'data:image/png;base64,{content}'
