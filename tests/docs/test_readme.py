"""Every command and every block of the README is run."""

import re
import shlex
from pathlib import Path

import pytest
import torch

from tests.commands import call, free_port, run_python
from tests.layouts import make_voc2012, write_image

ROOT = Path(__file__).parents[2]
LINES = (ROOT / 'README.md').read_text('utf-8').splitlines()
README = '\n'.join(LINES)
BLOCK = re.compile(r'```(\w+)\n(.*?)```', re.S)
COMMANDS = [
    line
    for kind, text in BLOCK.findall(README)
    if kind == 'sh'
    for line in text.replace('\\\n', ' ').splitlines()
]
TOOL = 'python -m mmseg_margin '
CONFIG = """
default_scope = 'mmseg'
custom_imports = dict(imports=['mmseg_margin'])
crop = dict(type='RandomCrop', crop_size=(32, 32))
load = [dict(type='LoadImageFromFile'), dict(type='LoadAnnotations')]
pack = dict(type='PackSegInputs')
data = dict(
    type='PascalVOCDataset',
    data_root={root!r},
    ann_file='ImageSets/Segmentation/train.txt',
    data_prefix=dict(img_path='JPEGImages', seg_map_path='SegmentationClass'),
    pipeline=[*load, crop, pack],
)
resize = dict(type='Resize', scale=(64, 32))
test_pipeline = [load[0], resize, load[1], pack]
val = dict(
    data,
    ann_file='ImageSets/Segmentation/val.txt',
    pipeline=test_pipeline,
)
train_dataloader = dict(
    batch_size=2,
    num_workers=0,
    sampler=dict(type='InfiniteSampler', shuffle=True),
    dataset=data,
)
val_dataloader = dict(
    batch_size=1,
    num_workers=0,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=val,
)
test_dataloader = val_dataloader
val_evaluator = test_evaluator = dict(type='IoUMetric')
train_cfg = dict(type='IterBasedTrainLoop', max_iters=2, val_interval=2)
val_cfg, test_cfg = dict(type='ValLoop'), dict(type='TestLoop')
optim_wrapper = dict(optimizer=dict(type='AdamW', lr=0.01))
default_hooks = dict(
    checkpoint=dict(type='CheckpointHook', by_epoch=False, interval=2),
    logger=dict(type='LoggerHook', interval=1, log_metric_by_epoch=False),
)
model = dict(
    type='EncoderDecoder',
    data_preprocessor=dict(
        type='SegDataPreProcessor',
        mean=[127.5] * 3,
        std=[64.0] * 3,
        size=(32, 32),
        seg_pad_val=255,
    ),
    backbone=dict(
        type='UNet',
        base_channels=4,
        num_stages=2,
        strides=(1, 1),
        enc_num_convs=(1, 1),
        enc_dilations=(1, 1),
        dec_num_convs=(1,),
        dec_dilations=(1,),
        downsamples=(True,),
        norm_cfg=dict(type='BN'),
    ),
    decode_head=dict(
        type='FCNHead',
        num_classes=21,
        in_channels=4,
        in_index=1,
        channels=4,
        num_convs=0,
        concat_input=False,
    ),
    test_cfg=dict(mode='whole'),
)
"""


@pytest.fixture(scope='module')
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Outside a clone, with a config and the layout of VOC2012."""
    folder = tmp_path_factory.mktemp('readme')
    root = make_voc2012(folder / 'voc', n=8)
    write_image(root / 'JPEGImages' / '2010_000000.jpg', (64, 32), 0)
    (root / 'ImageSets/Segmentation/test.txt').write_text('2010_000000\n')
    (folder / 'CONFIG').with_suffix('.py').write_text(
        CONFIG.format(root=str(root))
    )
    return folder


def test_one_screen():
    assert len(LINES) <= 150
    first = '\n'.join(LINES[:30])
    for tool in ('train', 'fit_offsets', 'class_stats'):
        assert f'{TOOL}{tool} CONFIG' in first


def test_links_lead_somewhere():
    links = re.findall(r'\]\((?!https?:)([^)#]+)[^)]*\)', README)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_installation_names_our_extras():
    setup = (ROOT / 'setup.py').read_text('utf-8')
    for line in COMMANDS:
        if line.startswith('pip install'):
            wanted = re.search(r'mmseg_margin(?:\[(\w+)\])?', line)
            assert wanted, line
            assert wanted[1] is None or f"'{wanted[1]}': [" in setup


def test_every_command(folder, capsys, monkeypatch):
    """In the order of the README, in one folder."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv('XDG_CACHE_HOME', str(folder / 'cache'))
    values = {
        'CONFIG': 'CONFIG.py',
        'CHECKPOINT': 'work_dirs/CONFIG/iter_2.pth',
        'FOLDER': 'voc/JPEGImages',
    }
    others = []
    for line in COMMANDS:
        words = [values.get(x, x) for x in shlex.split(line, comments=True)]
        if line.startswith(TOOL):
            tool, arguments = words[3], words[4:]
            if tool == 'compare':  # one folder, so that ce is trained once
                arguments += ['--seeds', '1', '--out', 'compared']
            code, said = call(capsys, tool, *arguments)
            assert code in (0, None), f'{line}\n{said[-3000:]}'
        elif line.startswith('torchrun '):
            launch = ['-m', 'torch.distributed.run', '--master_port']
            launch += [free_port(), *words[1:], '--work-dir', 'ranks']
            code, said = run_python(folder, *launch)
            assert code == 0, f'{line}\n{said[-3000:]}'
            assert (folder / 'ranks' / 'iter_2.pth').is_file()
        else:
            others.append(line)
    assert [x for x in others if not x.startswith('pip install')] == []
    assert (folder / 'compared/report/index.html').is_file()
    assert (folder / 'stats.json').is_file()
    assert list((folder / 'submission').glob('*.tgz'))


def test_functions():
    blocks = [text for kind, text in BLOCK.findall(README) if kind == 'python']
    names = {
        'progress': 0.5,
        'logits': torch.randn(2, 3, 16, 16),
        'small_logits': torch.randn(2, 3, 4, 4),
        'labels': torch.randint(0, 3, (2, 16, 16)),
    }
    exec(blocks[-1], names)
    assert names['loss'] > 0
