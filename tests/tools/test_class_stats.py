"""The tool on configs like those of users, in this process."""

import json

import numpy as np
import pytest
from mmengine.registry import init_default_scope

from mmseg_margin.stats import ClassStats
from tests.commands import call
from tests.layouts import make_voc2012
from tests.small_training import add_validation, training_config
from tests.stats.builders import (
    count_pixel_by_pixel,
    open_set,
    write_label_file,
    write_set,
)
from tests.upstream import CONFIGS

VOC = 'deeplabv3plus/deeplabv3plus_r50-d8_4xb4-40k_voc12aug-512x512.py'


@pytest.fixture
def run(tmp_path, capsys, monkeypatch):
    """The tool on a small config or another: exit code, what it said."""
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path / 'cache'))

    def run_tool(root, *flags, config=tmp_path / 'config.py', options=()):
        training = training_config(root, tmp_path)
        if 'val_dataloader.dataset.data_root' in options:
            add_validation(training, 1)
        training.merge_from_dict(dict(options))
        training.dump(tmp_path / 'config.py')
        return call(capsys, 'class_stats', config, *flags)

    return run_tool


def test_table_json_plot_and_weights(run, tmp_path):
    root = write_set(tmp_path / 'data')
    out, plot = tmp_path / 'stats.json', tmp_path / 'stats.png'
    code, text = run(root, '--out', out, '--plot', plot, '--weights')
    assert code == 0
    stats = ClassStats.from_json(out)
    init_default_scope('mmseg')
    assert stats.counts == count_pixel_by_pixel([open_set(root)], 4)[0]
    for name in ('sky', 'road', 'tree', 'car', 'rho_0k', 'weight'):
        assert name in text
    weights = json.loads(text.split('class_weight = ')[1].splitlines()[0])
    assert weights == pytest.approx(stats.class_weights('inverse'), rel=1e-4)
    assert plot.stat().st_size > 10_000


@pytest.mark.parametrize(
    ('loss', 'title'),
    [
        ({'type': 'MarginCalibrationLoss', 'tau': 3.0}, 'tau=3, upsilon=1'),
        ('margin-authors:largest_offset=0.4', 'largest_offset=0.4'),
        ('ce', None),
    ],
)
def test_offsets_are_those_of_the_training(run, tmp_path, loss, title):
    """Of the loss in the config, or of that in its place."""
    root = write_set(tmp_path / 'data')
    options = {'model.decode_head.loss_decode': loss}
    if isinstance(loss, str):
        options = {'custom_hooks.0': {'type': 'SwapLossHook', 'loss': loss}}
    code, text = run(root, options=options)
    assert code == 0
    assert ('rho_0k' in text) == (title is not None)
    assert f'margin-offsets for {title}' in text or title is None


@pytest.mark.parametrize('there', [True, False])
def test_labels_of_the_validation_set(run, tmp_path, there):
    root = write_set(tmp_path / 'data')
    other = tmp_path / 'other'
    if there:
        write_set(other, 3)
        write_label_file(other, 2, np.full((32, 48), 77, np.uint8))
    options = {'val_dataloader.dataset.data_root': str(other)}
    code, text = run(root, options=options)
    assert code == there
    assert ('validation set: label values outside' in text) == there
    assert ('validation set are not checked' in text) != there


def test_config_of_mmseg_with_a_concatenation(run, tmp_path):
    root = make_voc2012(tmp_path / 'data', n=3)
    parts = ('train_dataloader.dataset.datasets.0',)
    parts += ('train_dataloader.dataset.datasets.1', 'val_dataloader.dataset')
    options = [f'{part}.data_root={root}' for part in parts]
    code, text = run(root, '--cfg-options', *options, config=CONFIGS / VOC)
    assert code == 0
    assert '6 label files of PascalVOCDataset' in text
    assert 'tvmonitor' in text


def test_mistakes_end_in_a_sentence(run, tmp_path):
    code, text = run(tmp_path / 'nowhere')
    assert code == 1
    assert f'error: The data set folder {tmp_path}/nowhere does not' in text
    assert 'Traceback' not in text
