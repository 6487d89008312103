"""The label check: every problem of labels, heads and offsets, with a fix."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from mmseg.registry import DATASETS
from torch import nn

from mmseg_margin.config_tools import value_of
from mmseg_margin.errors import DataSetError, SettingError, printable
from mmseg_margin.functional import (
    MarginOffsets,
    OffsetSettings,
    large_offset_warning,
)
from mmseg_margin.heads import (
    heads_of_config,
    heads_of_model,
    predicts_boundaries,
)

from .cache import StatsCache
from .class_stats import ClassStats
from .display import format_table
from .label_files import LabelLoader
from .problems import Problem, describe_findings, with_fix
from .scan import Collected, NoLabelsError, collect_stats

# These explain classes without a pixel, which are then not reported.
WRONG_VALUES = (Problem.VALUE, Problem.BINARY_MASK)

Model = nn.Module | Mapping[str, Any]
Heads = dict[str, tuple[int, Any]]


@dataclass(frozen=True)
class CheckOptions:
    """How to count and what to check.

    Args:
        num_threads: Threads of each rank; by default all available cores.
        rare_share: Fraction of the labelled pixels below which a class is
            reported as very rare.
        offsets: Settings of the margin-offsets that are to be derived from
            the counts, if any.
    """

    num_threads: int | None = None
    rare_share: float = 1e-4
    offsets: OffsetSettings | None = None


DEFAULT_OPTIONS = CheckOptions()


@dataclass
class LabelReport:
    """The data set, its statistics, and what is wrong with its labels.

    ``errors`` stop a training, ``warnings`` do not. ``offsets`` are the
    margin-offsets of the settings, if there are any.
    """

    dataset: Any
    stats: ClassStats
    errors: list[str]
    warnings: list[str]
    settings: OffsetSettings | None = None
    offsets: MarginOffsets | None = None

    def __str__(self) -> str:
        """Everything that was found; empty if nothing was."""
        lines = [f'[problem] {error}' for error in self.errors]
        lines += [f'[warning] {warning}' for warning in self.warnings]
        if lines:
            lines.insert(
                0,
                f'Label check of {self.stats.files} files of '
                f'{self.stats.dataset}: {len(self.errors)} problem(s), '
                f'{len(self.warnings)} warning(s)',
            )
        return '\n'.join(lines)

    def table(self, weights: Sequence[float] | None = None) -> str:
        """The classes with their pixels, offsets and weights, if any."""
        return format_table(self.stats, self.settings, self.offsets, weights)

    def raise_errors(self) -> None:
        """Stop with the whole report if it contains a problem."""
        if self.errors:
            raise DataSetError(str(self))


def check_labels(
    dataset: Any,
    model: Model,
    cache: StatsCache | None = None,
    options: CheckOptions = DEFAULT_OPTIONS,
    validation: Any = None,
) -> LabelReport:
    """Count the labels of a data set and check them against a model.

    Args:
        dataset: A data set, or its config.
        model: The model that is to learn these labels, or its config.
        cache: Where to look for statistics first, and to store them.
        options: How to count and what to check.
        validation: A data set of which only the files are checked, unless it
            has no labels.
    """
    heads = label_heads(model)
    dataset = _built(dataset)
    # The labels that the first head expects.
    expected = next(iter(heads.values()), (None, None))
    settings = *expected, cache, options.num_threads
    stats, findings, loaders = collect_stats(dataset, *settings)
    errors, warnings = describe_findings(findings, stats)
    report = LabelReport(dataset, stats, errors, warnings, options.offsets)
    _check_heads(report, heads, loaders)
    _check_transforms(report, loaders)
    problems = {finding.problem for finding in findings}
    if stats.total and problems.isdisjoint(WRONG_VALUES):
        _check_classes(report, options.rare_share)
        _check_offsets(report)
    elif not report.errors:  # other errors would explain it
        fix = 'check ignore_index, reduce_zero_label and the list of classes'
        report.errors.append(with_fix('no pixel carries a class', fix))
    if validation is not None:
        with suppress(NoLabelsError):
            found = collect_stats(_built(validation), *settings)
            _add_validation(report, found)
    return report


def _add_validation(report: LabelReport, found: Collected) -> None:
    unlabelled = [x.problem for x in found.findings].count(Problem.NO_LABEL)
    if unlabelled < found.stats.files:
        errors, warnings = describe_findings(found.findings, found.stats)
        report.errors += (f'validation set: {text}' for text in errors)
        report.warnings += (f'validation set: {text}' for text in warnings)


def _built(dataset: Any) -> Any:
    if not isinstance(dataset, Mapping):
        return dataset
    try:
        return DATASETS.build(dataset)
    except (OSError, AssertionError) as error:  # mmseg asserts an ann_file
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


def _check_heads(
    report: LabelReport, heads: Heads, loaders: list[LabelLoader]
) -> None:
    """Compare the heads with each other and with the data set."""
    expected = len(report.stats.classes)
    for name, (found, _) in heads.items():
        if found != expected:
            differ = f'{name} has num_classes={found}, the data set has'
            fix = f'set num_classes={expected} in {name}'
            finding = f'{differ} {expected} classes'
            report.errors.append(with_fix(finding, fix))
    ignored = {label for _, label in heads.values()}
    if len(ignored) > 1:
        listing = ', '.join(f'{name}: {x}' for name, (_, x) in heads.items())
        finding = f'the heads differ in ignore_index ({listing})'
        fix = 'give all heads the same ignore_index'
        report.errors.append(with_fix(finding, fix))
    ignored -= {None}
    declared = {getattr(x.dataset, 'ignore_index', 255) for x in loaders}
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


def _check_transforms(report: LabelReport, loaders: list[LabelLoader]) -> None:
    """Name transforms that might change labels after they were counted."""
    names = [name for x in loaders for name in x.foreign_transforms()]
    if names:
        finding = 'transforms after the loading that the scan does not run: '
        finding += printable(', '.join(dict.fromkeys(names)))
        fix = (
            'if one of them changes label values, change them in the loading '
            'transform instead, for example with LoadMappedAnnotations'
        )
        report.warnings.append(with_fix(finding, fix))


def _check_classes(report: LabelReport, rare_share: float) -> None:
    """Look for absent and rare classes."""
    stats, settings = report.stats, report.settings
    names = [printable(name) for name in stats.classes]
    rows = list(zip(names, stats.counts, strict=True))
    absent = [name for name, count in rows if count == 0]
    if absent:
        finding = f'classes without a pixel: {", ".join(absent)}'
        fix = 'take them out of the list of classes'
        if stats.reduces_zero_label and absent == names[-1:]:
            fix += ', or turn off reduce_zero_label if 0 is your first class'
        if settings is not None and settings.absent_class == 'error':
            fix += ", or set absent_class='zero' in the loss"
            report.errors.append(with_fix(finding, fix))
        else:
            report.warnings.append(with_fix(finding, fix))
    rare = [
        f'{name} ({count / stats.total:.2g})'
        for name, count in rows
        if 0 < count < rare_share * stats.total
    ]
    if rare:
        report.warnings.append(
            f'very rare classes (share of pixels): {", ".join(rare)}'
        )


def _check_offsets(report: LabelReport) -> None:
    """Derive the margin-offsets, and look for some that cannot work."""
    stats, settings = report.stats, report.settings
    if settings is None:
        return
    if settings.absent_class == 'error':  # absent classes are reported above
        settings = replace(settings, absent_class='zero')
    try:
        report.offsets = settings.offsets(stats.counts, stats.classes)
    except SettingError as error:
        report.errors.append(str(error))
        return
    too_large = large_offset_warning(report.offsets.rho_0k, stats.classes)
    if too_large:
        # Offsets that the user did not choose must not ruin a training.
        chosen = not settings.has_default_scale
        (report.warnings if chosen else report.errors).append(too_large)
