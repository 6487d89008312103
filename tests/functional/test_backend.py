"""Which backend runs, and what happens when compiling fails."""

import pytest
import torch

from mmseg_margin.functional import choose_backend, margin_loss
from mmseg_margin.functional.margin_loss import MarginKernel
from tests.commands import run_python

WITHOUT_COMPILER = """
import torch
from mmseg_margin.functional import choose_backend
print(choose_backend(torch.device('cpu')))
"""
FAILING_COMPILER = """
import logging, torch
logging.basicConfig()
from mmseg_margin.functional import margin_loss
scores = torch.randn(1, 3, 4, 4, requires_grad=True)
for _ in range(2):
    loss = margin_loss(
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


def test_without_a_compiler_it_is_eager(tmp_path):
    """In a new process, because the answer is cached."""
    nowhere = dict(PATH='', CXX='')
    code, said = run_python(tmp_path, '-c', WITHOUT_COMPILER, **nowhere)
    assert (code, said.split()[-1]) == (0, 'eager')


def test_a_broken_compiler_falls_back_and_says_so_once(tmp_path):
    broken = dict(CXX='/bin/false', TORCHINDUCTOR_CACHE_DIR=str(tmp_path))
    code, said = run_python(tmp_path, '-c', FAILING_COMPILER, **broken)
    assert code == 0, said
    assert said.count('runs eagerly') == 1


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
        margin_loss(
            torch.randn(1, 3, 4),
            torch.zeros(1, 4).long(),
            0.1,
            0.1,
            log_base=3 + variant / 100,
            backend='compiled',
        )
    assert len({function.__code__ for function in compiled}) == 10
    assert graphs['unique_graphs'] - before == 10


def test_other_sizes_threads_and_modes_need_no_new_kernel(monkeypatch):
    """The number of pixels stays dynamic, whatever else changes."""
    counters = torch._dynamo.utils.counters['stats']
    compile_for_real = torch.compile
    monkeypatch.setattr(
        torch,
        'compile',
        lambda f, **_: compile_for_real(f, backend='eager', dynamic=False),
    )
    before, threads = counters['unique_graphs'], torch.get_num_threads()
    try:
        for size in range(4, 16):
            torch.set_num_threads(1 + size % 2)
            with torch.inference_mode(size < 6):
                margin_loss(
                    torch.randn(1, 5, size),
                    torch.zeros(1, size).long(),
                    0.1,
                    0.1,
                    log_base=7,
                    backend='compiled',
                )
    finally:
        torch.set_num_threads(threads)
    # One each for two numbers of threads, in and out of inference mode.
    assert counters['unique_graphs'] - before <= 4


def test_small_batches_do_not_compile():
    cpu = torch.device('cpu')
    assert choose_backend(cpu, 'auto', scores=4 * 5 * 128 * 128) == 'eager'


def test_only_compile_errors_fall_back(monkeypatch):
    """Out-of-memory errors are raised, and the kernel stays compiled."""
    calls = []

    def fail(*_):
        calls.append(1)
        raise torch.OutOfMemoryError('no memory left')

    monkeypatch.setattr(torch, 'compile', lambda *_, **__: fail)
    arguments = torch.randn(1, 3, 4), torch.zeros(1, 4).long(), 0.1, 0.1
    for _ in range(2):
        with pytest.raises(torch.OutOfMemoryError):
            margin_loss(*arguments, log_base=11, backend='compiled')
    assert len(calls) == 2


def test_a_cache_folder_that_cannot_be_written_falls_back(monkeypatch, caplog):
    def fail(*_):
        raise FileNotFoundError('/nowhere/cache')

    monkeypatch.setattr(torch, 'compile', lambda *_, **__: fail)
    arguments = torch.randn(1, 3, 4), torch.zeros(1, 4).long(), 0.1, 0.1
    for _ in range(2):
        margin_loss(*arguments, log_base=13, backend='compiled')
    assert caplog.text.count('runs eagerly') == 1


@pytest.mark.parametrize(('side', 'expected'), [(8, 1), (2048, 2)])
def test_small_work_runs_on_one_thread(monkeypatch, side, expected):
    """And the number of threads is what it was, also after an error."""
    seen = []

    def kernel(self, scores, *_):
        seen.append(torch.get_num_threads())
        raise RuntimeError('stop')

    monkeypatch.setattr(MarginKernel, 'eager', kernel)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with pytest.raises(RuntimeError, match='stop'):
            margin_loss(
                torch.zeros(1, 2, side, side),
                torch.zeros(1, side, side).long(),
                0.1,
                0.1,
                backend='eager',
            )
        assert (seen, torch.get_num_threads()) == ([expected], 2)
    finally:
        torch.set_num_threads(before)
