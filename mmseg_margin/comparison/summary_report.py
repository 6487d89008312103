"""Writes the summary of several comparisons."""

import csv
import io
import json
from math import nan
from pathlib import Path
from typing import Any

from mmseg_margin.atomic_write import atomic_write_text
from mmseg_margin.report import interval_text, signed, write_pages

from .results import BASELINE
from .summary import Summary
from .summary_tables import (
    comparison_table,
    cost_table,
    draw_summary,
    metric_table,
)
from .tables import METRICS


def write_summary(summary: Summary, folder: Path) -> Path:
    """Write ``index.html``, ``report.md``, a picture, CSV and JSON.

    Returns:
        The path of the page.
    """
    folder.mkdir(parents=True, exist_ok=True)
    atomic_write_text(folder / 'summary.csv', _runs_as_csv(summary))
    figures = {name: _figures(summary, name) for name in summary.names}
    atomic_write_text(folder / 'summary.json', json.dumps(figures, indent=1))
    return write_pages(
        folder,
        'summary',
        subtitle=', '.join(summary.comparisons),
        summary=summary_sentence(summary),
        warnings=missing_sentences(summary),
        baseline=BASELINE,
        differences=draw_summary(summary, folder / 'summary.png'),
        overall=metric_table(summary, 'mIoU'),
        tail=metric_table(summary, 'mIoU_tail'),
        cost=cost_table(summary),
        comparisons=comparison_table(summary),
    )


def summary_sentence(summary: Summary) -> str:
    """Who has the best average rank, and what that is worth."""
    texts = []
    for name in summary.names[:2]:
        text = f'{name} ({summary.rank(name):.2f}'
        difference = summary.difference(name)
        if difference is not None and name != BASELINE:
            text += f', {signed(difference.mean)} to {BASELINE} in the mean'
            if difference.low is not None:
                text += f' {interval_text(difference)}'
        texts.append(f'{text})')
    if not texts:
        return 'No run has finished yet, so there is nothing to sum up.'
    best = '; the second best is '.join(texts)
    return (
        f'Over {len(summary.comparisons)} comparisons the best average rank '
        f'is that of {best}.'
    )


def missing_sentences(summary: Summary) -> list[str]:
    """What every comparison lacks, if anything."""
    sentences = []
    for label, comparison in summary.comparisons.items():
        lacks = [
            f'{name} (seed {", ".join(map(str, seeds))})'
            for name, seeds in comparison.missing.items()
        ] + [name for name in summary.names if name not in comparison.names]
        if lacks:
            sentences.append(f'{label} lacks {", ".join(lacks)}.')
    return sentences


def _figures(summary: Summary, name: str) -> dict[str, Any]:
    figures: dict[str, Any] = {'rank': summary.rank(name)}
    for metric in ('mIoU', 'mIoU_tail'):
        difference = summary.difference(name, metric)
        figures[metric] = summary.means(name, metric)
        figures[f'{metric}_difference'] = difference and difference._asdict()
    return figures | {'cost': summary.cost(name)}


def _runs_as_csv(summary: Summary) -> str:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator='\n')
    writer.writerow(['comparison', 'objective', 'seed', *METRICS, 'seconds'])
    for label, comparison in summary.comparisons.items():
        for (name, seed), run in comparison.results.items():
            metrics = [round(run.metrics.get(m, nan), 4) for m in METRICS]
            seconds = f'{run.seconds_per_iteration:.4g}'
            writer.writerow([label, name, seed, *metrics, seconds])
    return file.getvalue()
