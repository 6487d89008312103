"""Carries out the run whose record is in a folder: started by ``compare``."""

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from mmseg_margin.compat import apply_patches
from mmseg_margin.errors import MarginError

from .records import read_run, write_run
from .training import carry_out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('folder', type=Path)
    parser.add_argument('--init')
    parser.add_argument('--fit-offsets', action='store_true')
    args = parser.parse_args()

    def record_error(
        kind: type[BaseException],
        error: BaseException,
        traceback: TracebackType | None,
    ) -> None:
        text = str(error)
        if not isinstance(error, MarginError):
            text = f'{kind.__name__}: {text}'
        write_run(replace(read_run(args.folder), error=text), args.folder)
        sys.__excepthook__(kind, error, traceback)

    sys.excepthook = record_error
    apply_patches()
    carry_out(args.folder, args.init, args.fit_offsets)


if __name__ == '__main__':
    main()
