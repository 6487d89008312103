"""The label check: every problem of data set and heads, with its fix."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mmseg.registry import DATASETS
from torch import nn

from mmseg_margin.config_tools import leaf_datasets, nodes, value_of
from mmseg_margin.errors import DataSetError
from mmseg_margin.heads import (
    heads_of_config,
    heads_of_model,
    modules,
    predicts_boundaries,
)
from mmseg_margin.terminal import printable

from .cache import StatsCache
from .class_stats import ClassStats
from .collect import collect_stats
from .problems import FILES_SHOWN, Problem, Problems
from .scan import LabelRange

VALUES_SHOWN = 8
MANY_VALUES = 32

Model = nn.Module | Mapping[str, Any]


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
    model: Model,
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
    heads, leaves = label_heads(model), leaf_datasets(dataset)
    labels = next(iter(heads.values()), LabelRange(None, None))
    if labels.ignore_index is None:
        ignored = getattr(leaves[0], 'ignore_index', 255)
        labels = LabelRange(labels.num_classes, ignored)
    stats, problems = collect_stats(dataset, labels, cache, known, num_threads)
    told = {
        problem: _describe(problem, problems, stats)
        for problem in Problem
        if problem in problems
    }
    warnings = [told.pop(Problem.WRAPPED)] if Problem.WRAPPED in told else []
    errors = [*told.values(), *_check_heads(heads, len(stats.classes))]
    warnings += _check_ignored_labels(heads, leaves)
    if stats.total:
        tolerant = _tolerates_absent_classes(model)
        warnings += _check_classes(stats, rare_share, tolerant)
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


def _describe(problem: Problem, problems: Problems, stats: ClassStats) -> str:
    headline, fix = problem.value
    files = problems[problem]
    if problem is Problem.VALUE:
        fix = _fix_values(sorted(files.values), problems, stats)
        most = files.values.most_common(VALUES_SHOWN)
        headline += ': ' + ', '.join(
            f'{value} in {count} file(s)' for value, count in sorted(most)
        )
        if len(files.values) > VALUES_SHOWN:
            headline += f', {len(files.values) - VALUES_SHOWN} more values'
    lines = [f'{headline} ({files.count} file(s))']
    lines += [f'    {printable(text)}' for _, text in files.first]
    if files.count > FILES_SHOWN:
        lines.append(f'    ... and {files.count - FILES_SHOWN} more')
    return '\n'.join([*lines, f'    likely fix: {fix}.'])


def _fix_values(
    values: list[int], problems: Problems, stats: ClassStats
) -> str:
    """The likely reason for label values that are no class."""
    num_classes = len(stats.classes)
    ignored = stats.provenance.ignore_index
    if Problem.LOSSY in problems:
        return 'JPEG is lossy, see above: export the labels again as PNG'
    if len(values) > MANY_VALUES:
        return (
            'so many values look like a picture or an interpolated label; '
            'export index maps, losslessly and resized by nearest neighbour'
        )
    if values == [num_classes]:
        starts_at_one = stats.counts[0] == 0 and ignored != 0
        if starts_at_one and not _reduces_zero_label(stats):
            return (
                f'the labels run from 1 to {num_classes}, so set '
                'reduce_zero_label=True in the data set'
            )
        return (
            f'if {num_classes} means unlabelled, set '
            f'ignore_index={num_classes} in every head or map it to '
            f'{ignored} in the files; if it is a class, set '
            f'num_classes={num_classes + 1}; if 0 is an unlabelled '
            'background, set reduce_zero_label=True'
        )
    if values == [255]:
        return (
            '255 usually means unlabelled, and padding writes it, so set '
            f'ignore_index=255 (it is {ignored})'
        )
    return (
        'map these values to classes or to the ignore index '
        f'({ignored}), or correct num_classes and the list of classes'
    )


def _reduces_zero_label(stats: ClassStats) -> bool:
    return 'reduce_zero_label=True' in stats.provenance.mapping


def _check_classes(
    stats: ClassStats, rare_share: float, tolerates_absent: bool
) -> Iterator[str]:
    names = [printable(name) for name in stats.classes]
    counts = dict(zip(names, stats.counts, strict=True))
    absent = [name for name, count in counts.items() if count == 0]
    if absent:
        fix = 'take them out of the list of classes'
        if _reduces_zero_label(stats) and absent == names[-1:]:
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


def label_heads(model: Model) -> dict[str, LabelRange]:
    """What the heads of a model or its config take for labels, by name.

    Heads that derive labels of their own, such as boundaries, are left out.
    """
    found: Mapping[str, Any]
    if isinstance(model, nn.Module):
        found = heads_of_model(model)
    else:
        found = heads_of_config(model)
    return {
        name: LabelRange(
            value_of(head, 'num_classes'), value_of(head, 'ignore_index', 255)
        )
        for name, head in found.items()
        if value_of(head, 'num_classes') and not predicts_boundaries(head)
    }


def _tolerates_absent_classes(model: Model) -> bool:
    """Whether a margin loss of it was told what to do with such classes."""
    if isinstance(model, nn.Module):
        settings = (
            getattr(x, 'offset_settings', None) for _, x in modules(model)
        )
        return any(x and x.absent_class != 'error' for x in settings)
    return any(x.get('absent_class', 'error') != 'error' for x in nodes(model))


def _check_heads(
    heads: dict[str, LabelRange], num_classes: int
) -> Iterator[str]:
    """A sentence for each head of another size, and if they disagree."""
    for name, head in heads.items():
        if head.num_classes != num_classes:
            yield (
                f'{name} has num_classes={head.num_classes}, the data '
                f'set has {num_classes} classes\n    likely fix: set '
                f'num_classes={num_classes} in {name}.'
            )
    ignored = {name: head.ignore_index for name, head in heads.items()}
    if len({*ignored.values()}) > 1:
        listing = ', '.join(f'{name}: {x}' for name, x in ignored.items())
        yield (
            f'the heads differ in ignore_index ({listing})\n    likely fix: '
            'give all heads the same ignore_index.'
        )


def _check_ignored_labels(
    heads: dict[str, LabelRange], leaves: list[Any]
) -> Iterator[str]:
    """A sentence if heads and data sets ignore different labels."""
    declared = {getattr(leaf, 'ignore_index', 255) for leaf in leaves}
    ignored = {head.ignore_index for head in heads.values()} - {None}
    if ignored and declared != ignored:
        yield (
            f'the heads ignore label {_join(ignored)}, the data set declares '
            f'ignore_index={_join(declared)}; padding and rotation write 255 '
            'unless told otherwise\n    likely fix: use one value in head, '
            'data set and every seg_pad_val.'
        )


def _join(values: set[Any]) -> str:
    return ', '.join(str(value) for value in sorted(values))
