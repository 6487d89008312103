"""tools/train.py as users call it, and stock mmseg with our lines appended."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

import mmseg
import pytest
import torch
from mmengine.config import Config
from mmengine.utils import is_installed

from tests import layouts
from tests.upstream import first_python_block
from tools.instrument_synthesis import Settings, write_dataset

ROOT = Path(__file__).parents[2]
TOOL = ROOT / 'tools' / 'train.py'
MAIN = runpy.run_path(str(TOOL))['main']
UPSTREAM = Path(mmseg.__file__).parent / '.mim'
DEEPLAB = UPSTREAM / 'configs' / 'deeplabv3plus'
DEMO = next((ROOT / 'configs' / 'demo').glob('*_ce_*.py'))
SPLITS = ('train', 'val', 'test')
EAGER = 'margin:backend=eager'


@pytest.fixture
def train(tmp_path, monkeypatch, capsys):
    """The tool in this process: its exit code and what it said."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path / 'cache'))
    monkeypatch.setenv('LOCAL_RANK', '0')

    def call(*arguments):
        capsys.readouterr()
        code = 0
        try:
            MAIN([str(argument) for argument in arguments])
        except SystemExit as stop:
            code = stop.code
        said = capsys.readouterr()
        return code, said.out + said.err

    return call


def run(tool, *arguments, folder, **environment):
    """A tool in a process of its own, as users call it."""
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
        ('4xb4-160k_ade20k-512x512', layouts.make_ade20k, 'root'),
        ('4xb4-40k_voc12aug-512x512', layouts.make_voc2012, 'datasets'),
    ],
)
def test_untouched_upstream_configs(tmp_path, train, recipe, make, data_root):
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
    options = ['--cfg-options', *options, *NARROW, *SHORT]
    code, said = train(config, '--loss', EAGER, '--verbose', *options)
    assert code == 0, said[-3000:]
    assert 'decode.loss_margin' in said
    assert 'aux.loss_margin' in said
    assert list(tmp_path.glob('work_dirs/*/iter_2.pth'))


def test_a_sum_for_one_head(train, parts):
    """Every term has its line in the log; the other head keeps its own."""
    flags = ['--loss', 'ce:0.5+lovasz:0.5', '--loss-heads', 'decode_head']
    flags += ['--no-validate', '--verbose', '--cfg-options']
    code, said = train(DEMO, *flags, *roots(parts), *SHORT)
    assert code == 0, said[-3000:]
    last = said.split('Iter(train)')[-1]
    for term in ('decode.loss_ce', 'decode.loss_lovasz', 'aux.loss_ce'):
        assert f'{term}: ' in last
    assert 'aux.loss_lovasz' not in last
    assert 'nan' not in last


def test_the_screen_has_what_a_person_needs(tmp_path, parts):
    """And the log file everything."""
    done = run(
        TOOL,
        DEMO,
        '--loss',
        EAGER,
        '--cfg-options',
        *roots(parts),
        *SHORT,
        'train_cfg.val_interval=1',
        folder=tmp_path,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    said = done.stdout + done.stderr
    for part in (
        'with MarginCalibrationLoss\non 6 images of InstrumentPartsDataset',
        'rho_0k',
        'iteration 2/2, 0:00:00 left, loss ',
        'validation at 1: aAcc',
        'validation at 2: aAcc',
    ):
        assert part in said
    assert said.count('|  IoU  |') == 1  # of the last validation
    assert said.count('\n') < 40, said
    (log,) = tmp_path.glob('work_dirs/*/*/*.log')
    text = log.read_text()
    for part in ('System environment', 'decode.loss_margin', 'rho_0k'):
        assert part in text
        assert (part in said) == (part == 'rho_0k')


@pytest.fixture(scope='module')
def plain(tmp_path_factory, parts):
    """A config like upstream's, with nothing of ours."""
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
    config = tmp_path_factory.mktemp('plain') / 'plain.py'
    cfg.dump(str(config))
    return config


def test_the_readmes_lines_with_stock_tools(tmp_path, plain):
    """In a config that inherits; the second resumes the dumped one."""
    config = tmp_path / 'mine.py'
    config.write_text(f'_base_ = {str(plain)!r}\n{first_python_block()}')
    options = ['--work-dir', 'w', '--cfg-options', *SHORT]
    stock = UPSTREAM / 'tools' / 'train.py'
    dumped = tmp_path / 'w' / 'mine.py'
    for arguments in (
        [config, *options],
        [dumped, '--resume', *options, 'train_cfg.max_iters=3'],
    ):
        if dumped.exists() and is_installed('mmsegmentation'):
            # Whose mmengine refuses its own checkpoints since torch 2.6.
            safe = "'mmseg_margin.safe_checkpoints'"
            dumped.write_text(
                dumped.read_text().replace("'mmseg_margin'", safe)
            )
        done = run(stock, *arguments, folder=tmp_path, PATH='')
        assert done.returncode == 0, done.stderr[-3000:]
        assert 'decode.loss_margin' in done.stdout
        assert 'aux.loss_margin' in done.stdout
    assert 'Iter(train) [3/3]' in done.stdout
    assert 'Iter(train) [2/3]' not in done.stdout


READ_BASE = """
from mmengine.config import read_base
from mmengine.optim import OptimWrapper
from torch.nn import SyncBatchNorm

from mmseg_margin.hooks import ClassStatsHook, SwapLossHook

with read_base():
    from .base import *

optim_wrapper.update(type=OptimWrapper)
model['backbone']['norm_cfg'].update(type=SyncBatchNorm)
custom_hooks = [
    dict(type=SwapLossHook, loss='ce'), dict(type=ClassStatsHook)
]
"""


def test_configs_that_import_their_classes(tmp_path, train, plain):
    (tmp_path / 'base.py').write_text(plain.read_text())
    (tmp_path / 'mine.py').write_text(READ_BASE)
    flags = [
        '--amp',
        '--no-validate',
        '--no-fused-loss',
        '--loss',
        EAGER,
        '--work-dir',
        'w',
    ]
    options = ['--verbose', '--cfg-options', *SHORT]
    code, said = train(tmp_path / 'mine.py', *flags, *options)
    assert code == 0, said[-3000:]
    assert 'SyncBN became BN, mixed precision is off' in said
    assert 'decode.loss_margin' in said
    hooks = Config.fromfile(tmp_path / 'w' / 'mine.py').custom_hooks
    assert len(hooks) == 2
    assert hooks[0].loss == EAGER


def test_resume_continues_without_a_scan(tmp_path, train, parts):
    arguments = [DEMO, '--loss', EAGER, '--no-validate', '--work-dir', 'w']
    options = ['--cfg-options', *roots(parts), *SHORT]
    assert train(*arguments, *options)[0] == 0
    options[options.index('train_cfg.max_iters=2')] = 'train_cfg.max_iters=4'
    code, said = train(*arguments, '--resume', *options)
    assert code == 0, said[-3000:]
    assert 'Reading labels' not in said
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
        'ill-typed setting': (
            [DEMO, '--loss', 'margin:tau=abc'],
            ["tau='abc' must be"],
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


def test_mistakes_get_one_sentence(tmp_path, train, parts):
    for arguments, expected in mistakes(parts, tmp_path).values():
        code, said = train(*arguments)
        assert code == 1
        assert 'error: ' in said
        for part in expected:
            assert part in said


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
