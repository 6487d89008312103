"""mIoU of decision rules on the networks of ``tools/compare.py``.

The network of seed 0 of each objective is measured on the split of the
comparison: with the argmax, with the fitted offsets of its record, with
``-t log P_k`` for the one t that is best on training images, and with RankSEG.
"""

import argparse
import itertools
import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from mmengine.config import Config
from mmengine.runner import Runner
from torch import Tensor

from mmseg_margin.checkpoints import newest_whole_checkpoint
from mmseg_margin.errors import MissingPackageError, SettingError
from mmseg_margin.evaluation.generalisation_gap_hook import plain_loader
from mmseg_margin.offsets import fit, load_weights
from mmseg_margin.offsets.fit_runner import NUM_IMAGES, sample_pixels
from mmseg_margin.offsets.network import scored_images
from mmseg_margin.tooling.cli import report_errors
from mmseg_margin.tooling.launch import build_runner, prepare_for_device

OBJECTIVES = ('ce', 'lovasz', 'ce+lovasz', 'margin', 'jaccard')
HEADER = '| network | argmax | fitted offsets | one t | RankSEG | t |'
# Of both signs, because either may help.
FACTORS = [t / 20 for t in range(-20, 21)]


def rank_seg() -> Callable[[Tensor], Tensor]:
    try:
        from rankseg import RankSEG
    except ImportError as error:
        raise MissingPackageError(
            'RankSEG is not installed: pip install --no-deps rankseg'
        ) from error
    solver = RankSEG(metric='IoU', output_mode='multiclass', solver='RMA')
    return lambda scores: solver.predict(scores.softmax(0)[None])[0].long()


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


def choose_t(runner: Runner, log_prior: Tensor) -> float:
    """The t whose offsets give the best mIoU on training images."""
    loader = plain_loader(runner, 'train', 'val', NUM_IMAGES)
    scores, labels, _ = sample_pixels(runner, loader)

    def miou(t: float) -> float:
        predicted = fit.predict(scores, -t * log_prior)
        areas = fit.count_areas(predicted, labels, len(log_prior))
        return float(fit.labelled_mean(areas, 'mIoU'))

    return max(FACTORS, key=miou)


def measure(
    folder: Path, work_dir: str, decide: Callable[[Tensor], Tensor]
) -> tuple[float, list[float]]:
    """The t of a run, and the mIoU of each rule in percent."""
    record = json.loads((folder / 'record.json').read_text('utf-8'))
    if not record.get('fitted'):
        raise SettingError(f'{folder}: run the comparison with --fit-offsets.')
    counts = torch.tensor(record['class_counts']).float()
    # A class without a pixel keeps the offset 0, as in the fit.
    log_prior = (counts / counts.sum()).log().where(counts > 0, 0)
    runner = open_run(folder, work_dir)
    t = choose_t(runner, log_prior)
    fitted = torch.tensor(record['fitted']['offsets'])
    K, offsets = len(fitted), (0 * fitted, fitted, -t * log_prior)
    areas = torch.zeros(4, 3, K, dtype=torch.float64)
    loader = plain_loader(runner, 'val', 'val')
    for _, scores, labels in scored_images(runner, loader, str(folder)):
        kept = labels < K
        rules = [(scores + b[:, None, None]).argmax(0) for b in offsets]
        for i, predicted in enumerate([*rules, decide(scores)]):
            areas[i] += fit.count_areas(predicted[kept], labels[kept], K)
    miou = fit.class_metrics(areas, 'mIoU').nanmean(-1)
    return t, (100 * miou).tolist()


def row(name: str, figures: list[float], t: str) -> str:
    first, *others = figures
    gains = (f'{value:.2f} ({value - first:+.2f})' for value in others)
    return f'| {name} | {first:.2f} | {" | ".join(gains)} | {t} |'


@report_errors
def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('comparisons', nargs='+', type=Path, metavar='FOLDER')
    parser.add_argument('--losses', nargs='+', default=OBJECTIVES)
    args = parser.parse_args(argv)
    decide = rank_seg()
    print(f'{HEADER}\n|{"---|" * 6}')
    found = []
    with tempfile.TemporaryDirectory() as work_dir:
        for folder, name in itertools.product(args.comparisons, args.losses):
            run = folder / 'runs' / name / 'seed-0'
            t, figures = measure(run, work_dir, decide)
            found.append(figures)
            print(row(f'{folder.name} {name}', figures, f'{t:g}'), flush=True)
    print(row('mean', torch.tensor(found).mean(0).tolist(), ''))


if __name__ == '__main__':
    main()
