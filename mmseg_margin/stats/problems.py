"""What can be wrong with single files, grouped so that shares add up."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

FILES_SHOWN = 10
EXPORT_AGAIN = 'copy or export these files again'


class Kind(Enum):
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
        'where classes meet',
        'export the labels again as PNG, from where they were drawn; '
        'converting these files keeps the damage',
    )
    LOADING_FAILED = (
        'label files on which the loading transform failed',
        'the message is that of the transform in the train pipeline',
    )
    VALUE = ('label values outside the classes', '')
    BINARY_MASK = (
        'every label is either 0 or 255, a mask rather than class indices',
        'map 255 to 1 in the files: as it is, 255 counts as ignored or as '
        'out of range, and no class but 0 is ever learnt',
    )
    SIZE = (
        'labels whose size differs from that of the image',
        'check that image and label belong together and were resized alike',
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

    @property
    def headline(self) -> str:
        return self.value[0]

    @property
    def fix(self) -> str:
        return self.value[1]


@dataclass
class Group:
    """The files of one kind: how many, the first ones, the values seen."""

    count: int = 0
    first: list[tuple[int, str]] = field(default_factory=list)
    values: Counter[int] = field(default_factory=Counter)

    def add(self, other: 'Group') -> None:
        self.count += other.count
        # By position in the data set: the same ten whoever scanned them.
        self.first = sorted(self.first + other.first)[:FILES_SHOWN]
        self.values.update(other.values)


class Problems(dict[Kind, Group]):
    """Groups of files by what is wrong with them."""

    def note(
        self, position: int, kind: Kind, text: str, values: Iterable[int] = ()
    ) -> None:
        """Note one file; ``text`` names it and says what is wrong."""
        self.add({kind: Group(1, [(position, text)], Counter(values))})

    def add(self, other: dict[Kind, Group]) -> None:
        """Add the problems of another part of the scan."""
        for kind, group in other.items():
            self.setdefault(kind, Group()).add(group)

    def in_order(self) -> list[tuple[Kind, Group]]:
        """The groups in the order in which they are reported."""
        return [(kind, self[kind]) for kind in Kind if kind in self]
