"""ClassStatsHook on several processes, with gloo on the CPU."""

import re

import numpy as np
import pytest
from mmengine.dist import get_rank

from tests.hooks.builders import ON_CPU, labels_read, losses, make_runner
from tests.processes import run_ranks
from tests.stats.builders import write_label_file, write_set


def train_rank(root, work_dir, loader):
    """What a rank has seen: the counts, or the error that stopped it."""
    runner = make_runner(root, work_dir, loader=loader, **ON_CPU)
    try:
        runner.train()
    except (ValueError, NotImplementedError) as error:
        return {'error': type(error).__name__, 'message': str(error)}
    return {
        'counts': losses(runner.model)[0].counts,
        'labels_read': labels_read(runner),
    }


@pytest.fixture
def train(root, tmp_path):
    """Train on so many ranks: what each of them has seen."""

    def run(ranks, loader='LoadAnnotations'):
        work_dir = tmp_path / str(ranks)
        folder = tmp_path / f'ranks {ranks}'
        return run_ranks(ranks, train_rank, folder, root, work_dir, loader)

    return run


def table_of(folder):
    """The one table in the logs of all ranks."""
    text = ''.join(path.read_text() for path in folder.rglob('*.log'))
    (table,) = re.findall(r'\+-+\+.*?rho_0k.*?(?=\n[^+|])', text, re.DOTALL)
    return table


def test_any_number_of_ranks_counts_the_same(train, tmp_path, counts):
    for size in (1, 2, 3):
        ranks = train(size)
        assert all(rank['counts'] == counts for rank in ranks)
        shares = [rank['labels_read'] for rank in ranks]
        assert sum(shares) == 5  # one scan's worth of files in all
        assert max(shares) - min(shares) <= 1
    tables = {table_of(tmp_path / str(size)) for size in (1, 2, 3)}
    assert len(tables) == 1


def test_bad_labels_stop_all_ranks_with_the_same_report(root, train, tmp_path):
    ann = root / 'ann'
    whole = (ann / '0000.png').read_bytes()
    (ann / '0000.png').write_bytes(whole[: len(whole) // 2])
    (ann / '0001.png').unlink()
    (ann / '0002.png').write_bytes(b'')
    (ann / '0003.png').write_bytes(bytes(64))
    write_label_file(root, 4, np.full((32, 48), 200, np.uint8))
    first, second = train(2)
    assert first == second
    assert first['error'] == 'DataSetError'
    for index in range(5):
        assert f'{index:04d}.png' in first['message']
    assert not list(tmp_path.rglob('*.pth'))


def test_a_rank_that_fails_does_not_leave_the_others_waiting(train):
    ranks = train(2, loader='FaultyLoader')
    assert ranks[0]['error'] == 'DataSetError'
    assert 'failed on rank [1]' in ranks[0]['message']
    assert ranks[1] == {
        'error': 'NotImplementedError',
        'message': 'a fault in the code, not in a file',
    }


def test_ranks_that_see_other_files_are_stopped(root, tmp_path):
    roots = root, write_set(tmp_path / 'elsewhere', 5)

    def train_somewhere():
        return train_rank(roots[get_rank()], tmp_path, 'LoadAnnotations')

    for rank in run_ranks(2, train_somewhere, tmp_path / 'ranks'):
        assert 'do not see the same label files' in rank['message']
