"""ClassStatsHook on several processes, with gloo on the CPU."""

import re
import time

import numpy as np
import pytest

from tests.hooks.ranks import run_ranks
from tests.stats.builders import write_label_file

SECONDS = 60


@pytest.fixture
def train(root, tmp_path):
    """Train on so many ranks: exit codes and what each rank wrote."""

    def run(world_size, loader='LoadAnnotations'):
        folder = tmp_path / str(world_size)
        folder.mkdir()
        results = run_ranks(root, folder, loader, world_size, SECONDS)
        return [code for code, _ in results], [rank for _, rank in results]

    return run


def table_of(folder):
    """The one table in the logs of all ranks."""
    text = ''.join(path.read_text() for path in folder.rglob('*.log'))
    (table,) = re.findall(r'\+-+\+.*?rho_0k.*?(?=\n[^+|])', text, re.DOTALL)
    return table


def test_any_number_of_ranks_counts_the_same(train, tmp_path, counts):
    for size in (1, 2, 3):
        codes, ranks = train(size)
        assert set(codes) == {0}
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
    start = time.monotonic()
    codes, (first, second) = train(2)
    assert time.monotonic() - start < SECONDS
    assert set(codes) == {1}
    assert first == second
    assert first['error'] == 'DataSetError'
    for index in range(5):
        assert f'{index:04d}.png' in first['message']
    assert not list(tmp_path.rglob('*.pth'))


def test_a_rank_that_fails_does_not_leave_the_others_waiting(train):
    codes, ranks = train(2, loader='FaultyLoader')
    assert set(codes) == {1}
    assert ranks[0]['error'] == 'DataSetError'
    assert 'failed on rank [1]' in ranks[0]['message']
    assert ranks[1] == {
        'error': 'NotImplementedError',
        'message': 'a fault in the code, not in a file',
    }
