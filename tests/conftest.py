"""Settings for all tests."""

import gc
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, settings
from yapf.yapflib import yapf_api

from mmseg_margin.compat import apply_patches
from tests.commands import TOOLS, output_of_python

# Without a GPU, Triton's kernels run on the CPU in its interpreter. The
# variable is read when triton is imported, which no test has done yet.
if not torch.cuda.is_available():
    os.environ['TRITON_INTERPRET'] = '1'

# As the tools do; tests/test_import.py looks at processes without it. Some
# tests show what an unsafe load would have done.
apply_patches()
os.environ.pop('TORCH_FORCE_WEIGHTS_ONLY_LOAD', None)

# mmengine formats the config of every runner four times, which would take
# most of the time of a test that builds one.
format_code, formatted = yapf_api.FormatCode, {}


def format_once(text: str, **style: Any) -> tuple[str, bool]:
    if text not in formatted:
        formatted[text] = format_code(text, **style)
    return formatted[text]


yapf_api.FormatCode = format_once

# The time of an example depends on the machine.
settings.register_profile(
    'any-machine',
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile('any-machine')


@pytest.fixture(scope='session')
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that pip puts into site-packages."""
    folder = tmp_path_factory.mktemp('installed')
    build = ['setup.py', '-q', 'build', '-b', folder]
    output_of_python(TOOLS.parent, *build)
    return folder / 'lib'


def pytest_collection_finish() -> None:
    """Exclude the imported modules from garbage collection.

    mmengine collects garbage for every data set that it builds; visiting a
    million objects each time would dominate the time of many tests.
    """
    gc.collect()
    gc.freeze()
