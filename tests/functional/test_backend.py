"""Which backend runs, and what happens when compiling fails."""

import subprocess
import sys

import pytest
import torch

from mmseg_margin.functional import choose_backend, margin_calibration_loss

FAILING_COMPILER = """
import logging, torch
logging.basicConfig()
from mmseg_margin.functional import margin_calibration_loss
scores = torch.randn(1, 3, 4, 4, requires_grad=True)
for _ in range(2):
    loss = margin_calibration_loss(
        scores, torch.zeros(1, 4, 4).long(), 0.1, 0.1, backend='compiled')
    loss.backward()
assert loss.isfinite() and scores.grad.isfinite().all()
"""


def test_what_is_asked_for_is_used():
    cpu = torch.device('cpu')
    assert choose_backend(cpu, 'eager') == 'eager'
    assert choose_backend(cpu, 'compiled') == 'compiled'
    with pytest.raises(ValueError, match='backend'):
        choose_backend(cpu, 'fast')


def test_without_a_compiler_it_is_eager():
    """A fresh process, because the answer is kept."""
    code = (
        'import torch\n'
        'from mmseg_margin.functional import choose_backend\n'
        "print(choose_backend(torch.device('cpu')))"
    )
    done = subprocess.run(
        [sys.executable, '-c', code],
        env={'PATH': '', 'HOME': '/nonexistent'},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split()[-1] == 'eager'


def test_a_broken_compiler_falls_back_and_says_so_once(tmp_path):
    done = subprocess.run(
        [sys.executable, '-c', FAILING_COMPILER],
        env={
            'PATH': '/usr/bin:/bin',
            'HOME': str(tmp_path),
            'CXX': '/bin/false',
            'TORCHINDUCTOR_CACHE_DIR': str(tmp_path / 'inductor'),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count('runs eagerly') == 1


def test_many_variants_stay_compiled(monkeypatch):
    """The compiler gives up after eight variants of one function."""
    compile_for_real, compiled = torch.compile, []

    def compile_quickly(function, **kwargs):
        compiled.append(function)
        return compile_for_real(function, backend='eager', fullgraph=True)

    monkeypatch.setattr(torch, 'compile', compile_quickly)
    graphs = torch._dynamo.utils.counters['stats']
    before = graphs['unique_graphs']
    for variant in range(10):
        margin_calibration_loss(
            torch.randn(1, 3, 4),
            torch.zeros(1, 4).long(),
            0.1,
            0.1,
            form='softmax',
            focus=3 + variant / 100,
            backend='compiled',
        )
    assert len({function.__code__ for function in compiled}) == 10
    assert graphs['unique_graphs'] - before == 10
