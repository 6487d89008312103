"""Find the settings of the margin loss that suit a data set."""

from importlib.util import find_spec

# Before any module that imports it, so that a missing one is said in a
# sentence.
if find_spec('optuna') is None:
    raise SystemExit(
        'error: Tuning needs Optuna, which is not installed: '
        "run pip install 'mmseg_margin[tune]'."
    )

from .tune import tune

__all__ = ['tune']
