"""Shared parts of the command-line tools."""

from mmseg_margin.compat import INSTALL_HINT, has_mmseg

# Checked before the stack is imported, so that the error is one sentence.
if not has_mmseg():
    raise SystemExit(f'error: {INSTALL_HINT}')
