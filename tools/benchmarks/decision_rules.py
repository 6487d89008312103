"""mIoU of decision rules on the networks of ``tools/compare.py``.

For each objective the network of one seed is measured on every pixel of the
split that the comparison measured: with the argmax, with the fitted offsets of
its record, with ``-t log P_k`` (one t, chosen on the training images that the
offsets are fitted on), and with RankSEG, which needs ``pip install rankseg``.
"""

import argparse
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from mmengine.config import Config
from mmengine.runner import Runner
from torch import Tensor

from mmseg_margin.checkpoints import newest_whole_checkpoint
from mmseg_margin.errors import MissingFileError, MissingPackageError
from mmseg_margin.evaluation.plain_images import plain_loader
from mmseg_margin.offsets import load_weights
from mmseg_margin.offsets.ascent import (
    class_metrics,
    count_areas,
    labelled_mean,
    predict,
)
from mmseg_margin.offsets.fit_runner import NUM_IMAGES, sample_pixels
from mmseg_margin.offsets.network import scored_images
from mmseg_margin.tooling.cli import report_errors
from mmseg_margin.tooling.launch import build_runner, prepare_for_device

OBJECTIVES = ('ce', 'lovasz', 'ce+lovasz', 'margin', 'jaccard')
RULES = ('argmax', 'fitted offsets', 'one t', 'RankSEG')
# Of both signs, because either may help.
TEMPERATURES = torch.arange(-20, 21) / 20
Rule = Callable[[Tensor], Tensor]


def rank_seg() -> Rule:
    try:
        from rankseg import RankSEG
    except ImportError as error:
        raise MissingPackageError(
            'RankSEG is not installed: pip install rankseg'
        ) from error
    solver = RankSEG(metric='IoU', output_mode='multiclass', solver='RMA')
    return lambda scores: solver.predict(scores.softmax(0)[None])[0].long()


def add_offsets(offsets: Tensor) -> Rule:
    return lambda scores: (scores + offsets[:, None, None]).argmax(0)


def one_t(runner: Runner, class_counts: list[int]) -> tuple[float, Tensor]:
    """The t that is best on training images, and its offsets."""
    loader = plain_loader(runner, 'train', 'val', NUM_IMAGES)
    scores, labels, _ = sample_pixels(runner, loader)
    counts = torch.tensor(class_counts).float()
    # A class without a pixel keeps 0, as in the fit.
    log_prior = (counts / counts.sum()).log().where(counts > 0, 0)
    means = [
        labelled_mean(
            count_areas(predict(scores, -t * log_prior), labels, len(counts)),
            'mIoU',
        )
        for t in TEMPERATURES
    ]
    best = TEMPERATURES[torch.stack(means).argmax()]
    return float(best), -best * log_prior


def open_run(folder: Path, work_dir: str) -> Runner:
    """The network of a run, with nothing written to the run's folder."""
    cfg = Config.fromfile(folder / 'run.py')
    cfg.val_dataloader, cfg.val_cfg = cfg.test_dataloader, dict(type='ValLoop')
    cfg.val_evaluator = dict(type='IoUMetric')
    cfg.work_dir, cfg.custom_hooks, cfg.log_level = work_dir, [], 'ERROR'
    prepare_for_device(cfg)
    runner = build_runner(cfg)
    load_weights(runner, newest_whole_checkpoint(str(folder)))
    runner.model.eval()
    return runner


def measure(folder: Path) -> tuple[float, list[float]]:
    """The t of one run, and the mIoU of each rule in percent."""
    record: dict[str, Any] = json.loads((folder / 'record.json').read_text())
    if not record.get('fitted'):
        raise MissingFileError(
            f'{folder} has no fitted offsets: run the comparison with '
            '--fit-offsets.'
        )
    with tempfile.TemporaryDirectory() as work_dir:
        runner = open_run(folder, work_dir)
        t, shift = one_t(runner, record['class_counts'])
        fitted = torch.tensor(record['fitted']['offsets'])
        zeros = torch.zeros_like(fitted)
        rules = [*map(add_offsets, (zeros, fitted, shift)), rank_seg()]
        K = len(zeros)
        areas = torch.zeros(len(rules), 3, K, dtype=torch.float64)
        loader = plain_loader(runner, 'val', 'val')
        for _, scores, labels in scored_images(runner, loader, str(folder)):
            chosen = labels < K
            for i, rule in enumerate(rules):
                predicted = rule(scores)[chosen]
                areas[i] += count_areas(predicted, labels[chosen], K)
    return t, (100 * class_metrics(areas, 'mIoU').nanmean(-1)).tolist()


def row(name: str, figures: list[float], t: str) -> str:
    first, *others = figures
    gains = (f'{value:.2f} ({value - first:+.2f})' for value in others)
    return f'| {name} | {first:.2f} | {" | ".join(gains)} | {t} |'


@report_errors
def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('comparisons', nargs='+', type=Path, metavar='FOLDER')
    parser.add_argument('--losses', nargs='+', default=OBJECTIVES)
    parser.add_argument('--seed', type=int, default=0)
    args = parser.parse_args(argv)
    rank_seg()  # refused before anything is measured
    print(f'| network | {" | ".join(RULES)} | t |\n|{"---|" * 6}')
    found = []
    for folder in args.comparisons:
        for name in args.losses:
            t, figures = measure(folder / 'runs' / name / f'seed-{args.seed}')
            found.append(figures)
            print(row(f'{folder.name} {name}', figures, f'{t:g}'), flush=True)
    print(row('mean', torch.tensor(found).mean(0).tolist(), ''))


if __name__ == '__main__':
    main()
