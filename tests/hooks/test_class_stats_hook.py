"""ClassStatsHook inside a real Runner on one process."""

import os
from pathlib import Path

import numpy as np
import pytest

from mmseg_margin.errors import DataSetError
from mmseg_margin.functional import margin_offsets
from mmseg_margin.hooks import ClassStatsHook
from tests.hooks.builders import (
    CountingLoss,
    head,
    labels_read,
    log_of,
    losses,
    make_runner,
)
from tests.stats.builders import write_label_file, write_set

COUNTING = {'type': 'CountingLoss'}


def test_every_loss_gets_the_counts(root, tmp_path, counts):
    both = [COUNTING, {'type': 'CrossEntropyLoss', 'loss_weight': 0.1}]
    second = head(COUNTING, type='OCRHead', ocr_channels=4)
    del second['num_convs'], second['concat_input']
    cascade = {
        'type': 'CascadeEncoderDecoder',
        'num_stages': 2,
        'decode_head': [head(both), second],
        'auxiliary_head': [head(both), head(COUNTING)],
    }
    runner = make_runner(root, tmp_path / 'w', model=cascade)
    runner.train()
    found = losses(runner.model)
    assert len(found) == 4
    assert all(loss.counts == counts for loss in found)
    assert all(loss.steps == 2 for loss in found)
    assert labels_read(runner) == 5


def test_one_table_with_the_margins_of_the_loss(root, tmp_path, counts):
    runner = make_runner(root, tmp_path / 'w')
    runner.train()
    log = log_of(runner)
    assert log.count('rho_0k') == 1
    assert 'tau=5, upsilon=2' in log
    rho_0k, rho_k0 = margin_offsets(counts, tau=5.0, upsilon=2.0)
    for k, name in enumerate(('sky', 'road', 'tree', 'car')):
        (row,) = (x for x in log.splitlines() if f'| {name} ' in x)
        assert [cell.strip() for cell in row.split('|')[2:-1]] == [
            f'{counts[k]:,}',
            f'{100 * counts[k] / sum(counts):.4f}',
            '5',
            f'{rho_0k[k]:.4g}',
            f'{rho_k0[k]:.4g}',
        ]


def test_bad_labels_stop_before_the_first_iteration(root, tmp_path):
    write_label_file(root, 3, np.full((32, 48), 200, np.uint8))
    (root / 'ann' / '0001.png').unlink()
    runner = make_runner(root, tmp_path / 'w')
    with pytest.raises(DataSetError) as caught:
        runner.train()
    assert '0001.png' in str(caught.value)
    assert '0003.png: 200' in str(caught.value)
    assert losses(runner.model)[0].steps == 0
    assert not list((tmp_path / 'w').glob('*.pth'))


def test_on_problem_warn_trains_nevertheless(root, tmp_path):
    write_label_file(root, 3, np.full((32, 48), 256, np.uint16))
    model = {'decode_head': head(COUNTING, num_classes=5)}
    hook = {'on_problem': 'warn'}
    runner = make_runner(root, tmp_path / 'w', hook=hook, model=model)
    runner.train()
    log = log_of(runner)
    assert 'decode_head has num_classes=5' in log
    assert '[warning] label files with values above 255' in log
    assert losses(runner.model)[0].steps == 2


def test_head_that_ignores_another_label(root, tmp_path):
    model = {'decode_head': head(COUNTING, ignore_index=3)}
    with pytest.raises(DataSetError, match='255 in 5 file'):
        make_runner(root, tmp_path / 'w', model=model).train()


def test_absent_class_is_named(root, tmp_path):
    write_set(root, 5, values=(0, 1, 3))
    runner = make_runner(
        root, tmp_path / 'w', {'type': 'MarginCalibrationLoss'}
    )
    with pytest.raises(ValueError, match='tree'):
        runner.train()


def test_nothing_happens_without_training(root, tmp_path):
    runner = make_runner(root, tmp_path / 'w')
    checkpoint = {'meta': {}, 'state_dict': {}}
    runner.call_hook('before_save_checkpoint', checkpoint=checkpoint)
    assert checkpoint == {'meta': {}, 'state_dict': {}}
    assert isinstance(losses(runner.model)[0], CountingLoss)


@pytest.mark.parametrize(
    ('kwargs', 'message'),
    [
        ({'class_weight': 'log'}, "class_weight='log' is not one of"),
        ({'on_problem': 'ignore'}, "on_problem='ignore' is not one of"),
    ],
)
def test_bad_arguments(kwargs, message):
    with pytest.raises(ValueError, match=message):
        ClassStatsHook(**kwargs)


@pytest.mark.skipif(
    not hasattr(os, 'fork') or os.geteuid() != 0,
    reason='needs root, to become a user who may not write',
)
@pytest.mark.skipif(
    not all(
        folder.stat().st_mode & 0o001
        for path in (Path(__file__), Path(os.__file__))
        for folder in path.parents
    ),
    reason='the project or Python is in a folder closed to other users',
)
def test_read_only_data_and_no_cache_folder(root, tmp_path):
    """As a user who may write nowhere but into the work dir."""
    (root / 'ann' / '0001.png').chmod(0)
    work_dir = tmp_path / 'w'
    work_dir.mkdir()
    os.chown(work_dir, 65534, 65534)
    for folder in (tmp_path, root, root / 'ann'):
        folder.chmod(0o755)
    for folder in tmp_path.parents:
        # pytest's own folders are closed to others, however many there are.
        folder.chmod(folder.stat().st_mode | 0o111)
    before = sorted(root.rglob('*'))
    child = os.fork()
    if child == 0:
        os.setuid(65534)
        hook = {'cache_dir': str(root / 'cache')}
        try:
            make_runner(root, work_dir, hook=hook).train()
        except DataSetError as error:
            (work_dir / 'report').write_text(str(error))
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    report = (work_dir / 'report').read_text()
    assert '0001.png: Permission denied' in report
    assert sorted(root.rglob('*')) == before
