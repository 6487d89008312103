"""How the cores are shared."""

import pytest

from mmseg_margin.comparison import jobs


@pytest.mark.parametrize(('number', 'threads'), [(1, '5'), (2, '2'), (9, '1')])
def test_every_job_gets_its_share_of_the_cores(monkeypatch, number, threads):
    monkeypatch.delenv('OMP_NUM_THREADS', raising=False)
    monkeypatch.setattr(jobs, 'available_cores', lambda: 5)
    assert jobs.environment_of(0, number)['OMP_NUM_THREADS'] == threads


def test_a_number_of_threads_of_one_s_own_is_kept(monkeypatch):
    monkeypatch.setenv('OMP_NUM_THREADS', '3')
    assert jobs.environment_of(0, 1)['OMP_NUM_THREADS'] == '3'
