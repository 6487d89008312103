"""ClassStatsHook on several processes, with gloo on the CPU."""

import re

import pytest
from mmengine.dist import get_rank

from tests.hooks.builders import ON_CPU, losses, make_runner
from tests.processes import run_ranks
from tests.stats.builders import spoil_labels, write_set


@pytest.fixture
def train(root, tmp_path, labels_read):
    """Train on some ranks, and return what each of them has seen."""

    def train_rank(roots, work_dir, loader):
        """The counts and how many labels were read, or the error."""
        place = roots[get_rank() % len(roots)]
        runner = make_runner(place, work_dir, loader=loader, **ON_CPU)
        try:
            runner.train()
        except (ValueError, NotImplementedError) as error:
            return type(error).__name__, str(error)
        return losses(runner.model)[0].counts, len(labels_read)

    def run(ranks, *others, loader='LoadAnnotations'):
        args = (root, *others), tmp_path / str(ranks), loader
        return run_ranks(ranks, train_rank, tmp_path / f'ranks {ranks}', *args)

    return run


def test_any_number_of_ranks_counts_the_same(train, tmp_path, counts):
    tables = []
    for size in (1, 3):
        found, files_read = zip(*train(size), strict=True)
        assert found == (counts,) * size
        assert sum(files_read) == 5  # each file once
        assert max(files_read) - min(files_read) <= 1
        logs = (tmp_path / str(size)).rglob('*.log')
        text = ''.join(path.read_text() for path in logs)
        tables.extend(re.findall(r'(?s)\+-+\+.*?rho_0k.*?(?=\n[^+|])', text))
    assert len(tables) == 2  # one of each training, and they are the same
    assert tables[0] == tables[1]


def test_bad_labels_stop_all_ranks_with_the_same_report(root, train, tmp_path):
    spoil_labels(root)
    first, second = train(2)
    assert first == second
    error, message = first
    assert error == 'DataSetError'
    for index in range(5):
        assert f'{index:04d}.png' in message
    assert not list(tmp_path.rglob('*.pth'))


def test_a_rank_that_fails_does_not_leave_the_others_waiting(train):
    (error, message), second = train(2, loader='FaultyLoader')
    assert error == 'DataSetError'
    assert 'failed on rank [1]' in message
    fault = 'a fault in the code, not in a file'
    assert second == ('NotImplementedError', fault)


def test_ranks_that_see_other_files_are_stopped(train, tmp_path):
    for _, message in train(2, write_set(tmp_path / 'elsewhere', 5)):
        assert 'do not see the same label files' in message
