"""Find the loss and its settings that suit a data set."""

from importlib.util import find_spec

if find_spec('optuna') is None:
    raise SystemExit(
        'error: Tuning needs Optuna, which is not installed: '
        "run pip install 'mmseg_margin[tune]'."
    )

from .tune import tune

__all__ = ['tune']
