"""Kernels are checked on a device before they are used there."""

import logging

import pytest
import torch

from mmseg_margin.functional import triton_launch, triton_problem
from mmseg_margin.functional.triton_check import find_difference, proven

triton = pytest.importorskip('triton', reason='triton is not installed')
tl = pytest.importorskip('triton.language')

DEVICE = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
MARGIN = ('margin',)
DTYPES = (torch.float32, torch.float16, torch.bfloat16)


@triton.jit
def wrong_power_and_sigmoid(x):
    u = tl.exp2(tl.minimum(x, 30.0))
    return u, u / (1.001 + u)


@pytest.fixture(autouse=True)
def _nothing_proven():
    proven.cache_clear()
    yield
    proven.cache_clear()


def test_right_kernels_are_proven(caplog):
    assert proven(DEVICE)
    assert proven(DEVICE, scale=1, dtype=torch.float16)
    assert caplog.records == []


@pytest.mark.skipif(
    DEVICE.type == 'cuda', reason='compiled kernels cannot be patched'
)
def test_a_wrong_kernel_is_reported_once(monkeypatch, caplog):
    from mmseg_margin.functional import triton_margin

    monkeypatch.setattr(
        triton_margin, 'power_and_sigmoid', wrong_power_and_sigmoid
    )
    with caplog.at_level(logging.WARNING, 'mmseg_margin'):
        assert not proven(DEVICE, losses=MARGIN)
        assert not proven(DEVICE, losses=MARGIN)
    (record,) = caplog.records
    assert 'gradient of margin is off by' in record.getMessage()
    assert 'Please report' in record.getMessage()


def raise_error(error):
    def launch(*arguments, **constants):
        raise error

    return launch


@pytest.mark.parametrize(
    'error',
    [
        RuntimeError('ptxas failed\nwith a long log'),
        ImportError('No module named triton'),
        AssertionError('unsupported type'),
        OSError('no C compiler'),
    ],
    ids=repr,
)
def test_a_kernel_that_raises_is_reported(monkeypatch, caplog, error):
    monkeypatch.setattr(triton_launch, 'launch', raise_error(error))
    with caplog.at_level(logging.WARNING, 'mmseg_margin'):
        assert not proven(DEVICE)
    (record,) = caplog.records
    assert str(error).split('\n')[0] in record.getMessage()
    assert 'long log' not in record.getMessage()


@pytest.mark.parametrize(
    'error',
    [
        torch.OutOfMemoryError('Tried to allocate 2 GiB'),
        RuntimeError('Triton Error [CUDA]: out of memory'),
    ],
    ids=repr,
)
def test_out_of_memory_is_no_broken_kernel(monkeypatch, caplog, error):
    with monkeypatch.context() as patch:
        patch.setattr(triton_launch, 'launch', raise_error(error))
        with pytest.raises(type(error), match=str(error).split(':')[0][:9]):
            proven(DEVICE, losses=MARGIN)
    assert caplog.records == []
    assert proven(DEVICE, losses=MARGIN)


def test_it_works_where_there_are_no_gradients():
    with torch.inference_mode(), torch.autocast('cpu', torch.bfloat16):
        assert find_difference(DEVICE, 2, torch.float32, MARGIN) == ''


def test_it_leaves_the_random_numbers_alone():
    state = torch.get_rng_state()
    assert proven(DEVICE, losses=MARGIN)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize('scale', [1, 2, 3, 4, 6, 8, 16, 32])
def test_rounding_cannot_look_like_a_wrong_kernel(scale):
    for dtype in DTYPES:
        problem = triton_problem.Problem.of(scale, dtype)
        scores = torch.nn.functional.interpolate(
            problem.scores.double(), scale_factor=scale, mode='bilinear'
        )
        p, step = scores.softmax(1), problem.step
        error = torch.where(problem.is_label(scores), 1 - p, p)
        place = triton_problem.LEVELS * error[..., ::step, ::step]
        place = place[place > 0.5]
        assert (place - place.round()).abs().min() > 2e-4
        top, second = scores.topk(2, dim=1).values.unbind(1)
        assert (top - second).min() > 2e-5
