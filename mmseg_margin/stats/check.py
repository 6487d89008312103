"""The label check: every problem of labels, heads and offsets, with a fix."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mmseg.registry import DATASETS
from torch import nn

from mmseg_margin.config_tools import value_of
from mmseg_margin.errors import DataSetError, SettingError
from mmseg_margin.functional import OffsetSettings, large_offset_warning
from mmseg_margin.heads import (
    heads_of_config,
    heads_of_model,
    predicts_boundaries,
)
from mmseg_margin.terminal import printable

from .cache import StatsCache
from .class_stats import ClassStats
from .label_files import Problem, with_fix
from .samples import compare_samples
from .scan import (
    FILES_SHOWN,
    Annotations,
    Problems,
    collect_stats,
    has_labels,
)

VALUES_SHOWN = 8
MANY_VALUES = 32
# These explain classes without a pixel, which are then not reported.
WRONG_VALUES = {Problem.VALUE, Problem.BINARY_MASK}

Model = nn.Module | Mapping[str, Any]
Heads = dict[str, tuple[int, Any]]


@dataclass
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
        of_validation = self.validation.errors if self.validation else []
        return self.errors + of_validation

    def __str__(self) -> str:
        """Everything that was found; empty if nothing was."""
        lines = [f'[problem] {error}' for error in self.errors]
        lines += [f'[warning] {warning}' for warning in self.warnings]
        if lines:
            source = self.stats.provenance
            numbers = f'{len(self.errors)} problem(s), '
            numbers += f'{len(self.warnings)} warning(s)'
            files = f'{source.files} files of {source.dataset}'
            lines.insert(0, f'{self.title} {files}: {numbers}')
        if self.validation is not None:
            lines.append(str(self.validation))
        return '\n'.join(filter(None, lines))

    def raise_errors(self) -> None:
        """Stop with the whole report if it contains a problem."""
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
        rare_share: Fraction of the labelled pixels below which a class is
            reported as very rare.
        offsets: Settings of the margin-offsets that are to be derived from
            the counts, if any.
    """
    heads = label_heads(model)
    report, problems, annotations = _check_files(
        _built(dataset), heads, cache, known, num_threads
    )
    stats, errors = report.stats, report.errors
    _check_heads(report, heads, annotations)
    if not errors and stats != known:
        report.warnings += compare_samples(annotations, stats)
    if not stats.total and not errors:  # other errors would explain it
        fix = 'check ignore_index, reduce_zero_label and the list of classes'
        errors.append(with_fix('no pixel carries a class', fix))
    elif stats.total and not WRONG_VALUES & problems.keys():
        _check_classes(report, rare_share, offsets)
    return report


def check_validation_labels(
    dataset: Any,
    model: Model,
    cache: StatsCache | None = None,
    known: ClassStats | None = None,
    num_threads: int | None = None,
) -> LabelReport | None:
    """Check the files of a validation set, unless it has no labels.

    The arguments are those of :func:`check_labels`.
    """
    dataset = _built(dataset)
    if not has_labels(dataset):
        return None
    options = cache, known, num_threads
    report, _, _ = _check_files(dataset, label_heads(model), *options)
    report.title = 'Label check of the validation set,'
    return report


def _built(dataset: Any) -> Any:
    if not isinstance(dataset, Mapping):
        return dataset
    try:
        return DATASETS.build(dataset)
    # mmseg asserts that an ann_file exists.
    except (OSError, AssertionError) as error:
        if isinstance(error, AssertionError) and 'ann_file' not in str(error):
            raise
        raise DataSetError(
            f'The data set cannot be opened: {error}. Check data_root, '
            'data_prefix and ann_file.'
        ) from error


def label_heads(model: Model) -> Heads:
    """Number of classes and ignored label of each head, by its name.

    Heads that derive labels of their own, such as boundaries, are left out.
    """
    found: Mapping[str, Any]
    if isinstance(model, nn.Module):
        found = heads_of_model(model)
    else:
        found = heads_of_config(model)
    return {
        name: (classes, value_of(head, 'ignore_index', 255))
        for name, head in found.items()
        if (classes := value_of(head, 'num_classes'))
        and not predicts_boundaries(head)
    }


def _check_files(
    dataset: Any, heads: Heads, *options: Any
) -> tuple[LabelReport, Problems, Annotations]:
    """Scan the labels that the first head expects, and report bad files."""
    expected = next(iter(heads.values()), (None, None))
    stats, problems, annotations = collect_stats(dataset, *expected, *options)
    found = describe_problems(problems, stats)
    return LabelReport(dataset, stats, *found), problems, annotations


def describe_problems(
    problems: Problems, stats: ClassStats
) -> tuple[list[str], list[str]]:
    """Errors and warnings, with files, values and the likely fix of each."""
    errors: list[str] = []
    warnings: list[str] = []
    for problem in Problem:  # in the order of the report
        if problem not in problems:
            continue
        headline, fix = problem.value
        files = problems[problem]
        if problem is Problem.VALUE:
            values = files.values
            fix = _fix_values(sorted(values), problems, stats)
            most = sorted(values.most_common(VALUES_SHOWN))
            listed = [f'{value} in {count} file(s)' for value, count in most]
            if len(values) > VALUES_SHOWN:
                listed.append(f'{len(values) - VALUES_SHOWN} more values')
            headline += ': ' + ', '.join(listed)
        lines = [f'{headline} ({files.count} file(s))']
        lines += [f'    {printable(text)}' for _, text in files.first]
        if files.count > FILES_SHOWN:
            lines.append(f'    ... and {files.count - FILES_SHOWN} more')
        found = warnings if problem is Problem.WRAPPED else errors
        found.append(with_fix('\n'.join(lines), fix))
    return errors, warnings


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
        if starts_at_one and not stats.reduces_zero_label:
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


def _check_heads(
    report: LabelReport, heads: Heads, annotations: Annotations
) -> None:
    """Compare the heads with each other and with the data set."""
    expected = len(report.stats.classes)
    for name, (found, _) in heads.items():
        if found != expected:
            finding = f'{name} has num_classes={found}, the data set has'
            finding += f' {expected} classes'
            fix = f'set num_classes={expected} in {name}'
            report.errors.append(with_fix(finding, fix))
    ignored = {label for _, label in heads.values()}
    if len(ignored) > 1:
        listing = ', '.join(f'{name}: {x}' for name, (_, x) in heads.items())
        finding = f'the heads differ in ignore_index ({listing})'
        fix = 'give all heads the same ignore_index'
        report.errors.append(with_fix(finding, fix))
    ignored -= {None}
    declared = {
        getattr(leaf, 'ignore_index', 255) for leaf, _ in annotations.leaves
    }
    if ignored and declared != ignored:
        first, second = (
            ', '.join(map(str, sorted(labels)))
            for labels in (ignored, declared)
        )
        finding = (
            f'the heads ignore label {first}, the data set declares '
            f'ignore_index={second}; padding and rotation write 255 unless '
            'told otherwise'
        )
        fix = 'use one value in head, data set and every seg_pad_val'
        report.warnings.append(with_fix(finding, fix))


def _check_classes(
    report: LabelReport, rare_share: float, offsets: OffsetSettings | None
) -> None:
    """Look for absent and rare classes and for offsets that cannot work."""
    stats = report.stats
    names = [printable(name) for name in stats.classes]
    counts = dict(zip(names, stats.counts, strict=True))
    absent = [name for name, count in counts.items() if count == 0]
    refused = offsets is not None and offsets.absent_class == 'error'
    if absent:
        fix = 'take them out of the list of classes'
        if stats.reduces_zero_label and absent == names[-1:]:
            fix = (
                'reduce_zero_label=True ignores label 0 and moves the others '
                'down by one; turn it off if 0 is your first class'
            )
        elif refused:
            fix += ", or set absent_class='zero' in the loss"
        finding = f'classes without a pixel: {", ".join(absent)}'
        found = report.errors if refused else report.warnings
        found.append(with_fix(finding, fix))
    rare = [
        f'{name} ({count / stats.total:.2g})'
        for name, count in counts.items()
        if 0 < count < rare_share * stats.total
    ]
    if rare:
        report.warnings.append(
            f'very rare classes (share of pixels): {", ".join(rare)}'
        )
    if offsets is None or (absent and refused):
        return
    try:
        rho_0k = offsets.offsets(stats.counts, stats.classes).rho_0k
    except SettingError as error:
        report.errors.append(str(error))
        return
    too_large = large_offset_warning(rho_0k, stats.classes)
    if too_large:
        # Offsets that the user did not choose must not ruin a training.
        chosen = not offsets.has_default_scale
        (report.warnings if chosen else report.errors).append(too_large)
