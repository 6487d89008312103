"""ClassStatsHook on several processes, with gloo on the CPU."""

import pytest

from tests.hooks.builders import ON_CPU, losses, make_runner
from tests.processes import run_ranks
from tests.stats.builders import spoil_labels


@pytest.fixture
def train(root, tmp_path, labels_read):
    """Train on some ranks, and return what each of them has seen."""

    def train_rank(loader):
        """The counts and how many labels were read, or the error."""
        runner = make_runner(root, tmp_path / 'w', loader=loader, **ON_CPU)
        try:
            runner.train()
        except (ValueError, NotImplementedError) as error:
            return type(error).__name__, str(error)
        return losses(runner.model)[0].counts, len(labels_read)

    def run(ranks, loader='LoadAnnotations'):
        return run_ranks(ranks, train_rank, tmp_path / 'ranks', loader)

    return run


def test_ranks_share_the_files(train, counts):
    found, files_read = zip(*train(3), strict=True)
    assert found == (counts,) * 3
    assert sum(files_read) == 5  # each file once
    assert max(files_read) - min(files_read) <= 1


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
