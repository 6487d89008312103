"""Writes the report of a comparison."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mmseg_margin.report.numbers import signed
from mmseg_margin.report.pages import write_pages

from .figures import draw_curves, draw_examples
from .results import (
    BASELINE,
    RESULTS_FILE,
    Comparison,
    load_comparison,
    save_comparison,
)
from .tables import (
    class_table,
    cost_table,
    describe_margins,
    difference_table,
    overall_table,
)


def write_report(out: Path, samples: Iterable[dict[str, Any]] = ()) -> Path:
    """Write ``OUT/report/index.html`` and ``report.md`` with pictures.

    All results stand in ``results.json`` beside them, from which the tables
    and curves can be made again. The comparison may be incomplete.

    Args:
        out: Its folder.
        samples: ``img_path`` and ``gt_seg_map`` of the tested images, of
            which those that were predicted make a mosaic.
    """
    comparison = load_comparison(out)
    losses = comparison.setup.losses
    folder = out / 'report'
    folder.mkdir(parents=True, exist_ok=True)
    save_comparison(comparison, folder / RESULTS_FILE)
    return write_pages(
        folder,
        'comparison',
        comparison=comparison,
        summary=verdict(comparison),
        baseline=BASELINE,
        overall=overall_table(comparison),
        differences=difference_table(comparison),
        classes=class_table(comparison),
        curves=draw_curves(comparison, folder),
        examples=draw_examples(comparison, out, samples, folder),
        margins=describe_margins(comparison, folder),
        cost=cost_table(comparison),
        objectives='\n'.join(f'{k}: {v}' for k, v in losses.items()),
    )


def verdict(comparison: Comparison) -> str:
    """Rank by mean mIoU; say how margin compares with cross-entropy."""
    means = comparison.means()
    names = sorted(means, key=lambda name: -means[name])
    if not names:
        return 'No run has finished yet, so there is nothing to compare.'
    if len(names) == 1:
        return (
            f'{names[0]} has a mean mIoU of {means[names[0]]:.2f}; no other '
            'objective has a result, so there is nothing to compare it with.'
        )
    winner, second = names[:2]
    parts = [
        f'{winner} has the highest mean mIoU ({means[winner]:.2f}), '
        f'{means[winner] - means[second]:.2f} above {second} '
        f'({means[second]:.2f})'
    ]
    margins = [name for name in names if name in comparison.margin_losses]
    if margins and margins[0] not in (winner, second):
        parts.append(
            f'{margins[0]} is number {names.index(margins[0]) + 1} of '
            f'{len(names)} ({means[margins[0]]:.2f})'
        )
    subject = next(name for name in [*margins, *names] if name != BASELINE)
    parts.append(_against_baseline(comparison, subject))
    return '; '.join(parts) + '.'


def _against_baseline(comparison: Comparison, subject: str) -> str:
    difference = comparison.difference(subject)
    if difference is None:
        return (
            f'no seed has been run with both {subject} and {BASELINE}, so '
            'there is no paired difference'
        )
    if difference.low is None:
        return (
            f'the difference of {subject} to {BASELINE} is '
            f'{signed(difference.mean)} with a single seed, which gives no '
            'interval and may be chance'
        )
    meaning = {
        1: f'so {subject} is better than {BASELINE} here',
        -1: f'so {subject} is worse than {BASELINE} here',
        0: 'which covers 0, so neither is shown to be better',
    }[difference.sign]
    return (
        f'the 95 % interval of the paired difference of {subject} to '
        f'{BASELINE} is {difference.interval_text} over {difference.n} '
        f'seeds, {meaning}'
    )
