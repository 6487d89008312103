"""What can be wrong with the files of a data set, with the likely fix."""

from collections import Counter
from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from mmseg_margin.errors import printable

from .class_stats import ClassStats

FILES_SHOWN = 10
VALUES_SHOWN = 8
MANY_VALUES = 32
EXPORT_AGAIN = 'copy or export these files again'


class Problem(Enum):
    """The kinds of problems, in the order of the report: (headline, fix)."""

    MISSING_LABEL = (
        'missing label files',
        'check data_root, data_prefix and seg_map_suffix, or take the images '
        'without a label out of the split',
    )
    MISSING_IMAGE = (
        'missing images',
        'check data_root, data_prefix and img_suffix',
    )
    UNREADABLE_LABEL = ('unreadable label files', EXPORT_AGAIN)
    UNREADABLE_IMAGE = ('unreadable images', EXPORT_AGAIN)
    TOO_LARGE = (
        'label files that declare more pixels than Pillow accepts',
        'cut them into tiles, or raise PIL.Image.MAX_IMAGE_PIXELS, which '
        'training needs as well',
    )
    NOT_AN_INDEX_MAP = (
        'label files without one class index for each pixel',
        'convert them to single-channel files that hold the class index',
    )
    LOSSY = (
        'label files in JPEG, a lossy format, which changes values',
        'export the labels again as PNG from their source; converting these '
        'files keeps the damage',
    )
    NO_LABEL = (
        'samples without a label',
        'add LoadAnnotations to the pipeline, and seg_map_path to data_prefix',
    )
    LOADING_FAILED = (
        'label files on which the loading transform failed',
        'the message is that of the loading transform in the pipeline',
    )
    VALUE = ('label values outside the classes', '')
    BINARY_MASK = (
        'every label is either 0 or 255, a mask rather than class indices',
        '255 counts as ignored or as out of range, so only class 0 would be '
        'learnt; in every pipeline, replace LoadAnnotations by '
        "dict(type='LoadMappedAnnotations', mapping={255: 1})",
    )
    SIZE = (
        'labels whose size differs from that of the image',
        'check that image and label belong together and have the same size',
    )
    THIN = (
        'labels one pixel wide or high, which LoadAnnotations squeezes',
        'take them out of the split, because training would fail on them',
    )
    WRAPPED = (
        'label files with values below 0 or above 255, which LoadAnnotations '
        'takes modulo 256 (-1 becomes 255)',
        'store the class index in 8 bits, or load it with your own transform',
    )


class Finding(NamedTuple):
    """One problem of one file."""

    position: int  # of the sample, so that any number of ranks agrees
    problem: Problem
    text: str  # names the file
    values: Sequence[int] = ()  # outside the classes


def with_fix(finding: str, fix: str) -> str:
    """A finding of the label check, with what is likely to correct it."""
    return f'{finding}\n    likely fix: {fix}.'


def describe_findings(
    findings: Sequence[Finding], stats: ClassStats
) -> tuple[list[str], list[str]]:
    """Errors and warnings, with files, values and the likely fix of each."""
    found: dict[Problem, list[Finding]] = {}
    for finding in sorted(findings, key=lambda x: x.position):
        found.setdefault(finding.problem, []).append(finding)
    errors: list[str] = []
    warnings: list[str] = []
    for problem in filter(found.__contains__, Problem):
        headline, fix = problem.value
        files = found[problem]
        if problem is Problem.VALUE:
            values = Counter(value for file in files for value in file.values)
            most = sorted(values.most_common(VALUES_SHOWN))
            listed = [f'{value} in {count} file(s)' for value, count in most]
            if len(values) > VALUES_SHOWN:
                listed.append(f'{len(values) - VALUES_SHOWN} more values')
            headline += f': {", ".join(listed)}'
            fix = _fix_values(sorted(values), set(found), stats)
        lines = [f'{headline} ({len(files)} file(s))']
        lines += [f'    {printable(x.text)}' for x in files[:FILES_SHOWN]]
        if len(files) > FILES_SHOWN:
            lines.append(f'    ... and {len(files) - FILES_SHOWN} more')
        several = warnings if problem is Problem.WRAPPED else errors
        several.append(with_fix('\n'.join(lines), fix))
    return errors, warnings


def _fix_values(
    values: list[int], problems: set[Problem], stats: ClassStats
) -> str:
    """The likely fix for label values outside the classes."""
    num_classes, ignored = len(stats.classes), stats.ignore_index
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
            f'ignore_index={num_classes} in every head; if it is a class, set '
            f'num_classes={num_classes + 1}; if 0 is an unlabelled '
            'background, set reduce_zero_label=True'
        )
    if values == [255]:
        return (
            '255 usually means unlabelled, and padding writes it, so set '
            f'ignore_index=255 (it is {ignored})'
        )
    return (
        f'map these values to classes or to the ignore index ({ignored}), '
        'for example with LoadMappedAnnotations, or correct num_classes and '
        'the list of classes'
    )
