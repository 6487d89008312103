"""Kernels are checked on a device before they are used there."""

import logging
from unittest.mock import Mock

import pytest
import torch

from mmseg_margin.functional import triton_launch
from mmseg_margin.functional.triton_check import (
    MOVED_ERRORS,
    find_difference,
    fixed_batch,
    kernels_match_reference,
)

triton = pytest.importorskip('triton', reason='triton is not installed')
tl = pytest.importorskip('triton.language')

DEVICE = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
MARGIN = ('margin',)


@triton.jit
def wrong_power_and_sigmoid(x):
    u = tl.exp2(tl.minimum(x, 30.0))
    return u, u / (1.001 + u)


@pytest.fixture(autouse=True)
def _nothing_proven(caplog):
    kernels_match_reference.cache_clear()
    with caplog.at_level(logging.WARNING, 'mmseg_margin'):
        yield
    kernels_match_reference.cache_clear()


def test_right_kernels_are_proven(caplog):
    state = torch.get_rng_state()
    assert kernels_match_reference(DEVICE)
    assert kernels_match_reference(DEVICE, scale=1, dtype=torch.float16)
    assert caplog.records == []
    assert torch.equal(torch.get_rng_state(), state)
    # Also where there are no gradients.
    with torch.inference_mode(), torch.autocast('cpu', torch.bfloat16):
        assert find_difference(DEVICE, 2, torch.float32, MARGIN) == ''


@pytest.mark.skipif(
    DEVICE.type == 'cuda', reason='compiled kernels cannot be patched'
)
@pytest.mark.parametrize(
    ('name', 'wrong', 'message'),
    [
        (
            'margin.power_and_sigmoid',
            wrong_power_and_sigmoid,
            'gradient of margin is off by',
        ),
        (
            'jaccard.count_errors',
            {(1, 2): lambda *_, **__: None},
            'errors of jaccard have a wrong level',
        ),
    ],
)
def test_a_wrong_kernel_is_reported_once(
    monkeypatch, caplog, name, wrong, message
):
    monkeypatch.setattr(f'mmseg_margin.functional.triton_{name}', wrong)
    for _ in range(2):
        assert not kernels_match_reference(
            DEVICE, scale=2, losses=(name.split('.')[0],)
        )
    (record,) = caplog.records
    assert message in record.getMessage()
    assert 'Please report' in record.getMessage()


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
    monkeypatch.setattr(triton_launch, 'launch', Mock(side_effect=error))
    assert not kernels_match_reference(DEVICE)
    (record,) = caplog.records
    assert str(error).split('\n')[0] in record.getMessage()
    assert 'long log' not in record.getMessage()


def test_out_of_memory_is_no_broken_kernel(monkeypatch, caplog):
    for error in (
        torch.OutOfMemoryError('Tried to allocate 2 GiB'),
        RuntimeError('Triton Error [CUDA]: out of memory'),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(triton_launch, 'launch', Mock(side_effect=error))
            with pytest.raises(type(error)) as raised:
                kernels_match_reference(DEVICE, losses=MARGIN)
        assert raised.value is error
    assert caplog.records == []
    assert kernels_match_reference(DEVICE, losses=MARGIN)


@pytest.mark.parametrize('scale', [1, 2, 3, 4, 6, 8, 16, 32])
def test_rounding_cannot_look_like_a_wrong_kernel(scale):
    """Few errors are near the border of a level, and no top scores equal."""
    for dtype in triton_launch.DTYPES:
        low, _, _ = fixed_batch(scale, dtype)
        scores = torch.nn.functional.interpolate(
            low.double(), scale_factor=scale, mode='bilinear'
        )
        p = scores.softmax(1)
        odds = (p / (1 - p)).clamp(2**-16, 2**15.99)
        # Equally spaced within an octave, as the bits of a float are.
        place = 16 * odds / 2 ** odds.log2().floor()
        near = (place - place.round()).abs() < 1e-4
        allowed = 2 + MOVED_ERRORS * p.numel()
        assert near[odds > 2**-16].sum() <= allowed / 2
        top, second = scores.topk(2, dim=1).values.unbind(1)
        assert (top - second).min() > 2e-5
