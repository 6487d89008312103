"""Carries out one run, for ``compare``: FOLDER INIT [--fit-offsets]."""

import sys
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from mmseg_margin.compat import apply_patches
from mmseg_margin.errors import MarginError

from .records import read_run, write_run
from .training import carry_out


def main() -> None:
    folder, init = Path(sys.argv[1]), sys.argv[2]

    def record_error(
        kind: type[BaseException],
        error: BaseException,
        traceback: TracebackType | None,
    ) -> None:
        text = str(error)
        if not isinstance(error, MarginError):
            text = f'{kind.__name__}: {text}'
        write_run(replace(read_run(folder), error=text), folder)
        sys.__excepthook__(kind, error, traceback)

    sys.excepthook = record_error
    apply_patches()
    carry_out(folder, init, fit='--fit-offsets' in sys.argv)


if __name__ == '__main__':
    main()
