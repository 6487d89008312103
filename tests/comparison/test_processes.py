"""Cores and GPUs of the processes."""

import pytest
import torch

from mmseg_margin.comparison import processes
from mmseg_margin.comparison.processes import environment_of


@pytest.mark.parametrize(('jobs', 'threads'), [(1, '5'), (2, '2'), (9, '1')])
def test_jobs_divide_the_cores(monkeypatch, jobs, threads):
    monkeypatch.delenv('OMP_NUM_THREADS', raising=False)
    monkeypatch.setattr(processes, 'available_cores', lambda: 5)
    assert environment_of(0, jobs)['OMP_NUM_THREADS'] == threads


def test_an_existing_number_of_threads_is_respected(monkeypatch):
    monkeypatch.setenv('OMP_NUM_THREADS', '3')
    assert environment_of(0, 1)['OMP_NUM_THREADS'] == '3'


@pytest.mark.parametrize(
    ('visible', 'expected'),
    [
        ('4, 5', ['4', '5', '4']),
        ('GPU-8a, GPU-17', ['GPU-8a', 'GPU-17', 'GPU-8a']),
        (None, ['0', '1', '0']),
    ],
)
def test_only_visible_gpus_are_used(monkeypatch, visible, expected):
    monkeypatch.setattr(torch.cuda, 'is_available', lambda: True)
    monkeypatch.setattr(torch.cuda, 'device_count', lambda: 2)
    monkeypatch.delenv('CUDA_VISIBLE_DEVICES', raising=False)
    if visible:
        monkeypatch.setenv('CUDA_VISIBLE_DEVICES', visible)
    found = [environment_of(slot, 3) for slot in range(3)]
    assert [each['CUDA_VISIBLE_DEVICES'] for each in found] == expected
