"""Where label statistics come from."""

import hashlib
from dataclasses import dataclass

from .validation import check_int, check_texts


@dataclass(frozen=True)
class Provenance:
    """Where the counts come from; empty for counts given by hand."""

    dataset: str = ''
    files: int = 0
    mapping: str = ''
    ignore_index: int | None = 255
    fingerprint: str = ''
    version: str = ''

    def __post_init__(self) -> None:
        for name in ('dataset', 'mapping', 'fingerprint', 'version'):
            check_texts(f'provenance.{name}', [getattr(self, name)])
        check_int('provenance.files', self.files)
        if self.ignore_index is not None:
            check_int('provenance.ignore_index', self.ignore_index, None)

    def merge(self, other: 'Provenance') -> 'Provenance':
        """Where the sum of both statistics comes from."""

        def joined(name: str) -> str:
            values = (getattr(self, name), getattr(other, name))
            return ' + '.join(dict.fromkeys(filter(None, values)))

        both = f'{self.fingerprint}+{other.fingerprint}'
        return Provenance(
            dataset=joined('dataset'),
            files=self.files + other.files,
            mapping=joined('mapping'),
            ignore_index=self.ignore_index,
            fingerprint=hashlib.sha256(both.encode()).hexdigest(),
            version=joined('version'),
        )
