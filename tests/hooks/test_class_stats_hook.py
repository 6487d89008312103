"""ClassStatsHook inside a real Runner on one process."""

import os

import numpy as np
import pytest
import torch
from mmseg.models.losses import CrossEntropyLoss

from mmseg_margin.functional import margin_offsets
from mmseg_margin.hooks import ClassStatsHook
from mmseg_margin.losses import (
    MarginCalibrationLoss,
    WeightedCrossEntropyLoss,
)
from mmseg_margin.stats import ClassStats, DataSetError, class_weights
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


def load(path):
    return torch.load(path, weights_only=False)


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


def test_statistics_are_in_the_checkpoint(root, tmp_path, counts):
    make_runner(root, tmp_path / 'w').train()
    checkpoint = load(tmp_path / 'w' / 'iter_2.pth')
    stats = ClassStats.from_dict(checkpoint['meta']['class_stats'])
    assert stats.counts == counts
    assert stats.provenance.files == 5
    state = {'decode_head.loss_decode': {'steps': [2.0]}}
    assert checkpoint['meta']['margin_state'] == state
    assert not any('loss' in key for key in checkpoint['state_dict'])


def test_second_run_takes_the_cache(root, tmp_path, counts):
    hook = {'cache_dir': str(tmp_path / 'cache')}
    make_runner(root, tmp_path / 'a', hook=hook).train()
    runner = make_runner(root, tmp_path / 'b', hook=hook)
    runner.train()
    assert labels_read(runner) == 0
    assert losses(runner.model)[0].counts == counts
    assert log_of(runner).count('rho_0k') == 1


def test_resume_takes_counts_and_state_from_the_checkpoint(
    root, tmp_path, counts
):
    make_runner(root, tmp_path / 'w').train()
    runner = make_runner(
        root,
        tmp_path / 'w',
        hook={'use_cache': False},
        max_iters=5,
        resume=True,
    )
    runner.train()
    (loss,) = losses(runner.model)
    assert labels_read(runner) == 0
    assert loss.counts == counts
    assert loss.steps == 5


def test_resume_with_other_data_scans_again(root, tmp_path, counts):
    make_runner(root, tmp_path / 'w').train()
    write_label_file(root, 0, np.ones((32, 48), np.uint8))
    runner = make_runner(root, tmp_path / 'w', max_iters=3, resume=True)
    runner.train()
    assert labels_read(runner) == 5
    assert losses(runner.model)[0].counts != counts
    assert 'differs from that of the checkpoint' in log_of(runner)


def test_resume_with_damaged_statistics_scans_again(root, tmp_path, counts):
    make_runner(root, tmp_path / 'w').train()
    path = tmp_path / 'w' / 'iter_2.pth'
    checkpoint = load(path)
    checkpoint['meta']['class_stats']['counts'][0] = -1
    torch.save(checkpoint, path)
    hook = {'use_cache': False}
    runner = make_runner(
        root, tmp_path / 'w', hook=hook, max_iters=3, resume=True
    )
    runner.train()
    assert losses(runner.model)[0].counts == counts
    assert 'counts[0] must not be negative' in log_of(runner)


def test_fine_tuning_counts_its_own_data(root, tmp_path, counts):
    other = write_set(tmp_path / 'other', 3, values=(0, 1, 2, 3))
    make_runner(other, tmp_path / 'a').train()
    runner = make_runner(
        root,
        tmp_path / 'b',
        load_from=str(tmp_path / 'a' / 'iter_2.pth'),
    )
    runner.train()
    (loss,) = losses(runner.model)
    assert loss.counts == counts
    assert loss.steps == 2  # a new training, so its state begins anew


def test_checkpoint_of_another_program(root, tmp_path, counts):
    runner = make_runner(root, tmp_path / 'a')
    torch.save(runner.model.state_dict(), tmp_path / 'weights.pth')
    runner = make_runner(
        root, tmp_path / 'b', load_from=str(tmp_path / 'weights.pth')
    )
    runner.train()
    assert losses(runner.model)[0].counts == counts


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


@pytest.mark.parametrize('avg_non_ignore', [False, True])
@pytest.mark.parametrize('method', ['inverse', 'median', 'effective'])
def test_class_weight_of_cross_entropy(
    root, tmp_path, counts, method, avg_non_ignore
):
    loss = {'type': 'CrossEntropyLoss', 'avg_non_ignore': avg_non_ignore}
    runner = make_runner(
        root, tmp_path / 'w', loss, hook={'class_weight': method}
    )
    runner.train()
    (found,) = losses(runner.model, CrossEntropyLoss)
    # Every image shows every class, so that both kinds of share agree.
    expected = class_weights(counts, method)
    assert found.class_weight == pytest.approx(expected)
    (row,) = (x for x in log_of(runner).splitlines() if '| car ' in x)
    assert row.split('|')[-2].strip() == f'{expected[3]:.4g}'


def test_class_weight_leaves_own_weights_and_sigmoid_alone(root, tmp_path):
    own = {'type': 'CrossEntropyLoss', 'class_weight': [1.0, 2.0, 3.0, 4.0]}
    model = {
        'decode_head': head({'type': 'CrossEntropyLoss'}),
        'auxiliary_head': [
            head(own),
            head({'type': 'CrossEntropyLoss', 'use_sigmoid': True}),
        ],
    }
    hook = {'class_weight': 'inverse'}
    runner = make_runner(root, tmp_path / 'w', hook=hook, model=model)
    # mmseg's own weighted function may fail on ignored pixels.
    write_set(root, 5, values=(0, 1, 2, 3))
    runner.train()
    main, first, second = losses(runner.model, CrossEntropyLoss)
    assert main.class_weight is not None
    assert first.class_weight == [1.0, 2.0, 3.0, 4.0]
    assert second.class_weight is None
    log = log_of(runner)
    assert 'auxiliary_head.0.loss_decode has a class_weight of its own' in log
    assert 'auxiliary_head.1.loss_decode is not a softmax' in log


def test_weighted_loss_of_this_package(root, tmp_path):
    loss = {'type': 'WeightedCrossEntropyLoss', 'class_weight': 'median'}
    runner = make_runner(root, tmp_path / 'w', loss)
    runner.train()
    (found,) = losses(runner.model, WeightedCrossEntropyLoss)
    (hook,) = (x for x in runner.hooks if isinstance(x, ClassStatsHook))
    expected = hook.stats.class_weights('median')
    assert found.class_weight.tolist() == pytest.approx(expected)


def test_margin_loss_and_its_running_rates(root, tmp_path, counts):
    loss = {
        'type': 'MarginCalibrationLoss',
        'class_balance': 'iou',
        'backend': 'eager',
    }
    runner = make_runner(root, tmp_path / 'w', loss)
    runner.train()
    (trained,) = losses(runner.model, MarginCalibrationLoss)
    rho_0k, rho_k0 = margin_offsets(counts)
    np.testing.assert_allclose(trained.rho_0k, rho_0k, rtol=1e-6)
    np.testing.assert_allclose(trained.rho_k0, rho_k0, rtol=1e-6)
    runner = make_runner(root, tmp_path / 'w', loss, resume=True)
    runner.train()  # there is no iteration left to do
    (resumed,) = losses(runner.model, MarginCalibrationLoss)
    assert resumed.training_state() == trained.training_state()
    np.testing.assert_array_equal(resumed.rho_0k, trained.rho_0k)


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
def test_read_only_data_and_no_cache_folder(root, tmp_path):
    """As a user who may write nowhere but into the work dir."""
    (root / 'ann' / '0001.png').chmod(0)
    work_dir = tmp_path / 'w'
    work_dir.mkdir()
    os.chown(work_dir, 65534, 65534)
    for folder in (tmp_path, *tmp_path.parents[:2], root, root / 'ann'):
        folder.chmod(0o755)
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
