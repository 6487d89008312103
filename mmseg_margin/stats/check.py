"""The label check: every problem of data set and heads, with its fix."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mmseg.registry import DATASETS
from torch import nn

from mmseg_margin.errors import DataSetError
from mmseg_margin.terminal import printable
from mmseg_margin.walks import leaf_datasets

from .cache import StatsCache
from .class_stats import ClassStats
from .collect import Collected, collect_stats
from .heads import (
    check_heads,
    check_ignored_labels,
    label_heads,
    tolerates_absent_classes,
)
from .problems import FILES_SHOWN, Group, Kind
from .scan import LabelRange

WARNING_KINDS = (Kind.WRAPPED,)
VALUES_SHOWN = 8
MANY_VALUES = 32


@dataclass(frozen=True)
class LabelReport:
    """The data set, its statistics, and what is wrong with its labels.

    ``errors`` stop a training, ``warnings`` do not.
    """

    dataset: Any
    stats: ClassStats
    errors: list[str]
    warnings: list[str]

    def __str__(self) -> str:
        source = self.stats.provenance
        title = (
            f'Label check of {source.files} files of {source.dataset}: '
            f'{len(self.errors)} problem(s), {len(self.warnings)} warning(s)'
        )
        problems = [f'[problem] {error}' for error in self.errors]
        warnings = [f'[warning] {warning}' for warning in self.warnings]
        return '\n'.join([title, *problems, *warnings])

    def raise_errors(self) -> None:
        """Stop with the whole report if it holds a problem."""
        if self.errors:
            raise DataSetError(str(self))


def check_labels(
    dataset: Any,
    model: nn.Module | Mapping[str, Any],
    cache: StatsCache | None = None,
    known: ClassStats | None = None,
    num_threads: int | None = None,
    rare_share: float = 1e-4,
) -> LabelReport:
    """Count the labels of a data set and check them against a model.

    Args:
        dataset: A data set, or its config.
        model: The model that is to learn these labels, or its config.
        cache, known, num_threads: See :func:`collect_stats`.
        rare_share: Share of the labelled pixels below which a class is
            reported as very rare.
    """
    if isinstance(dataset, Mapping):
        dataset = _build(dataset)
    heads = label_heads(model)
    leaves = leaf_datasets(dataset)
    ignored = heads[0].ignore_index if heads else None
    if ignored is None:
        ignored = getattr(leaves[0], 'ignore_index', 255)
    labels = LabelRange(heads[0].num_classes if heads else None, ignored)
    collected = collect_stats(dataset, labels, cache, known, num_threads)
    stats = collected.stats
    errors: list[str] = []
    warnings: list[str] = []
    for kind, group in collected.problems.in_order():
        target = warnings if kind in WARNING_KINDS else errors
        target.append(_describe(kind, group, collected))
    errors += check_heads(heads, len(stats.classes))
    warnings += check_ignored_labels(heads, leaves)
    if stats.total:
        warnings += _check_classes(
            stats, rare_share, tolerates_absent_classes(model)
        )
    elif not errors:  # which would explain it
        errors.append(
            'no pixel carries a class\n    likely fix: check ignore_index, '
            'reduce_zero_label and the list of classes.'
        )
    return LabelReport(dataset, stats, errors, warnings)


def _build(cfg: Mapping[str, Any]) -> Any:
    try:
        return DATASETS.build(cfg)
    # mmseg asserts that an ann_file exists.
    except (OSError, AssertionError) as error:
        if isinstance(error, AssertionError) and 'ann_file' not in str(error):
            raise
        raise DataSetError(
            f'The data set cannot be opened: {error}. Check data_root, '
            'data_prefix and ann_file.'
        ) from error


def _describe(kind: Kind, group: Group, collected: Collected) -> str:
    headline, fix = kind.value
    if kind is Kind.VALUE:
        fix = _fix_values(sorted(group.values), collected)
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


def _fix_values(values: list[int], collected: Collected) -> str:
    """The likely reason for label values that are no class."""
    stats = collected.stats
    num_classes = len(stats.classes)
    ignore_index = stats.provenance.ignore_index
    if Kind.LOSSY in collected.problems:
        return 'JPEG is lossy, see above: export the labels again as PNG'
    if len(values) > MANY_VALUES:
        return (
            'so many values look like a picture or an interpolated label; '
            'export index maps, losslessly and resized by nearest neighbour'
        )
    starts_at_one = 0 not in collected.stored_values
    if values == [num_classes] and not _reduces(stats) and starts_at_one:
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


def _check_classes(
    stats: ClassStats, rare_share: float, tolerates_absent: bool
) -> Iterable[str]:
    names = [printable(name) for name in stats.classes]
    counts = dict(zip(names, stats.counts, strict=True))
    absent = [name for name, count in counts.items() if count == 0]
    if absent:
        fix = 'take them out of the list of classes'
        if _reduces(stats) and absent == names[-1:]:
            fix = (
                'reduce_zero_label=True ignores label 0 and moves the others '
                'down by one; turn it off if 0 is your first class'
            )
        elif not tolerates_absent:
            fix += (
                ', or train with them: --loss margin does, the others need '
                "absent_class='zero' (--loss margin-paper:absent_class=zero)"
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
