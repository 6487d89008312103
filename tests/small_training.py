"""The config of a training whose iterations take milliseconds."""

import inspect
import uuid
from pathlib import Path
from typing import Any

import torch
from mmengine.config import Config
from mmengine.runner import Runner

import mmseg_margin  # noqa: F401  (registers hooks and losses)
from tests.stats.builders import write_set

CLASSES = ('sky', 'road', 'tree', 'car')
# Group norm, so that a sample does not depend on the rest of its batch.
NETWORK = dict(
    type='UNet',
    base_channels=4,
    num_stages=2,
    norm_cfg=dict(type='GN', num_groups=2),
    strides=(1, 1),
    enc_num_convs=(1, 1),
    enc_dilations=(1, 1),
    dec_num_convs=(1,),
    dec_dilations=(1,),
    downsamples=(True,),
)
HEAD = dict(
    type='FCNHead',
    num_classes=len(CLASSES),
    in_channels=4,
    in_index=1,
    channels=4,
    num_convs=0,
    concat_input=False,
    dropout_ratio=0.2,
)
PREPROCESSOR = dict(
    type='SegDataPreProcessor',
    mean=[127.5] * 3,
    std=[64.0] * 3,
    size=(32, 48),
    seg_pad_val=255,
)
PLAIN = (
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations'),
    dict(type='PackSegInputs'),
)
AUGMENTED = (
    *PLAIN[:2],
    dict(
        type='RandomResize',
        scale=(48, 32),
        ratio_range=(0.8, 1.5),
        keep_ratio=True,
    ),
    dict(type='RandomCrop', crop_size=(16, 24)),
    dict(type='RandomFlip', prob=0.5),
    dict(type='PhotoMetricDistortion'),
    PLAIN[2],
)
STATS = dict(type='ClassStatsHook')


def training_config(
    root: Path,
    work_dir: Path,
    max_iters: int = 8,
    pipeline: tuple = AUGMENTED,
    batch_size: int = 2,
    loss: dict[str, Any] | None = None,
    **settings: Any,
) -> Config:
    """Train a tiny net on what ``tests.stats.builders.write_set`` wrote."""
    margin = dict(type='MarginCalibrationLoss', backend='eager')
    head = dict(HEAD, loss_decode=margin | (loss or {}))
    if pipeline == PLAIN:
        head['dropout_ratio'] = 0.0
    dataset = dict(
        type='BaseSegDataset',
        data_root=str(root),
        img_suffix='.png',
        data_prefix=dict(img_path='img', seg_map_path='ann'),
        metainfo=dict(classes=CLASSES),
        pipeline=list(pipeline),
    )
    config = dict(
        default_scope='mmseg',
        custom_imports=dict(imports=['mmseg_margin']),
        model=dict(
            type='EncoderDecoder',
            data_preprocessor=PREPROCESSOR,
            backbone=NETWORK,
            decode_head=head,
            test_cfg=dict(mode='whole'),
        ),
        train_dataloader=dict(
            batch_size=batch_size,
            num_workers=0,
            sampler=dict(type='InfiniteSampler', shuffle=True),
            dataset=dataset,
        ),
        train_cfg=dict(type='IterBasedTrainLoop', max_iters=max_iters),
        optim_wrapper=dict(optimizer=dict(type='AdamW', lr=0.01)),
        param_scheduler=[dict(type='PolyLR', end=max_iters, by_epoch=False)],
        default_hooks=dict(
            checkpoint=dict(type='CheckpointHook', by_epoch=False, interval=1),
            logger=dict(type='LoggerHook', interval=1),
        ),
        custom_hooks=[dict(STATS, cache_dir=f'{work_dir}/cache')],
        randomness=dict(seed=0),
        work_dir=str(work_dir),
        log_level='WARNING',
        # mmengine keeps loggers and message hubs by this name.
        experiment_name=f'small_{uuid.uuid4().hex}',
    )
    return Config(config | settings)


def add_validation(config: Config, interval: int) -> None:
    """Validate on the training images, every ``interval`` iterations."""
    config.val_cfg = {'type': 'ValLoop'}
    config.val_evaluator = {'type': 'IoUMetric'}
    config.val_dataloader = plain_loader(config, shuffle=True)
    config.train_cfg.val_interval = interval


def plain_loader(config: Config, shuffle: bool, **dataset: Any) -> dict:
    """A loader of the training images, or of other ones, as they are."""
    dataset = {'pipeline': list(PLAIN), **dataset}
    return {
        'batch_size': 1,
        'num_workers': 0,
        'sampler': {'type': 'DefaultSampler', 'shuffle': shuffle},
        'dataset': {**config.train_dataloader.dataset, **dataset},
    }


def write_config(path: Path, test_root: str | None = None, **settings) -> Path:
    """Write a config file whose train and val splits share a data set."""
    root = write_set(path.parent / 'data', 6)
    config = training_config(root, path.parent, **settings)
    config.test_cfg = {'type': 'TestLoop'}
    config.test_evaluator = {'type': 'IoUMetric'}
    config.val_dataloader = plain_loader(config, shuffle=False)
    config.test_dataloader = plain_loader(
        config, shuffle=False, data_root=str(test_root or root)
    )
    config.dump(path)
    return path


def build_runner(config: Config, **settings: Any) -> Runner:
    """A runner made from the parts of a config.

    mmengine would format a whole config for the runner and for every
    checkpoint, which takes longer than the training.
    """
    names = inspect.signature(Runner).parameters
    parts = {name: config[name] for name in names if name in config}
    return Runner(**parts | settings)


def train(config: Config, **settings: Any) -> dict[str, torch.Tensor]:
    """Train and return the final weights."""
    return build_runner(config, **settings).train().state_dict()


def same_weights(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]):
    """Whether two state dicts are equal bit by bit."""
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)
