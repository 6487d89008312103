"""Problems of single files: found, summed over ranks, and described."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from PIL import Image, UnidentifiedImageError

from mmseg_margin.terminal import printable

from .class_stats import ClassStats
from .label_files import LOADING_ERRORS, NotAnIndexMapError, check_file

FILES_SHOWN = 10
VALUES_SHOWN = 8
MANY_VALUES = 32
# cv2 and tifffile may read other suffixes though Pillow cannot.
PILLOW_SUFFIXES = ('.bmp', '.jpeg', '.jpg', '.png')
EXIF_ORIENTATION = 0x0112
EXIF_ROTATED_BY_90_DEGREES = range(5, 9)
EXPORT_AGAIN = 'copy or export these files again'


class Problem(Enum):
    """What can be wrong with a file: (headline, likely fix)."""

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
        'training would fail on them as well: cut them into tiles, or raise '
        'PIL.Image.MAX_IMAGE_PIXELS if you trust them',
    )
    NOT_AN_INDEX_MAP = (
        'label files without one class index for each pixel',
        'convert them to single-channel files that hold the class index',
    )
    LOSSY = (
        'label files in JPEG, a lossy format: it changes values, above all '
        'at the borders of classes',
        'export the labels again as PNG from their source; converting these '
        'files keeps the damage',
    )
    LOADING_FAILED = (
        'label files on which the loading transform failed',
        'the message is that of the loading transform in the pipeline',
    )
    VALUE = ('label values outside the classes', '')
    BINARY_MASK = (
        'every label is either 0 or 255, a mask rather than class indices',
        'map 255 to 1 in the files: as it is, 255 counts as ignored or as '
        'out of range, and no class but 0 is ever learnt',
    )
    SIZE = (
        'labels whose size differs from that of the image',
        'check that image and label belong together and have the same size',
    )
    THIN = (
        'labels that are one pixel wide or high, which LoadAnnotations '
        'squeezes to a line, so that training fails',
        'take them out of the split',
    )
    WRAPPED = (
        'label files with values above 255, which LoadAnnotations takes '
        'modulo 256',
        'store the class index in 8 bits, or load it with your own transform',
    )


Found = tuple[Problem, str]  # what is wrong, and a line that names the file


@dataclass
class ProblemFiles:
    """Files with one problem: number, first lines, and values by files."""

    count: int = 0
    first: list[tuple[int, str]] = field(default_factory=list)
    values: Counter[int] = field(default_factory=Counter)


class Problems(dict[Problem, ProblemFiles]):
    """The files of a data set by what is wrong with them."""

    def note(
        self, place: int, what: Problem, text: str, values: Iterable[int] = ()
    ) -> None:
        """Note one file; ``text`` names it and says what is wrong."""
        self.add({what: ProblemFiles(1, [(place, text)], Counter(values))})

    def add(self, others: dict[Problem, ProblemFiles]) -> None:
        """Add the problems of another part of the scan."""
        for what, other in others.items():
            files = self.setdefault(what, ProblemFiles())
            files.count += other.count
            # Sorted by position, so that any number of ranks shows the same.
            files.first = sorted(files.first + other.first)[:FILES_SHOWN]
            files.values.update(other.values)


def explain(error: BaseException, path: str) -> Found:
    """The kind of a failure to load a label, and a line naming the file."""
    if isinstance(error, FileNotFoundError):
        return Problem.MISSING_LABEL, str(error.filename or path)
    if isinstance(error, Image.DecompressionBombError):
        return Problem.TOO_LARGE, f'{path}: {str(error).split(", could")[0]}'
    if isinstance(error, NotAnIndexMapError):
        return Problem.NOT_AN_INDEX_MAP, f'{path}: {error}'
    if isinstance(error, OSError | SyntaxError | EOFError):
        return Problem.UNREADABLE_LABEL, f'{path}: {_reason(error)}'
    return Problem.LOADING_FAILED, f'{path}: {type(error).__name__}: {error}'


def check_image(path: str, label_size: tuple[int, int] | None) -> Found | None:
    """What is wrong with an image file, as far as its header shows."""
    is_checked = False
    try:
        check_file(path)
        is_checked = True
        with Image.open(path) as image:
            size = image.size
            if label_size not in (None, size):
                orientation = image.getexif().get(EXIF_ORIENTATION)
                if orientation in EXIF_ROTATED_BY_90_DEGREES:
                    size = size[::-1]
    except FileNotFoundError:
        return Problem.MISSING_IMAGE, path
    except Image.DecompressionBombError:
        return None  # images may be large, and are not read with Pillow
    except LOADING_ERRORS as error:
        if is_checked and not path.lower().endswith(PILLOW_SUFFIXES):
            return None
        return Problem.UNREADABLE_IMAGE, f'{path}: {_reason(error)}'
    if label_size in (None, size):
        return None
    sizes = 'image {}x{}, label {}x{}'.format(*size, *label_size)
    return Problem.SIZE, f'{path}: {sizes}'


def _reason(error: BaseException) -> str:
    if isinstance(error, UnidentifiedImageError):
        return 'not an image file'  # Pillow's text holds a memory address
    return getattr(error, 'strerror', None) or str(error)


def with_fix(finding: str, fix: str) -> str:
    """A finding of the label check, with what is likely to correct it."""
    return f'{finding}\n    likely fix: {fix}.'


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
