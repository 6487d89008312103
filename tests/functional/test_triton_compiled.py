"""The Triton kernels compiled ahead of time, and the model of their cost."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip('triton', reason='triton is not installed')

ROOT = Path(__file__).resolve().parents[2]
# One worker, so that the benchmark runs once.
pytestmark = pytest.mark.xdist_group('triton_compiled')
SHAPES = ('2x19x512x1024x4', '2x150x512x512x4')


@pytest.fixture(scope='module')
def figures(tmp_path_factory):
    """In a process of its own, because this one interprets kernels."""
    file = tmp_path_factory.mktemp('kernels') / 'figures.json'
    command = [sys.executable, 'tools/benchmark.py', 'kernels']
    command += ['--shapes', *SHAPES, '--scales', '4', '--dtypes', 'float32']
    command += ['--architectures', '80', '--json', str(file)]
    environment = {**os.environ, 'TRITON_INTERPRET': '0'}
    subprocess.run(command, cwd=ROOT, env=environment, check=True)
    return json.loads(file.read_text('utf-8'))


def test_kernels_fit_into_the_registers(figures):
    kernels = figures['kernels']
    assert len(kernels) == 7
    for compiled in kernels.values():
        assert compiled['sm_80']['registers'] <= 128
        assert compiled['sm_80']['spilled'] == 0


@pytest.mark.parametrize('shape', SHAPES)
@pytest.mark.parametrize('loss', ['margin', 'jaccard', 'cross-entropy'])
def test_modelled_cost(figures, shape, loss):
    ours = figures['stages'][shape][loss]
    mmseg = figures['stages'][shape]["mmseg's cross-entropy"]
    assert ours['launches'] <= (6 if loss == 'jaccard' else 3)
    assert ours['bytes'] <= 0.15 * mmseg['bytes']
    assert ours['peak'] <= 0.15 * mmseg['peak']
    # Scores and labels are read and the gradient is written, at least.
    assert ours['bytes'] >= 2 * ours['peak']
