"""ClassStatsHook inside a real Runner on one process."""

import re

import numpy as np
import pytest
import torch
from mmseg.models.losses import CrossEntropyLoss
from torch import nn

from mmseg_margin.errors import DataSetError
from mmseg_margin.functional import OffsetSettings, margin_offsets
from mmseg_margin.hooks import ClassStatsHook
from mmseg_margin.hooks.class_stats_hook import (
    give_stats,
    offset_settings_of,
)
from mmseg_margin.stats import ClassStats, class_weights
from tests.hooks.builders import (
    COUNTING,
    CountingLoss,
    Wrapper,
    head,
    log_of,
    losses,
    make_runner,
)
from tests.stats.builders import write_label_file, write_set

CE = {'type': 'CrossEntropyLoss'}
MARGIN = {'type': 'MarginCalibrationLoss', 'backend': 'eager'}
WEIGHTED_CE = {'type': 'WeightedCrossEntropyLoss'}
STATS = ClassStats(['a', 'b'], [30, 70], [3, 4], [60, 90])


def cells_of(runner, name):
    """The row of a class in the table of the log."""
    (row,) = (x for x in log_of(runner).splitlines() if f'| {name} ' in x)
    return [cell.strip() for cell in row.split('|')[2:-1]]


def test_every_loss_gets_the_counts(root, tmp_path, counts, labels_read):
    both = [COUNTING, {**CE, 'loss_weight': 0.1}]
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
    assert [loss.counts for loss in found] == [counts] * 4
    assert [loss.steps for loss in found] == [2] * 4
    assert len(labels_read) == 5


def test_one_table_with_the_margins_of_the_loss(root, tmp_path, counts):
    runner = make_runner(root, tmp_path / 'w')
    runner.train()
    assert log_of(runner).count('rho_0k') == 1
    assert 'tau=5, upsilon=2' in log_of(runner)
    rho_0k, rho_k0 = margin_offsets(counts, tau=5.0, upsilon=2.0)
    for k, name in enumerate(('sky', 'road', 'tree', 'car')):
        percent = f'{100 * counts[k] / sum(counts):.4f}'
        margins = f'{rho_0k[k]:.4g}', f'{rho_k0[k]:.4g}'
        assert cells_of(runner, name) == [
            *(f'{counts[k]:,}', percent, '5', *margins)
        ]


@pytest.mark.parametrize(
    ('values', 'decode_head', 'message'),
    [
        ((0, 1, 2, 3, 200), head(COUNTING), '0004.png: 200'),
        ((0, 1, 2, 3, 255), head(COUNTING, ignore_index=3), '255 in 5 file'),
        ((0, 1, 3), head({**MARGIN, 'absent_class': 'error'}), 'tree'),
    ],
)
def test_bad_labels_stop_before_the_first_iteration(
    root, tmp_path, values, decode_head, message
):
    write_set(root, 5, values)
    model = {'decode_head': decode_head}
    runner = make_runner(root, tmp_path / 'w', model=model)
    with pytest.raises(ValueError, match=message):
        runner.train()
    assert runner.iter == 0
    assert not list((tmp_path / 'w').glob('*.pth'))


def test_absent_classes_have_no_offset_and_are_named(root, tmp_path):
    write_set(root, 5, values=(0, 1, 3))
    runner = make_runner(root, tmp_path / 'w', MARGIN)
    runner.train()
    assert runner.iter == 2
    assert 'without a pixel: tree' in log_of(runner)
    rho_0k = runner.model.decode_head.loss_decode.rho_0k
    assert [bool(rho) for rho in rho_0k] == [True, True, False, True]


def test_masks_of_0_and_255_train_with_the_line_of_the_report(root, tmp_path):
    write_set(root, 5, values=(0, 255))
    with pytest.raises(DataSetError, match='dict') as caught:
        make_runner(root, tmp_path / 'w').train()
    line = re.search(r'dict\(type=.*\)', str(caught.value))[0]
    loader = eval(line)
    runner = make_runner(root, tmp_path / 'v', loader=loader)
    runner.train()
    first, second, *others = losses(runner.model)[0].counts
    assert min(first, second) > 0
    assert others == [0, 0]


def test_on_problem_warn_trains_in_spite_of_problems(root, tmp_path):
    write_label_file(root, 3, np.full((32, 48), 256, np.uint16))
    model = {'decode_head': head(COUNTING, num_classes=5)}
    hook = {'on_problem': 'warn'}
    runner = make_runner(root, tmp_path / 'w', hook=hook, model=model)
    runner.train()
    assert 'decode_head has num_classes=5' in log_of(runner)
    assert 'modulo 256' in log_of(runner)
    assert losses(runner.model)[0].steps == 2


@pytest.mark.parametrize(
    ('settings', 'stops'), [({}, True), ({'tau': 10.0}, False)]
)
def test_offsets_beyond_the_scores(root, tmp_path, settings, stops):
    write_set(root, 5, values=(0, 1, 2))
    pixels = np.zeros((32, 48), np.uint8)
    pixels[0, 0] = 3
    write_label_file(root, 0, pixels)
    runner = make_runner(root, tmp_path / 'w', {**MARGIN, **settings})
    if stops:
        with pytest.raises(DataSetError, match=r'largest_offset=0\.4'):
            runner.train()
        assert runner.iter == 0
    else:
        runner.train()
        assert 'largest_offset=0.4' in log_of(runner)
        assert runner.iter == 2


def test_counts_of_the_config_are_not_replaced(root, tmp_path):
    """Nor are the offsets of other counts judged."""
    counts = [10**7] * 4
    write_set(root, 5, values=(0, 1, 2))
    loss = {**MARGIN, 'class_counts': counts}
    runner = make_runner(root, tmp_path / 'w', loss)
    runner.train()
    rho_0k = runner.model.decode_head.loss_decode.rho_0k
    np.testing.assert_allclose(rho_0k, margin_offsets(counts).rho_0k, 1e-6)
    assert 'rho_0k' not in log_of(runner)


def test_no_offsets_beside_a_loss_without_them(root, tmp_path):
    runner = make_runner(root, tmp_path / 'w', CE)
    runner.train()
    assert 'share %' in log_of(runner)
    assert 'rho_0k' not in log_of(runner)
    assert 'margin-offsets' not in log_of(runner)


@pytest.mark.parametrize('on_problem', ['error', 'warn'])
def test_bad_labels_of_the_validation_set(root, tmp_path, counts, on_problem):
    validation = write_set(tmp_path / 'val', 3)
    write_label_file(validation, 1, np.full((32, 48), 77, np.uint8))
    hook = {'on_problem': on_problem}
    runner = make_runner(
        root, tmp_path / 'w', hook=hook, validation=validation
    )
    heading = 'validation set: label values outside'
    if on_problem == 'error':
        with pytest.raises(DataSetError, match=heading) as caught:
            runner.train()
        assert 'val/ann/0001.png: 77' in str(caught.value)
        assert runner.iter == 0
    else:
        runner.train()
        assert heading in log_of(runner)
        assert losses(runner.model)[0].counts == counts


def test_nothing_happens_without_training(root, tmp_path):
    runner = make_runner(root, tmp_path / 'w')
    checkpoint = {'meta': {}, 'state_dict': {}}
    runner.call_hook('before_save_checkpoint', checkpoint=checkpoint)
    assert checkpoint == {'meta': {}, 'state_dict': {}}


@pytest.mark.parametrize('argument', ['class_weight', 'on_problem'])
def test_bad_arguments(argument):
    with pytest.raises(ValueError, match=argument):
        ClassStatsHook(**{argument: 'log'})


@pytest.mark.parametrize(
    ('loss', 'hook', 'method'),
    [
        (CE, {'class_weight': 'inverse'}, 'inverse'),
        ({**CE, 'avg_non_ignore': True}, {'class_weight': 'median'}, 'median'),
        ({**WEIGHTED_CE, 'class_weight': 'median'}, {}, 'median'),
    ],
)
def test_class_weights(root, tmp_path, counts, loss, hook, method):
    """Of mmseg's loss, and of the one that asks for them by itself."""
    runner = make_runner(root, tmp_path / 'w', loss, hook)
    runner.train()
    found = runner.model.decode_head.loss_decode.class_weight
    # Every image shows every class, so its fraction in these images and in
    # all images is the same.
    expected = class_weights(counts, method)
    assert [float(weight) for weight in found] == pytest.approx(expected)
    if hook:
        assert cells_of(runner, 'car')[-1] == f'{expected[3]:.4g}'


def test_class_weight_leaves_others_alone(root, tmp_path):
    own = [1.0, 2.0, 3.0, 4.0]
    model = {
        'decode_head': head(CE),
        'auxiliary_head': [
            head({**CE, 'class_weight': own}),
            head({**CE, 'use_sigmoid': True}),
            head(CE, type='STDCHead', num_classes=2),
        ],
    }
    hook = {'class_weight': 'inverse'}
    runner = make_runner(root, tmp_path / 'w', hook=hook, model=model)
    # mmseg's own weighted function may fail on ignored pixels.
    write_set(root, 5, values=(0, 1, 2, 3))
    runner.train()
    assert len(runner.model.decode_head.loss_decode.class_weight) == 4
    first, second, third = losses(runner.model, CrossEntropyLoss)
    assert first.class_weight == own
    assert second.class_weight is third.class_weight is None
    log = log_of(runner)
    assert 'auxiliary_head.0.loss_decode has class weights of its own' in log
    assert 'auxiliary_head.1.loss_decode has class weights' in log


def model_with(loss: nn.Module) -> nn.Module:
    return nn.ModuleDict({'head': nn.ModuleDict({'loss': loss})})


@pytest.mark.parametrize('compiled', [False, True])
@pytest.mark.parametrize('wrapped', [False, True])
def test_losses_are_found_under_any_wrapper(compiled, wrapped):
    loss = CountingLoss()
    inner = torch.compile(loss, backend='eager') if compiled else loss
    model = model_with(inner)
    if wrapped:
        model = Wrapper(Wrapper(model))
    give_stats(model, STATS)
    assert loss.counts == [30, 70]
    assert offset_settings_of(model) == OffsetSettings(5.0, 2.0)


def test_whole_statistics_are_preferred_to_counts():
    class Both(CountingLoss):
        def set_class_stats(self, stats):
            self.stats = stats

    loss = Both()
    give_stats(model_with(loss), STATS)
    assert loss.stats is STATS
    assert loss.counts is None


def test_model_without_receivers():
    model = model_with(nn.ReLU())
    give_stats(model, STATS)
    assert offset_settings_of(model) is None
