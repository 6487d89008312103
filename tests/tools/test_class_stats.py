"""The tool on configs like those of users, in this process."""

import json
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from mmengine.registry import init_default_scope
from PIL import Image

from mmseg_margin.stats import ClassStats
from tests.layouts import make_voc2012
from tests.stats.builders import (
    count_pixel_by_pixel,
    open_set,
    write_label_file,
    write_set,
)

TOOL = Path(__file__).resolve().parents[2] / 'tools' / 'class_stats.py'
CONFIG = """
_base_ = 'mmseg::_base_/models/fcn_r50-d8.py'
model = dict(
    decode_head=dict(num_classes=4), auxiliary_head=dict(num_classes=4))
train_dataloader = dict(dataset=dict(
    type='RepeatDataset', times=3, dataset=dict(
        type='BaseSegDataset', data_root={root!r}, img_suffix='.png',
        data_prefix=dict(img_path='img', seg_map_path='ann'),
        metainfo=dict(classes=('sky', 'road', 'tree', 'car')),
        pipeline=[
            dict(type='LoadImageFromFile'), dict(type='LoadAnnotations'),
            dict(type='PackSegInputs')])))
"""
VOC_CONFIG = """
_base_ = [
    'mmseg::_base_/models/deeplabv3plus_r50-d8.py',
    'mmseg::_base_/datasets/pascal_voc12_aug.py',
    'mmseg::_base_/default_runtime.py',
]
root = {root!r}
train_dataloader = dict(dataset=dict(datasets=[
    dict(
        type='PascalVOCDataset', data_root=root, ann_file=ann_file,
        data_prefix=dict(img_path='JPEGImages', seg_map_path=folder),
        pipeline=[
            dict(type='LoadImageFromFile'), dict(type='LoadAnnotations'),
            dict(type='PackSegInputs')])
    for ann_file, folder in (
        ('ImageSets/Segmentation/train.txt', 'SegmentationClass'),
        ('ImageSets/Segmentation/aug.txt', 'SegmentationClassAug'))]))
model = dict(
    decode_head=dict(num_classes=21), auxiliary_head=dict(num_classes=21))
val_dataloader = dict(dataset=dict(data_root=root))
"""


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path / 'cache'))


@pytest.fixture
def run(tmp_path, capsys):
    """Write the config, run the tool: (exit code, what it printed)."""

    main = runpy.run_path(str(TOOL))['main']

    def run_tool(text, *flags):
        config = tmp_path / 'config.py'
        config.write_text(text)
        with pytest.raises(SystemExit) as ended:
            main([str(config), *map(str, flags)])
        return ended.value.code, ''.join(capsys.readouterr())

    return run_tool


def test_table_json_plot_and_weights(run, tmp_path):
    root = write_set(tmp_path / 'data')
    out, plot = tmp_path / 'stats.json', tmp_path / 'stats.png'
    code, text = run(
        CONFIG.format(root=str(root)),
        *('--out', out, '--plot', plot, '--weights'),
    )
    assert code == 0
    stats = ClassStats.from_json(out)
    init_default_scope('mmseg')
    assert stats.counts == count_pixel_by_pixel([open_set(root)], 4)[0]
    assert stats.provenance.files == 6
    for name in ('sky', 'road', 'tree', 'car', 'rho_0k', 'weight'):
        assert name in text
    weights = json.loads(text.split('class_weight = ')[1].splitlines()[0])
    assert weights == pytest.approx(stats.class_weights('inverse'), rel=1e-4)
    with Image.open(plot) as image:
        assert min(image.size) > 200
        assert len(np.unique(np.asarray(image.convert('L')))) > 10


def test_bad_labels_give_the_report_and_an_exit_code(run, tmp_path):
    root = write_set(tmp_path / 'data')
    write_label_file(root, 2, np.full((32, 48), 77, np.uint8))
    code, text = run(CONFIG.format(root=str(root)))
    assert code == 1
    assert '0002.png: 77' in text
    assert 'likely fix' in text
    assert 'rho_0k' in text


@pytest.mark.parametrize('split', ['train', 'val'])
def test_config_of_mmseg_with_a_concatenation(run, tmp_path, split):
    root = make_voc2012(tmp_path / 'data', n=3)
    text = VOC_CONFIG.format(root=str(root))
    code, text = run(text, '--split', split, '--no-cache')
    assert code == 0
    files = {'train': 6, 'val': 3}[split]
    assert f'{files} label files of PascalVOCDataset' in text
    assert 'tvmonitor' in text
    assert not (tmp_path / 'cache').exists()


def test_options_override_the_config(run, tmp_path):
    root = write_set(tmp_path / 'data', values=(0, 1, 2, 3, 11))
    options = [
        f'model.{name}.ignore_index=11'
        for name in ('decode_head', 'auxiliary_head')
    ]
    text = CONFIG.format(root=str(root))
    assert run(text)[0] == 1
    code, text = run(text, '--cfg-options', *options)
    assert code == 0
    assert 'the heads ignore label 11' in text


@pytest.mark.parametrize(
    ('flags', 'sentence'),
    [
        (('--split', 'test'), 'config.py has no test_dataloader'),
        ((), 'nowhere does not exist'),
        (('--tau', '-3'), 'tau=-3.0 must be 0 or more'),
        (('--upsilon', '0'), 'upsilon=0.0 must be positive'),
    ],
)
def test_mistakes_end_in_a_sentence(run, tmp_path, flags, sentence):
    text = CONFIG.format(root=str(tmp_path / 'nowhere'))
    code, text = run(text, *flags)
    assert code == 1
    assert f'error: {sentence}' in text.replace(f'{tmp_path}/', '').replace(
        'The data set folder ', ''
    )
    assert 'Traceback' not in text


def test_no_threads(run, tmp_path):
    root = write_set(tmp_path / 'data')
    code, text = run(CONFIG.format(root=str(root)), '--num-threads', '0')
    assert code == 1
    assert 'error: num_threads=0 must be 1 or more' in text


def test_a_config_that_is_not_there():
    """In a process of its own, as people run it."""
    done = subprocess.run(
        [sys.executable, TOOL, 'nowhere.py'],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert 'nowhere.py' in done.stderr
    assert 'Traceback' not in done.stderr
