"""The paper's Figure 4: predictions and ground truth side by side."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from mmengine.config import Config
from mmengine.registry import init_default_scope
from mmseg.registry import DATASETS, TRANSFORMS
from PIL import Image

from mmseg_margin.atomic_write import atomic_write
from mmseg_margin.report.pictures import title_lines
from mmseg_margin.tooling.mosaic import draw_mosaic, paint

from .records import PREDICTIONS, run_folder
from .results import Comparison

IGNORED = 255
WIDTH = 480
MOSAIC_INCHES = 14.0
# Name, image file and label file.
Sample = tuple[str, Path, Path]


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
