"""Which backend runs, and what happens when compiling fails."""

import pytest
import torch

from mmseg_margin.functional import backend, margin_loss
from mmseg_margin.functional.backend import choose_backend
from tests.commands import output_of_python

CPU, GPU = torch.device('cpu'), torch.device('cuda')
WITHOUT_COMPILER = """
import os, torch
from mmseg_margin.functional import margin_loss
from mmseg_margin.functional.backend import choose_backend
print('without a compiler:', choose_backend(torch.device('cpu')))
os.environ['CXX'] = '/bin/false'
scores = torch.randn(1, 3, 4, 4, requires_grad=True)
for _ in range(2):
    loss = margin_loss(
        scores, torch.zeros(1, 4, 4).long(), 0.1, 0.1, backend='compiled')
    loss.backward()
assert loss.isfinite() and scores.grad.isfinite().all()
"""


def run(K=3, size=(4,), backend='compiled', **settings):
    """A loss; a base of its own makes it a kernel of its own."""
    scores, labels = torch.randn(1, K, *size), torch.zeros(1, *size).long()
    margin_loss(scores, labels, 0.1, 0.1, backend=backend, **settings)


@pytest.mark.parametrize('has_triton', [False, True])
def test_what_is_asked_for_is_used(monkeypatch, has_triton):
    """And small batches do not compile."""
    monkeypatch.setattr(backend, '_has_triton', lambda: has_triton)
    assert choose_backend(CPU, 'eager') == 'eager'
    assert choose_backend(CPU, 'compiled') == 'compiled'
    assert choose_backend(CPU, 'auto', scores=4 * 5 * 128 * 128) == 'eager'
    assert (choose_backend(GPU) == 'triton') == has_triton
    with pytest.raises(ValueError, match="backend='fast'"):
        choose_backend(CPU, 'fast')
    if not has_triton:
        with pytest.raises(ImportError, match='needs the package triton'):
            choose_backend(CPU, 'triton')


def test_no_compiler_and_a_broken_one(tmp_path):
    """In a new process, because the answer is cached; reported once."""
    cache = str(tmp_path / 'cache')
    environment = dict(PATH='', CXX='', TORCHINDUCTOR_CACHE_DIR=cache)
    said = output_of_python(tmp_path, '-c', WITHOUT_COMPILER, **environment)
    assert 'without a compiler: eager' in said
    assert said.count('runs eagerly') == 1


def test_only_compile_errors_fall_back(monkeypatch, caplog):
    """Out-of-memory errors are raised, and the kernel stays compiled."""
    calls = []

    def fail(*_):
        calls.append(1)
        raise error

    monkeypatch.setattr(torch, 'compile', lambda *_, **__: fail)
    error = torch.OutOfMemoryError('no memory left')
    for _ in range(2):
        with pytest.raises(torch.OutOfMemoryError):
            run(log_base=11)
    assert len(calls) == 2
    # A cache folder that cannot be written.
    error = FileNotFoundError('/nowhere/cache')
    for _ in range(2):
        run(log_base=13)
    assert len(calls) == 3
    assert caplog.text.count('runs eagerly') == 1
