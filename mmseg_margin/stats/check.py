"""The label check: every problem of data set and heads, with its fix."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mmseg.registry import DATASETS
from torch import nn

from mmseg_margin.errors import DataSetError, SettingError
from mmseg_margin.functional import OffsetSettings, large_offset_warning
from mmseg_margin.terminal import printable
from mmseg_margin.walks import (
    heads_of_config,
    heads_of_model,
    predicts_boundaries,
    value_of,
)

from .annotations import has_labels
from .cache import StatsCache
from .class_stats import ClassStats
from .collect import collect_stats
from .problems import FILES_SHOWN, Problem, Problems
from .samples import compare_samples

VALUES_SHOWN = 8
MANY_VALUES = 32
# These explain classes without a pixel, so nothing is advised about those.
WRONG_VALUES = {Problem.VALUE, Problem.BINARY_MASK}

Model = nn.Module | Mapping[str, Any]


@dataclass(frozen=True)
class LabelReport:
    """The data set, its statistics, and what is wrong with its labels.

    ``errors`` stop a training, ``warnings`` do not. ``validation`` is the
    report on the validation set, if it was checked.
    """

    dataset: Any
    stats: ClassStats
    errors: list[str]
    warnings: list[str]
    validation: 'LabelReport | None' = None
    title: str = 'Label check of'

    @property
    def all_errors(self) -> list[str]:
        """The errors of both sets."""
        return self.errors + (
            self.validation.errors if self.validation else []
        )

    def __str__(self) -> str:
        """All that was found; empty if there is nothing to report."""
        parts = [str(self.validation)] if self.validation else []
        if self.errors or self.warnings:
            source = self.stats.provenance
            title = (
                f'{self.title} {source.files} files of {source.dataset}: '
                f'{len(self.errors)} problem(s), {len(self.warnings)} '
                'warning(s)'
            )
            problems = [f'[problem] {error}' for error in self.errors]
            warnings = [f'[warning] {warning}' for warning in self.warnings]
            parts = [title, *problems, *warnings, *parts]
        return '\n'.join(filter(None, parts))

    def raise_errors(self) -> None:
        """Stop with the whole report if it holds a problem."""
        if self.all_errors:
            raise DataSetError(str(self))


def check_labels(
    dataset: Any,
    model: Model,
    cache: StatsCache | None = None,
    known: ClassStats | None = None,
    num_threads: int | None = None,
    rare_share: float = 1e-4,
    offsets: OffsetSettings | None = None,
) -> LabelReport:
    """Count the labels of a data set and check them against a model.

    Args:
        dataset: A data set, or its config.
        model: The model that is to learn these labels, or its config.
        cache, known, num_threads: See :func:`collect_stats`.
        rare_share: Share of the labelled pixels below which a class is
            reported as very rare.
        offsets: Settings of the margin-offsets that are to be derived from
            the counts, if any.
    """
    if isinstance(dataset, Mapping):
        dataset = _build(dataset)
    heads = label_heads(model)
    stats, problems, annotations = collect_stats(
        dataset, *_expected_labels(heads), cache, known, num_threads
    )
    errors, warnings = _describe_problems(problems, stats)
    errors += _check_heads(heads, len(stats.classes))
    leaves = [leaf for leaf, _ in annotations.leaves]
    warnings += _check_ignored_labels(heads, leaves)
    if not errors and stats != known:
        warnings += compare_samples(annotations, stats)
    if stats.total and not WRONG_VALUES & problems.keys():
        absent = _describe_absent(stats, offsets)
        is_error = offsets is not None and offsets.absent_class == 'error'
        (errors if is_error else warnings).extend(absent)
        warnings += _describe_rare(stats, rare_share)
        if offsets is not None and not (absent and is_error):
            _check_offsets(stats, offsets, errors, warnings)
    elif not errors:  # which would explain it
        errors.append(
            'no pixel carries a class\n    likely fix: check ignore_index, '
            'reduce_zero_label and the list of classes.'
        )
    return LabelReport(dataset, stats, errors, warnings)


def check_validation_labels(
    dataset: Any,
    model: Model,
    cache: StatsCache | None = None,
    known: ClassStats | None = None,
    num_threads: int | None = None,
) -> LabelReport | None:
    """Check the files of a validation set, if it has label files.

    The arguments are those of :func:`check_labels`.
    """
    if isinstance(dataset, Mapping):
        dataset = _build(dataset)
    if not has_labels(dataset):
        return None
    stats, problems, _ = collect_stats(
        dataset,
        *_expected_labels(label_heads(model)),
        cache,
        known,
        num_threads,
    )
    title = 'Label check of the validation set,'
    found = _describe_problems(problems, stats)
    return LabelReport(dataset, stats, *found, title=title)


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


def label_heads(model: Model) -> dict[str, Any]:
    """The heads of a model or its config that learn the labels, by name.

    Heads that derive labels of their own, such as boundaries, are left out.
    """
    found: Mapping[str, Any]
    if isinstance(model, nn.Module):
        found = heads_of_model(model)
    else:
        found = heads_of_config(model)
    return {
        name: head
        for name, head in found.items()
        if value_of(head, 'num_classes') and not predicts_boundaries(head)
    }


def _expected_labels(heads: dict[str, Any]) -> tuple[int | None, int | None]:
    """``num_classes`` and ``ignore_index`` of the first head, if any."""
    for head in heads.values():
        return value_of(head, 'num_classes'), _ignore_index(head)
    return None, None


def _ignore_index(head: Any) -> int | None:
    return value_of(head, 'ignore_index', 255)


def _describe_problems(
    problems: Problems, stats: ClassStats
) -> tuple[list[str], list[str]]:
    """Errors and warnings of the files."""
    texts = {
        problem: _describe(problem, problems, stats)
        for problem in Problem
        if problem in problems
    }
    wrapped = texts.pop(Problem.WRAPPED, None)
    return [*texts.values()], [wrapped] if wrapped else []


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
    """The likely fix for label values outside the classes."""
    num_classes = len(stats.classes)
    ignored = stats.provenance.ignore_index
    if Problem.LOSSY in problems:
        return 'JPEG is lossy, see above: export the labels again as PNG'
    if Problem.BINARY_MASK in problems:
        return 'the labels are masks of 0 and 255, see below'
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


def _describe_absent(
    stats: ClassStats, offsets: OffsetSettings | None
) -> list[str]:
    """Classes without a pixel, in at most one text."""
    names = [printable(name) for name in stats.classes]
    pairs = zip(names, stats.counts, strict=True)
    absent = [name for name, count in pairs if count == 0]
    if not absent:
        return []
    fix = 'take them out of the list of classes'
    if _reduces_zero_label(stats) and absent == names[-1:]:
        fix = (
            'reduce_zero_label=True ignores label 0 and moves the others '
            'down by one; turn it off if 0 is your first class'
        )
    elif offsets is not None and offsets.absent_class == 'error':
        fix += (
            ", or set absent_class='zero' in the loss to train without "
            'margin-offsets for them'
        )
    listing = ', '.join(absent)
    return [f'classes without a pixel: {listing}\n    likely fix: {fix}.']


def _describe_rare(stats: ClassStats, rare_share: float) -> list[str]:
    """Very rare classes, in at most one text."""
    rare = [
        f'{printable(name)} ({count / stats.total:.2g})'
        for name, count in zip(stats.classes, stats.counts, strict=True)
        if 0 < count < rare_share * stats.total
    ]
    listing = ', '.join(rare)
    return [f'very rare classes (share of pixels): {listing}'] if rare else []


def _check_offsets(
    stats: ClassStats,
    offsets: OffsetSettings,
    errors: list[str],
    warnings: list[str],
) -> None:
    """Add what is wrong with the margin-offsets of these counts."""
    try:
        rho_0k = offsets.offsets(stats.counts, stats.classes).rho_0k
    except SettingError as error:
        errors.append(str(error))
        return
    warning = large_offset_warning(rho_0k, stats.classes)
    is_default = offsets.tau is None and offsets.largest_offset is None
    if warning:
        # Nobody has chosen these offsets, and the training would be lost.
        (errors if is_default else warnings).append(warning)


def _check_heads(heads: dict[str, Any], num_classes: int) -> Iterator[str]:
    """A sentence for each head of another size, and if they disagree."""
    for name, head in heads.items():
        found = value_of(head, 'num_classes')
        if found != num_classes:
            yield (
                f'{name} has num_classes={found}, the data '
                f'set has {num_classes} classes\n    likely fix: set '
                f'num_classes={num_classes} in {name}.'
            )
    ignored = {name: _ignore_index(head) for name, head in heads.items()}
    if len({*ignored.values()}) > 1:
        listing = ', '.join(f'{name}: {x}' for name, x in ignored.items())
        yield (
            f'the heads differ in ignore_index ({listing})\n    likely fix: '
            'give all heads the same ignore_index.'
        )


def _check_ignored_labels(
    heads: dict[str, Any], leaves: list[Any]
) -> Iterator[str]:
    """A sentence if heads and data sets ignore different labels."""
    declared = {getattr(leaf, 'ignore_index', 255) for leaf in leaves}
    ignored = {_ignore_index(head) for head in heads.values()} - {None}
    if ignored and declared != ignored:
        yield (
            f'the heads ignore label {_join(ignored)}, the data set declares '
            f'ignore_index={_join(declared)}; padding and rotation write 255 '
            'unless told otherwise\n    likely fix: use one value in head, '
            'data set and every seg_pad_val.'
        )


def _join(values: set[Any]) -> str:
    return ', '.join(str(value) for value in sorted(values))
