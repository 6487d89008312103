"""tools/train.py as users call it, and stock mmseg with our lines appended."""

import functools
import json
import re
from collections import OrderedDict
from pathlib import Path

import mmseg
import pytest
import torch
from mmengine.config import Config
from mmengine.logging import MMLogger
from mmengine.utils import is_installed

from tests.commands import TOOLS, output_of, output_of_python
from tests.layouts import make_ade20k
from tests.small_training import CLASSES, add_validation, write_config
from tests.upstream import first_python_block

TOOL = TOOLS / 'train.py'
UPSTREAM = Path(mmseg.__file__).parent / '.mim'
SPLITS = ('train', 'val', 'test')
EAGER = 'margin:backend=eager'


@pytest.fixture
def train(tmp_path, monkeypatch, capsys):
    """The tool in this process: what it said."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path / 'cache'))
    monkeypatch.setenv('LOCAL_RANK', '0')
    # mmengine names a logger by the second, and reuses one of the same name.
    monkeypatch.setattr(MMLogger, '_instance_dict', OrderedDict())
    return functools.partial(output_of, capsys, 'train')


@pytest.fixture
def config(tmp_path):
    """Like upstream's, with two heads and nothing of ours; 6 images."""
    path = write_config(tmp_path / 'config.py', max_iters=2, log_level='INFO')
    cfg = Config.fromfile(path)
    for key in ('custom_imports', 'custom_hooks', 'experiment_name'):
        cfg._cfg_dict.pop(key)
    cfg.model.decode_head.loss_decode = {'type': 'CrossEntropyLoss'}
    cfg.model.auxiliary_head = cfg.model.decode_head
    cfg.work_dir = str(tmp_path / 'w')
    cfg.log_processor = {'by_epoch': False}
    add_validation(cfg, interval=1)
    cfg.visualizer = {
        'type': 'SegLocalVisualizer',
        'vis_backends': [{'type': 'LocalVisBackend'}],
    }
    cfg.dump(path)
    return path


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
SMALL = {'RandomResize': 'scale=(64,48)', 'RandomCrop': 'crop_size=(32,32)'}


def small_data(cfg, root):
    """Options that let a config read another folder, in small crops."""
    for split in SPLITS:
        where = f'{split}_dataloader.dataset'
        yield f'{where}.data_root={root}'
        pipeline = cfg[f'{split}_dataloader'].dataset.pipeline
        for i, step in enumerate(pipeline):
            if step['type'] in SMALL:
                yield f'{where}.pipeline.{i}.{SMALL[step["type"]]}'


def test_an_untouched_upstream_config(tmp_path, train):
    name = 'deeplabv3plus/deeplabv3plus_r50-d8_4xb4-160k_ade20k-512x512.py'
    cfg = Config.fromfile(UPSTREAM / 'configs' / name)
    root = make_ade20k(tmp_path / 'data', n=3, size=(64, 48))
    options = [*small_data(cfg, root), *NARROW, *SHORT]
    # Three images have few pixels and few of the classes.
    flags = ['--loss', f'{EAGER},largest_offset=0.4', '--verbose']
    said = train(f'mmseg::{name}', *flags, '--cfg-options', *options)
    assert 'decode.loss_margin' in said
    assert 'aux.loss_margin' in said
    assert list(tmp_path.glob('work_dirs/*/iter_2.pth'))


def test_a_sum_for_one_head(tmp_path, train, config):
    """Every term has its line in the log; the other head keeps its own."""
    flags = ['--loss', 'ce:0.5+lovasz:0.5', '--loss-heads', 'decode_head']
    said = train(config, *flags, '--no-validate')
    assert 'decode_head: trained with ce:0.5+lovasz:0.5.' in said
    (log,) = tmp_path.glob('w/*/*.log')
    last = log.read_text().split('Iter(train)')[-1]
    for term in ('decode.loss_ce', 'decode.loss_lovasz', 'aux.loss_ce'):
        assert f'{term}: ' in last
    assert 'aux.loss_lovasz' not in last
    assert 'nan' not in last


def test_resume_continues_without_a_scan(tmp_path, train, config):
    """And without lines of upstream that mean nothing to users."""
    arguments = [config, '--loss', 'jaccard', '--no-validate']
    train(*arguments)
    arguments += ['--resume', '--cfg-options', 'train_cfg.max_iters=4']
    said = train(*arguments)
    assert 'Iter(train) [3/4]' in said
    for line in (
        *('Iter(train) [2/4]', 'Reading labels', 'resumed key'),
        *('allow_symlink', 'Loads '),
    ):
        assert line not in said
    saved = torch.load(tmp_path / 'w/iter_4.pth', weights_only=False)
    assert saved['meta']['iter'] == 4
    stats = saved['meta']['class_stats']
    assert sum(stats['counts']) + stats['ignored'] == 6 * 32 * 48


def test_what_the_screen_and_the_files_show(tmp_path, config):
    """The log file contains everything, the scalars every class."""
    arguments = [TOOL, config, '--loss', EAGER, '--metrics', 'tail']
    cache = str(tmp_path / 'cache')
    said = output_of_python(tmp_path, *arguments, XDG_CACHE_HOME=cache)
    for part in (
        f'trained with {EAGER}',
        'rho_0k',
        'Iter(train) [2/2]',
        'Iter(val) [6/6]',
        f'will be saved to {tmp_path}/w',
    ):
        assert part in said
    assert said.count('\n') < 40, said
    (log,) = tmp_path.glob('w/*/*.log')
    for part in ('System environment', 'rho_0k', '| Class'):
        assert part in log.read_text()
        assert (part in said) == (part == 'rho_0k')
    (scalars,) = tmp_path.glob('w/*/vis_data/scalars.json')
    lines = [json.loads(line) for line in scalars.read_text().splitlines()]
    validations = [line for line in lines if 'mIoU' in line]
    assert len(validations) == 2
    for line in validations:
        assert {f'IoU/{name}' for name in CLASSES} < line.keys()


def test_the_readmes_lines_with_stock_tools(tmp_path, config):
    """In a config that inherits; the second resumes the dumped one."""
    mine = tmp_path / 'mine.py'
    mine.write_text(f"_base_ = './config.py'\n{first_python_block()}")
    stock = UPSTREAM / 'tools' / 'train.py'
    dumped = tmp_path / 'w' / 'mine.py'
    environment = {'PATH': '', 'XDG_CACHE_HOME': str(tmp_path / 'cache')}
    for arguments in (
        [mine],
        [dumped, '--resume', '--cfg-options', 'train_cfg.max_iters=3'],
    ):
        if dumped.exists() and is_installed('mmsegmentation'):
            # Whose mmengine refuses its own checkpoints since torch 2.6.
            environment['TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD'] = '1'
        said = output_of_python(tmp_path, stock, *arguments, **environment)
        assert 'decode.loss_margin' in said
        assert 'aux.loss_margin' in said
    assert 'Iter(train) [3/3]' in said
    assert 'Iter(train) [2/3]' not in said


READ_BASE = """
from mmengine.config import read_base
from mmengine.optim import OptimWrapper
from torch.nn import SyncBatchNorm

from mmseg_margin.hooks import ClassStatsHook, SwapLossHook

with read_base():
    from .config import *

optim_wrapper.update(type=OptimWrapper)
model['backbone']['norm_cfg'] = dict(type=SyncBatchNorm)
custom_hooks = [
    dict(type=SwapLossHook, loss='ce'), dict(type=ClassStatsHook)
]
"""


@pytest.mark.usefixtures('config')
def test_configs_that_import_their_classes(tmp_path, train):
    (tmp_path / 'mine.py').write_text(READ_BASE)
    flags = ['--amp', '--no-validate', '--no-fused-loss', '--verbose']
    said = train(tmp_path / 'mine.py', '--loss', EAGER, *flags)
    assert 'SyncBN became BN, mixed precision is off' in said
    assert 'decode.loss_margin' in said
    hooks = Config.fromfile(tmp_path / 'w' / 'mine.py').custom_hooks
    assert len(hooks) == 2
    assert hooks[0].loss == EAGER


@pytest.mark.parametrize(
    ('flags', 'data', 'expected'),
    [
        ([], 'nowhere', 'nowhere does not exist.*data_root=FOLDER'),
        (['--loss', 'magic'], 'data', 'magic.*take one of'),
        (['--loss', 'margin:teu=3'], 'data', "no setting 'teu'.*tau"),
        (['--loss', 'margin:tau=abc'], 'data', "tau='abc' must be"),
        (['--launcher', 'pytorch'], 'data', 'torchrun'),
    ],
)
def test_mistakes_get_one_sentence(
    tmp_path, train, config, flags, data, expected
):
    root = f'train_dataloader.dataset.data_root={tmp_path / data}'
    said = train(config, *flags, '--cfg-options', root, code=1)
    assert re.search(f'error: .*{expected}', said)


def test_a_missing_stack_gets_one_sentence(tmp_path):
    """An interpreter that has torch and numpy but no mmseg."""
    program = (
        'import runpy, sys\n'
        "sys.modules.update(dict.fromkeys(('mmseg', 'mmcv', 'mmengine')))\n"
        f"runpy.run_path({str(TOOL)!r}, run_name='__main__')\n"
    )
    said = output_of_python(tmp_path, '-c', program, 'any.py', code=1)
    assert 'pip install' in said
    assert 'Traceback' not in said
