"""What the command-line tools share."""

from mmseg_margin.compat import INSTALL_HINT, has_mmseg

# Before any module of the stack is imported, so that a missing one is said in
# a sentence.
if not has_mmseg():
    raise SystemExit(f'error: {INSTALL_HINT}')
