"""The label check: every problem of labels, heads and offsets, with a fix."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from mmseg.registry import DATASETS
from torch import nn

from mmseg_margin.config_tools import value_of
from mmseg_margin.errors import DataSetError, SettingError, printable
from mmseg_margin.functional import MarginOffsets, OffsetSettings
from mmseg_margin.functional.margins import large_offset_warning
from mmseg_margin.heads import (
    heads_of_config,
    heads_of_model,
    predicts_boundaries,
)

from .class_stats import ClassStats, StatsCache
from .display import format_table
from .label_files import Finding, LabelLoader, Problem
from .scan import NoLabelsError, collect_stats, list_values

FILES_SHOWN = 10
RARE_SHARE = 1e-4  # of the labelled pixels
ONE_TOO_MANY = (
    'if {0} means unlabelled, set ignore_index={0} in every head; if it is a '
    'class, set num_classes={1}; if the labels begin at 1, or 0 is an '
    'unlabelled background, set reduce_zero_label=True in the data set'
)
# These explain classes without a pixel, which are then not reported.
WRONG_VALUES = (Problem.VALUE, Problem.BINARY_MASK)

Model = nn.Module | Mapping[str, Any]
Heads = dict[str, tuple[int, Any]]


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
        title = (
            f'Label check of {self.stats.files} files of {self.stats.dataset}:'
            f' {len(self.errors)} problem(s), {len(self.warnings)} warning(s)'
        )
        return '\n'.join([title, *lines]) if lines else ''

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
    offsets: OffsetSettings | None = None,
    validation: Any = None,
) -> LabelReport:
    """Count the labels of a data set and check them against a model.

    Args:
        dataset: A data set, or its config.
        model: The model that is to learn these labels, or its config.
        cache: Where to look for statistics first, and to store them.
        offsets: Settings of the margin-offsets that are to be derived from
            the counts, if any.
        validation: A data set of which only the files are checked, unless it
            has no labels.
    """
    heads = label_heads(model)
    dataset = _built(dataset)
    # The labels that the first head expects.
    expected = *next(iter(heads.values()), (None, None)), cache
    stats, findings, loaders = collect_stats(dataset, *expected)
    report = LabelReport(dataset, stats, [], [], offsets)
    _describe_findings(report, findings, stats)
    _check_heads(report, heads, loaders)
    _check_transforms(report, loaders)
    problems = {finding.problem for finding in findings}
    if stats.total and problems.isdisjoint(WRONG_VALUES):
        _check_classes(report)
        _check_offsets(report)
    elif not report.errors:  # other errors would explain it
        fix = 'check ignore_index, reduce_zero_label and the list of classes'
        report.errors.append(_with_fix('no pixel carries a class', fix))
    if validation is not None:
        with suppress(NoLabelsError):
            stats, findings, _ = collect_stats(_built(validation), *expected)
            found = [x for x in findings if x.problem is not Problem.NO_LABEL]
            _describe_findings(report, found, stats, 'validation set: ')
    return report


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
    is_built = isinstance(model, nn.Module)
    find: Any = heads_of_model if is_built else heads_of_config
    return {
        name: (classes, value_of(head, 'ignore_index', 255))
        for name, head in find(model).items()
        if (classes := value_of(head, 'num_classes'))
        and not predicts_boundaries(head)
    }


def _with_fix(finding: str, fix: str) -> str:
    return f'{finding}\n    likely fix: {fix}.'


def _describe_findings(
    report: LabelReport,
    findings: Sequence[Finding],
    stats: ClassStats,
    prefix: str = '',
) -> None:
    """Add the problems of the files: files, values, likely fix of each."""
    found: dict[Problem, list[Finding]] = {}
    for finding in sorted(findings, key=lambda x: x.text):
        found.setdefault(finding.problem, []).append(finding)
    for problem in filter(found.__contains__, Problem):
        headline, fix = problem.value
        files = found[problem]
        if problem is Problem.VALUE:
            values = sorted({value for file in files for value in file.values})
            headline += f': {list_values(values)}'
            if values == [len(stats.classes)]:
                fix = ONE_TOO_MANY.format(values[0], values[0] + 1)
        lines = [f'{prefix}{headline} ({len(files)} file(s))']
        lines += [f'    {printable(x.text)}' for x in files[:FILES_SHOWN]]
        if len(files) > FILES_SHOWN:
            lines.append(f'    ... and {len(files) - FILES_SHOWN} more')
        is_harmless = problem is Problem.WRAPPED
        several = report.warnings if is_harmless else report.errors
        several.append(_with_fix('\n'.join(lines), fix))


def _check_heads(
    report: LabelReport, heads: Heads, loaders: list[LabelLoader]
) -> None:
    """Compare the heads with each other and with the data set."""
    expected = len(report.stats.classes)
    for name, (found, _) in heads.items():
        if found != expected:
            finding = f'{name} has num_classes={found}'
            fix = f'set num_classes={expected}, as the data set has'
            report.errors.append(_with_fix(finding, fix))
    labels = {name: label for name, (_, label) in heads.items()}
    heads_differ = len({*labels.values()}) > 1
    for place, loader in enumerate(loaders):
        ignored = getattr(loader.dataset, 'ignore_index', 255)
        labels[f'data set {place}'] = ignored
    if heads and len({*labels.values()}) > 1:
        listing = ', '.join(f'{name}: {x}' for name, x in labels.items())
        several = report.errors if heads_differ else report.warnings
        finding = f'ignore_index is not the same everywhere ({listing})'
        fix = 'use one value in heads, data set and every seg_pad_val'
        several.append(_with_fix(finding, fix))


def _check_transforms(report: LabelReport, loaders: list[LabelLoader]) -> None:
    """Name transforms that might change labels after they were counted."""
    names = [name for x in loaders for name in x.foreign_transforms()]
    if names:
        finding = 'transforms after the loading that the scan does not run: '
        finding += printable(', '.join(dict.fromkeys(names)))
        fix = 'change label values in LoadMappedAnnotations instead'
        report.warnings.append(_with_fix(finding, fix))


def _check_classes(report: LabelReport) -> None:
    """Look for absent and rare classes."""
    stats = report.stats
    rows = list(zip(map(printable, stats.classes), stats.counts, strict=True))
    absent = [name for name, count in rows if count == 0]
    if absent:
        finding = f'classes without a pixel: {", ".join(absent)}'
        fix = 'correct the list of classes, or reduce_zero_label'
        report.warnings.append(_with_fix(finding, fix))
    rare = [
        f'{name} ({count / stats.total:.2g})'
        for name, count in rows
        if 0 < count < RARE_SHARE * stats.total
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
