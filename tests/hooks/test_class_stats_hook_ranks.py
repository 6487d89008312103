"""ClassStatsHook on several processes, with gloo on the CPU."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from mmengine.registry import init_default_scope

from tests.stats.builders import (
    count_pixel_by_pixel,
    open_set,
    write_label_file,
    write_set,
)

REPOSITORY = Path(__file__).resolve().parents[2]
SECONDS = 60
# (data set, loading transform, world size) by the name of the work dir
TRAININGS = {
    'one': ('good', 'LoadAnnotations', 1),
    'two': ('good', 'LoadAnnotations', 2),
    'three': ('good', 'LoadAnnotations', 3),
    'bad': ('bad', 'LoadAnnotations', 2),
    'faulty': ('good', 'FaultyLoader', 2),
}


def write_bad_set(root):
    """Truncated, missing, empty, zeros, and a label out of range."""
    ann = write_set(root, 5) / 'ann'
    whole = (ann / '0000.png').read_bytes()
    (ann / '0000.png').write_bytes(whole[: len(whole) // 2])
    (ann / '0001.png').unlink()
    (ann / '0002.png').write_bytes(b'')
    (ann / '0003.png').write_bytes(bytes(64))
    write_label_file(root, 4, np.full((32, 48), 200, np.uint8))


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    """Where all trainings have been run, none longer than a minute."""
    folder = tmp_path_factory.mktemp('ranks')
    write_set(folder / 'good', 5)
    write_bad_set(folder / 'bad')
    arguments = []
    for name, (data, loader, size) in TRAININGS.items():
        (folder / name).mkdir(exist_ok=True)
        paths = f'{folder / data}:{folder / name}'
        arguments.append(f'{paths}:{loader}:{size}')
    process = subprocess.Popen(
        [sys.executable, '-m', 'tests.hooks.train_ranks', *arguments],
        cwd=REPOSITORY,
        env={**os.environ, 'OMP_NUM_THREADS': '1'},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        errors = process.communicate(timeout=SECONDS * len(TRAININGS))[1]
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, errors
    return folder


def outcome(folder, name):
    """Exit codes and results of the ranks of one training."""
    codes = json.loads((folder / name / 'exit_codes.json').read_text())
    ranks = [folder / name / f'{rank}.json' for rank in range(len(codes))]
    return codes, [json.loads(path.read_text()) for path in ranks]


def table_of(folder):
    """The one table in the logs of all ranks."""
    text = ''.join(path.read_text() for path in folder.rglob('*.log'))
    (table,) = re.findall(r'\+-+\+.*?rho_0k.*?(?=\n[^+|])', text, re.DOTALL)
    return table


@pytest.mark.parametrize('name', ['one', 'two', 'three'])
def test_any_number_of_ranks_counts_the_same(folder, name):
    init_default_scope('mmseg')
    counts = count_pixel_by_pixel([open_set(folder / 'good')], 4)[0]
    codes, ranks = outcome(folder, name)
    assert set(codes) == {0}
    assert all(rank['counts'] == counts for rank in ranks)
    shares = [rank['labels_read'] for rank in ranks]
    assert sum(shares) == 5  # one scan's worth of files in all
    assert max(shares) - min(shares) <= 1
    assert table_of(folder / name) == table_of(folder / 'one')


def test_bad_labels_stop_all_ranks_with_the_same_report(folder):
    codes, (first, second) = outcome(folder, 'bad')
    assert 0 not in codes
    assert first == second
    assert first['error'] == 'DataSetError'
    for index in range(5):
        assert f'{index:04d}.png' in first['message']
    assert not list((folder / 'bad').rglob('*.pth'))


def test_a_rank_that_fails_does_not_leave_the_others_waiting(folder):
    codes, ranks = outcome(folder, 'faulty')
    assert 0 not in codes
    assert ranks[0]['error'] == 'DataSetError'
    assert 'failed on rank [1]' in ranks[0]['message']
    assert ranks[1] == {
        'error': 'NotImplementedError',
        'message': 'a fault in the code, not in a file',
    }
