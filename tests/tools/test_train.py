"""tools/train.py as users call it, and stock mmseg with our lines appended."""

import os
import subprocess
import sys
from pathlib import Path

import mmseg
import pytest
import torch
from mmengine.config import Config

from tests import layouts
from tools.instrument_synthesis import Settings, write_dataset

ROOT = Path(__file__).parents[2]
TOOL = ROOT / 'tools' / 'train.py'
UPSTREAM = Path(mmseg.__file__).parent / '.mim'
DEEPLAB = UPSTREAM / 'configs' / 'deeplabv3plus'
DEMO = next((ROOT / 'configs' / 'demo').glob('*_ce_*.py'))
SPLITS = ('train', 'val', 'test')
EAGER = 'margin:backend=eager'


def run(tool, *arguments, folder, **environment):
    return subprocess.run(
        [sys.executable, str(tool), *map(str, arguments)],
        cwd=folder,
        env=os.environ
        | {'XDG_CACHE_HOME': str(folder / 'cache'), 'OMP_NUM_THREADS': '1'}
        | environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def output_of(done):
    return done.stdout + done.stderr


def roots(folder):
    return [
        f'{split}_dataloader.dataset.data_root={folder}' for split in SPLITS
    ]


@pytest.fixture(scope='module')
def parts(tmp_path_factory):
    """The embedded data set, very small."""
    folder = tmp_path_factory.mktemp('parts')
    write_dataset(
        folder, Settings(width=64, height=48, train=6, val=2, test=2)
    )
    return folder


# Deep and narrow, and without the weights that upstream would download.
NARROW = [
    'model.pretrained=None',
    'model.backbone.base_channels=8',
    'model.backbone.stem_channels=8',
    'model.decode_head.in_channels=256',
    'model.decode_head.c1_in_channels=32',
    'model.decode_head.c1_channels=8',
    'model.decode_head.channels=16',
    'model.auxiliary_head.in_channels=128',
    'model.auxiliary_head.channels=8',
    'model.data_preprocessor.size=(32,32)',
]
SHORT = [
    'train_cfg.max_iters=2',
    'train_cfg.val_interval=100',
    'train_dataloader.batch_size=2',
    'train_dataloader.num_workers=0',
    'train_dataloader.persistent_workers=False',
    'default_hooks.logger.interval=1',
    'default_hooks.checkpoint.interval=2',
]


@pytest.mark.parametrize(
    ('recipe', 'make', 'data_root'),
    [
        ('4xb2-80k_cityscapes-512x1024', layouts.make_cityscapes, 'root'),
        ('4xb4-160k_ade20k-512x512', layouts.make_ade20k, 'root'),
        ('4xb4-40k_voc12aug-512x512', layouts.make_voc2012, 'datasets'),
    ],
)
def test_untouched_upstream_configs(tmp_path, recipe, make, data_root):
    config = DEEPLAB / f'deeplabv3plus_r50-d8_{recipe}.py'
    root = make(tmp_path / 'data', n=3, size=(64, 48))
    cfg = Config.fromfile(config)
    dataset = cfg.train_dataloader.dataset
    if data_root == 'root':
        options = roots(root)
        pipelines = ['train_dataloader.dataset.pipeline']
        steps = dataset.pipeline
    else:
        options = [
            f'{split}_dataloader.dataset.data_root={root}'
            for split in ('val', 'test')
        ]
        pipelines = []
        for i in range(len(dataset.datasets)):
            where = f'train_dataloader.dataset.datasets.{i}'
            options.append(f'{where}.data_root={root}')
            pipelines.append(f'{where}.pipeline')
        steps = dataset.datasets[0].pipeline
    for pipeline in pipelines:
        for i, step in enumerate(steps):
            if step['type'] == 'RandomResize':
                options.append(f'{pipeline}.{i}.scale=(64,48)')
            if step['type'] == 'RandomCrop':
                options.append(f'{pipeline}.{i}.crop_size=(32,32)')
    done = run(
        TOOL,
        config,
        '--loss',
        EAGER,
        '--cfg-options',
        *options,
        *NARROW,
        *SHORT,
        folder=tmp_path,
    )
    assert done.returncode == 0, output_of(done)[-3000:]
    assert 'decode.loss_margin' in output_of(done)
    assert 'aux.loss_margin' in output_of(done)
    assert list(tmp_path.glob('work_dirs/*/iter_2.pth'))


def test_every_objective_trains(tmp_path, parts):
    """In one process for each, as users do; the losses must be finite."""
    for loss in ('wce', 'focal', 'lovasz', 'tversky'):
        done = run(
            TOOL,
            DEMO,
            '--loss',
            loss,
            '--no-validate',
            '--cfg-options',
            *roots(parts),
            *SHORT,
            folder=tmp_path,
        )
        assert done.returncode == 0, output_of(done)[-3000:]
        assert 'nan' not in output_of(done).split('Iter(train)')[-1]


APPENDED = """
custom_imports = dict(imports=['mmseg_margin'], allow_failed_imports=False)
custom_hooks = [dict(type='ClassStatsHook')]
margin = dict(type='MarginCalibrationLoss', backend='eager')
model['decode_head']['loss_decode'] = margin
model['auxiliary_head']['loss_decode'] = dict(margin, loss_weight=0.4)
"""


def test_six_lines_appended_work_with_stock_mmseg(tmp_path, parts):
    cfg = Config.fromfile(DEMO)
    for key in ('custom_imports', 'custom_hooks', 'margin'):
        cfg._cfg_dict.pop(key, None)
    for split in SPLITS:
        dataset = cfg[f'{split}_dataloader'].dataset
        dataset.type = 'BaseSegDataset'
        dataset.data_root = str(parts)
        dataset.metainfo = dict(classes=tuple('abcde'))
        dataset.data_prefix = dict(
            img_path=f'images/{split}', seg_map_path=f'labels/{split}'
        )
        dataset.img_suffix = '.png'
    config = tmp_path / 'plain.py'
    cfg.dump(str(config))
    assert len(APPENDED.strip().splitlines()) <= 6
    config.write_text(config.read_text() + APPENDED)
    done = run(
        UPSTREAM / 'tools' / 'train.py',
        config,
        '--cfg-options',
        *SHORT,
        folder=tmp_path,
    )
    assert done.returncode == 0, output_of(done)[-3000:]
    assert 'decode.loss_margin' in output_of(done)


def test_resume_continues_without_a_scan(tmp_path, parts):
    arguments = [DEMO, '--loss', EAGER, '--no-validate', '--work-dir', 'w']
    options = ['--cfg-options', *roots(parts), *SHORT]
    first = run(TOOL, *arguments, *options, folder=tmp_path)
    assert first.returncode == 0, output_of(first)[-3000:]
    options[options.index('train_cfg.max_iters=2')] = 'train_cfg.max_iters=4'
    second = run(TOOL, *arguments, '--resume', *options, folder=tmp_path)
    assert second.returncode == 0, output_of(second)[-3000:]
    assert 'Reading labels' not in output_of(second)
    saved = torch.load(tmp_path / 'w/iter_4.pth', weights_only=False)
    assert saved['meta']['iter'] == 4
    assert sum(saved['meta']['class_stats']['counts']) == 6 * 64 * 48


def mistakes(parts, tmp_path):
    empty = tmp_path / 'empty'
    for name in ('images', 'labels'):
        for split in SPLITS:
            (empty / name / split).mkdir(parents=True)
    return {
        'missing data set': (
            [DEMO, '--cfg-options', *roots(tmp_path / 'nowhere')],
            ['nowhere does not exist', 'docs/datasets.md'],
        ),
        'empty folder': (
            [DEMO, '--cfg-options', *roots(empty)],
            ['is empty'],
        ),
        'no such config': (['no.py'], ['no.py does not exist']),
        'bad flag': ([DEMO, '--loss', 'magic'], ['magic', 'take one of']),
        'bad setting': (
            [DEMO, '--loss', 'margin:teu=3'],
            ["no setting 'teu'", 'tau'],
        ),
        'launcher without ranks': (
            [DEMO, '--launcher', 'pytorch', '--cfg-options', *roots(parts)],
            ['torchrun'],
        ),
        'absent base batch size': (
            [DEMO, '--auto-scale-lr', '--cfg-options', *roots(parts)],
            ['base_batch_size'],
        ),
    }


@pytest.mark.parametrize(
    'mistake',
    [
        'missing data set',
        'empty folder',
        'no such config',
        'bad flag',
        'bad setting',
        'launcher without ranks',
        'absent base batch size',
    ],
)
def test_mistakes_get_one_sentence(tmp_path, parts, mistake):
    arguments, said = mistakes(parts, tmp_path)[mistake]
    done = run(TOOL, *arguments, folder=tmp_path)
    assert done.returncode != 0
    assert 'Traceback' not in done.stderr
    for part in said:
        assert part in done.stderr, done.stderr


def test_a_missing_stack_gets_one_sentence(tmp_path):
    """An interpreter that has torch and numpy but no mmseg."""
    blocker = (
        'import sys, runpy, importlib.abc\n'
        'class Blocker(importlib.abc.MetaPathFinder):\n'
        '    def find_spec(self, name, path, target=None):\n'
        "        if name.split('.')[0] in ('mmseg', 'mmcv', 'mmengine'):\n"
        '            raise ModuleNotFoundError(name=name)\n'
        'sys.meta_path.insert(0, Blocker())\n'
        'import importlib.util\n'
        'find = importlib.util.find_spec\n'
        'importlib.util.find_spec = lambda name, *a: (\n'
        "    None if name == 'mmseg' else find(name, *a))\n"
        "sys.argv = ['train.py', 'config.py']\n"
        f"runpy.run_path({str(TOOL)!r}, run_name='__main__')\n"
    )
    done = subprocess.run(
        [sys.executable, '-c', blocker],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 1
    assert 'pip install' in done.stderr
    assert 'Traceback' not in done.stderr
