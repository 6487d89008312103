"""Without a GPU, Triton's kernels run on the CPU in its interpreter."""

import os

import torch

if not torch.cuda.is_available():
    # Read when triton is imported, which no test has done yet.
    os.environ['TRITON_INTERPRET'] = '1'
