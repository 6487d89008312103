"""What the command-line tools share."""

from mmseg_margin.compat import require_mmseg

# Before any module of the stack is imported, so that a missing one is said in
# a sentence.
require_mmseg()
