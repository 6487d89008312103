"""The Triton kernels compiled ahead of time, and the model of their cost."""

import json

import pytest

from tests.commands import TOOLS, output_of_python

pytest.importorskip('triton', reason='triton is not installed')

SHAPES = ('2x19x512x1024x4', '2x150x512x512x4')


def test_registers_and_modelled_cost(tmp_path):
    """In a process of its own, because this one interprets kernels."""
    arguments = ['--shapes', *SHAPES, '--scales', 4, '--dtypes', 'float32']
    arguments += ['--architectures', 80, '--json', tmp_path / 'figures.json']
    tool = TOOLS / 'benchmark.py', 'kernels'
    output_of_python(TOOLS.parent, *tool, *arguments, TRITON_INTERPRET='0')
    figures = json.loads((tmp_path / 'figures.json').read_text('utf-8'))
    assert len(figures['kernels']) == 8
    for compiled in figures['kernels'].values():
        assert compiled['sm_80']['registers'] <= 128
        assert compiled['sm_80']['spilled'] == 0
    for shape in SHAPES:
        stages = figures['stages'][shape]
        mmseg = stages["mmseg's cross-entropy"]
        for loss in ('margin', 'jaccard', 'cross-entropy'):
            ours = stages[loss]
            assert ours['launches'] <= (6 if loss == 'jaccard' else 3)
            assert ours['bytes'] <= 0.15 * mmseg['bytes']
            assert ours['peak'] <= 0.15 * mmseg['peak']
            # Scores and labels are read and the gradient is written, at least.
            assert ours['bytes'] >= 2 * ours['peak']
