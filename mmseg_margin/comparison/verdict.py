"""The one sentence that says who won, and what is not known."""

from mmseg_margin.report import interval_text, signed

from .results import BASELINE, Comparison


def verdict(comparison: Comparison) -> str:
    """Rank by mean mIoU; say how margin compares with cross-entropy."""
    ranking = comparison.means()
    names = sorted(ranking, key=lambda name: -ranking[name])
    if not names:
        return 'No run has finished yet, so there is nothing to compare.'
    winner = names[0]
    if len(names) == 1:
        return (
            f'{winner} has a mean mIoU of {ranking[winner]:.2f}; no other '
            'objective has a result, so there is nothing to compare it with.'
        )
    second = names[1]
    gap = ranking[winner] - ranking[second]
    parts = [
        f'{winner} has the highest mean mIoU ({ranking[winner]:.2f}), '
        f'{gap:.2f} above {second} ({ranking[second]:.2f})'
    ]
    margins = [name for name in names if name in comparison.margin_losses]
    if margins and margins[0] not in (winner, second):
        place = names.index(margins[0]) + 1
        parts.append(
            f'{margins[0]} is number {place} of {len(names)} '
            f'({ranking[margins[0]]:.2f})'
        )
    subject = next(name for name in [*margins, *names] if name != BASELINE)
    parts.append(_against_baseline(comparison, subject))
    return '; '.join(parts) + '.'


def missing_runs(comparison: Comparison) -> list[str]:
    """What to say when runs are missing; nothing when all have finished."""
    if not comparison.missing:
        return []
    runs = '; '.join(
        f'{name}: seed {", ".join(map(str, seeds))}'
        for name, seeds in comparison.missing.items()
    )
    total = sum(map(len, comparison.setup.seeds.values()))
    return [
        'Everything here is provisional: of '
        f'{total} runs, {total - len(comparison.results)} have no result '
        f'({runs}).'
    ]


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
        f'{BASELINE} is {interval_text(difference)} over {difference.n} '
        f'seeds, {meaning}'
    )
