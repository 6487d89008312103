"""The report: every problem of data set and heads at once, with its fix."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from mmseg_margin.terminal import printable
from mmseg_margin.walks import leaf_datasets

from .class_stats import ClassStats
from .collect import Collected
from .findings import FILES_SHOWN, Group, Kind
from .heads import (
    Head,
    check_datasets_agree,
    check_heads_agree,
    check_num_classes,
)

WARNING_KINDS = (Kind.WRAPPED,)
VALUES_SHOWN = 8
MANY_VALUES = 32


@dataclass(frozen=True)
class Report:
    """Problems that stop the training, and warnings that do not."""

    source: str
    errors: list[str]
    warnings: list[str]

    def __str__(self) -> str:
        title = (
            f'Label check of {self.source}: {len(self.errors)} problem(s), '
            f'{len(self.warnings)} warning(s)'
        )
        problems = [f'[problem] {error}' for error in self.errors]
        warnings = [f'[warning] {warning}' for warning in self.warnings]
        return '\n'.join([title, *problems, *warnings])


def inspect(
    collected: Collected,
    dataset: Any,
    heads: Sequence[Head] = (),
    rare_share: float = 1e-4,
) -> Report:
    """Judge what was found in the files, the classes, and the heads."""
    stats = collected.stats
    errors: list[str] = []
    warnings: list[str] = []
    for kind, group in collected.findings.in_order():
        target = warnings if kind in WARNING_KINDS else errors
        target.append(_describe(kind, group, collected))
    errors += check_num_classes(heads, len(stats.classes))
    errors += check_heads_agree(heads)
    warnings += check_datasets_agree(heads, leaf_datasets(dataset))
    if stats.total == 0:
        errors.append(
            'no pixel carries a class\n    likely fix: check ignore_index, '
            'reduce_zero_label and the list of classes.'
        )
    else:
        warnings += _check_classes(stats, rare_share)
    source = f'{stats.provenance.files} files of {stats.provenance.dataset}'
    return Report(source, errors, warnings)


def suggest_fix(group: Group, collected: Collected) -> str:
    """The likely reason for label values that are no class."""
    stats, stored = collected.stats, collected.stored_values
    num_classes = len(stats.classes)
    ignore_index = stats.provenance.ignore_index
    values = sorted(group.values)
    if len(values) > MANY_VALUES:
        return (
            'so many values look like a picture or an interpolated label; '
            'export index maps, losslessly and resized by nearest neighbour'
        )
    if values == [num_classes] and not _reduces(stats) and 0 not in stored:
        return (
            f'the labels run from 1 to {num_classes}, so set '
            'reduce_zero_label=True in the data set'
        )
    if values == [num_classes]:
        return (
            f'if {num_classes} means unlabelled, set '
            f'ignore_index={num_classes} in every head or map it to '
            f'{ignore_index} in the files; if it is a class, set '
            f'num_classes={num_classes + 1}; if 0 is an unlabelled '
            'background, set reduce_zero_label=True'
        )
    if values == [255]:
        return (
            '255 usually means unlabelled, and padding writes it, so set '
            f'ignore_index=255 (it is {ignore_index})'
        )
    return (
        'map these values to classes or to the ignore index '
        f'({ignore_index}), or correct num_classes and the list of classes'
    )


def _describe(kind: Kind, group: Group, collected: Collected) -> str:
    headline, fix = kind.headline, kind.fix
    if kind is Kind.VALUE:
        fix = suggest_fix(group, collected)
        most = group.values.most_common(VALUES_SHOWN)
        headline += ': ' + ', '.join(
            f'{value} in {count} file(s)' for value, count in sorted(most)
        )
        if len(group.values) > VALUES_SHOWN:
            headline += f', {len(group.values) - VALUES_SHOWN} more values'
    lines = [f'{headline} ({group.count} file(s))']
    lines += [f'    {printable(text)}' for _, text in group.first]
    if group.count > FILES_SHOWN:
        lines.append(f'    ... and {group.count - FILES_SHOWN} more')
    lines.append(f'    likely fix: {fix}.')
    return '\n'.join(lines)


def _check_classes(stats: ClassStats, rare_share: float) -> Iterable[str]:
    names = [printable(name) for name in stats.classes]
    counts = dict(zip(names, stats.counts, strict=True))
    absent = [name for name, count in counts.items() if count == 0]
    if absent:
        fix = "take them out of the classes, or set absent_class='zero'"
        if _reduces(stats) and absent == names[-1:]:
            fix = (
                'reduce_zero_label=True ignores label 0 and moves the others '
                'down by one; turn it off if 0 is your first class'
            )
        yield (
            f'classes without a pixel: {", ".join(absent)}\n    likely fix: '
            f'{fix}.'
        )
    rare = [
        f'{name} ({count / stats.total:.2g})'
        for name, count in counts.items()
        if 0 < count < rare_share * stats.total
    ]
    if rare:
        yield f'very rare classes (share of pixels): {", ".join(rare)}'


def _reduces(stats: ClassStats) -> bool:
    return 'reduce_zero_label=True' in stats.provenance.mapping
