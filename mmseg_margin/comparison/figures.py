"""The paper's Figures 3 and 4: curves, and predictions side by side."""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from mmengine.config import Config
from mmengine.registry import init_default_scope
from mmseg.registry import DATASETS, TRANSFORMS
from numpy.typing import NDArray
from PIL import Image

from mmseg_margin.atomic_write import atomic_write
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
# Name, image file and label file.
Sample = tuple[str, Path, Path]


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


def write_ground_truth(cfg: Config, out: Path) -> list[Sample]:
    """Labels of the test split as class indices, whatever its files hold."""
    init_default_scope(cfg.get('default_scope', 'mmseg'))
    settings = cfg.test_dataloader.dataset
    dataset = DATASETS.build(settings)
    load_labels = TRANSFORMS.build(
        next(t for t in settings.pipeline if t.type == 'LoadAnnotations')
    )
    folder = out / 'ground_truth'
    folder.mkdir(parents=True, exist_ok=True)
    samples = []
    for index in range(len(dataset)):
        info = dataset.get_data_info(index)
        image = Path(info['img_path'])
        labels = folder / f'{image.stem}.png'
        if not labels.exists():
            loaded = load_labels(info)['gt_seg_map']
            with atomic_write(labels) as draft:
                Image.fromarray(loaded.astype(np.uint8)).save(draft, 'png')
        samples.append((image.stem, image, labels))
    return samples


def draw_examples(
    comparison: Comparison,
    out: Path,
    samples: Sequence[Sample],
    folder: Path,
    rows: int = 4,
) -> dict[str, Any] | None:
    """A mosaic of the samples on which the objectives differ most.

    Returns:
        Its ``file``, the ``seed`` of its predictions and its ``images``.
    """
    setup = comparison.setup
    seed = setup.all_seeds[0]
    predictions = {
        name: predicted
        for name in setup.losses
        if (predicted := run_folder(out, name, seed) / PREDICTIONS).is_dir()
    }
    shares = {}
    for sample in samples:
        files = _prediction_files(predictions, sample)
        if files and all(file.exists() for file in files):
            shares[sample] = disagreement(files, sample[2])
    if not shares:
        return None
    chosen = sorted(shares, key=lambda sample: -shares[sample])[:rows]
    pictures = []
    shown: set[int] = set()
    for sample in chosen:
        _, image, truth = sample
        files = [*_prediction_files(predictions, sample), truth]
        labels = [_read_labels(file) for file in files]
        shown.update(*(np.unique(label).tolist() for label in labels))
        painted = [paint(label, setup.palette) for label in labels]
        with Image.open(image) as file:
            photo = np.asarray(file.convert('RGB'))
        pictures.append([_shrink(each) for each in (photo, *painted)])
    classes = sorted(shown & set(range(len(setup.classes))))
    path = folder / 'examples.png'
    draw_mosaic(
        pictures,
        ['image', *map(title_lines, predictions), 'ground truth'],
        [setup.classes[k] for k in classes],
        [setup.palette[k] for k in classes],
        str(path),
        # Fewer inches make the letters of a wide mosaic larger.
        column_inches=min(2.4, MOSAIC_INCHES / len(pictures[0])),
    )
    images = ', '.join(f'{s[0]} ({shares[s]:.1%})' for s in chosen)
    return {'file': path, 'seed': seed, 'images': images}


def disagreement(predictions: Sequence[Path], truth: Path) -> float:
    """Share of the labelled pixels that not all predict the same."""
    first, *others = map(_read_labels, predictions)
    labelled = _read_labels(truth) != IGNORED
    differs = np.zeros_like(labelled)
    for other in others:
        differs |= other != first
    return float(differs[labelled].mean()) if labelled.any() else 0.0


def _prediction_files(folders: dict[str, Path], sample: Sample) -> list[Path]:
    return [folder / f'{sample[0]}.png' for folder in folders.values()]


def _read_labels(path: Path) -> np.ndarray:
    with Image.open(path) as image:
        return np.asarray(image)


def _shrink(pixels: np.ndarray) -> np.ndarray:
    # By leaving out pixels: mixed colours would belong to no class.
    step = max(1, pixels.shape[1] // WIDTH)
    return pixels[::step, ::step]
