"""A small fake Cityscapes with everything the real one has, and a model."""

import functools
import uuid
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from mmengine.config import Config
from mmengine.runner import save_checkpoint
from mmseg.apis import inference_model, init_model
from mmseg.registry import MODELS
from mmseg.utils import register_all_modules
from PIL import Image

import mmseg_margin  # noqa: F401  (lets configs inherit from mmseg::)
from tests.layouts import make_cityscapes, write_image

# Written down from cityscapesscripts' table of labels, by train id.
LABEL_IDS = (7, 8, 11, 12, 13, 17, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28)
LABEL_IDS += (31, 32, 33)
WITH_INSTANCES = range(24, 34)
VOID_ID, VOID = 4, 255
TEST_SIZES = ((64, 32), (63, 31), (70, 45), (33, 50), (128, 64))

CONFIG = """
_base_ = [
    'mmseg::_base_/datasets/{base}.py',
    'mmseg::_base_/default_runtime.py',
]
custom_imports = dict(imports=['mmseg_margin'])
model = dict(
    type='EncoderDecoder',
    data_preprocessor=dict(
        type='SegDataPreProcessor', mean=[127.5] * 3, std=[127.5] * 3,
        bgr_to_rgb=True, pad_val=0, seg_pad_val=255, size=(32, 32)),
    backbone=dict(
        type='ResNet', depth=18, base_channels=4, norm_cfg=dict(type='BN'),
        strides=(1, 1, 2, 1), dilations=(1, 1, 1, 1)),
    decode_head=dict(
        type='FCNHead', in_channels=32, channels=8, num_convs=1,
        concat_input=False, norm_cfg=dict(type='BN'),
        num_classes={num_classes}, loss_decode=dict(
            type='CrossEntropyLoss', loss_weight=1.0)),
    train_cfg=dict(), test_cfg=dict(mode='whole'))
train_pipeline = [
    dict(type='LoadImageFromFile'), dict(type='LoadAnnotations'),
    dict(type='RandomCrop', crop_size=(32, 32)),
    dict(type='PackSegInputs')]
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='Resize', scale=(64, 32), keep_ratio=True),
    dict(type='LoadAnnotations'),
    dict(type='PackSegInputs')]
loader = dict(num_workers=0, persistent_workers=False)
train_dataloader = dict(
    **loader, dataset=dict(data_root='{root}', pipeline=train_pipeline))
test_dataloader = dict(
    **loader, dataset=dict(data_root='{root}', pipeline=test_pipeline))
val_dataloader = test_dataloader
optim_wrapper = dict(optimizer=dict(type='SGD', lr=0.01))
train_cfg = dict(type='IterBasedTrainLoop', max_iters=2, val_interval=2)
val_cfg = dict(type='ValLoop')
default_hooks = dict(
    checkpoint=dict(type='CheckpointHook', by_epoch=False, interval=2))
test_cfg = dict(type='TestLoop')
work_dir = '{work_dir}'
"""


def make_benchmark(
    root: Path, test_sizes: Sequence[tuple[int, int]] = TEST_SIZES
) -> Path:
    """Labelled train and val with ids and instances, unlabelled test."""
    make_cityscapes(root, n=3)
    for path in root.glob('gtFine/*/*/*_labelTrainIds.png'):
        labels = np.minimum(np.array(Image.open(path)), 19)
        ids = np.append(LABEL_IDS, VOID_ID)[labels]
        # Two instances of each class that has any: left and right half.
        instances = ids * 1000
        instances[:, ids.shape[1] // 2 :] += 1
        instances = np.where(np.isin(ids, WITH_INSTANCES), instances, ids)
        for kind, values, dtype in (
            ('labelIds', ids, np.uint8),
            ('instanceIds', instances, np.uint16),
        ):
            name = path.name.replace('labelTrainIds', kind)
            Image.fromarray(values.astype(dtype)).save(path.with_name(name))
    for i, size in enumerate(test_sizes):
        name = f'bonn_{i:06d}_000019_leftImg8bit.png'
        write_image(root / 'leftImg8bit/test/bonn' / name, size, 100 + i)
    return root


@functools.cache
def config_text(base: str, num_classes: int) -> str:
    """CONFIG with its bases read in, once, because that takes a second."""
    text = CONFIG.replace('{base}', base)
    text = text.replace('{num_classes}', str(num_classes))
    return Config.fromstring(text, '.py').pretty_text


def write_config(
    path: Path, root: Path, base: str = 'cityscapes', num_classes: int = 19
) -> Path:
    """A config of a tiny FCN over upstream's base of the data set."""
    text = config_text(base, num_classes)
    text = text.replace('{root}', str(root))
    path.write_text(text.replace('{work_dir}', str(path.parent / 'work_dir')))
    return path


def load(config: Path, checkpoint: Path | None = None) -> Config:
    """The config of a runner that shares no logger with an earlier one."""
    cfg = Config.fromfile(config)
    cfg.load_from = checkpoint and str(checkpoint)
    cfg.visualizer.name = cfg.work_dir
    cfg.experiment_name = uuid.uuid4().hex
    return cfg


def write_checkpoint(
    config: Path, path: Path, meta: dict | None = None
) -> Path:
    """Random weights, scaled so that every class is predicted somewhere."""
    register_all_modules()
    torch.manual_seed(0)
    model = MODELS.build(Config.fromfile(config).model)
    images = torch.randn(4, 3, 32, 64)
    with torch.no_grad():
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
        model.train()(images)
        scores = model.eval()(images).transpose(0, 1).flatten(1)
        last = model.decode_head.conv_seg
        last.weight /= scores.std(1)[:, None, None, None]
        last.bias.copy_((last.bias - scores.mean(1)) / scores.std(1))
    checkpoint = {'state_dict': model.state_dict(), 'meta': meta or {}}
    save_checkpoint(checkpoint, str(path))
    return path


def predict(
    config: Path, checkpoint: Path, images: Sequence[Path], views: bool = False
) -> list[np.ndarray]:
    """Class indices of each image by upstream's inference API, (H, W).

    With ``views``, the mean probability over six scales and two flips.
    """
    model = init_model(str(config), str(checkpoint), device='cpu')
    load, resize, _, pack = model.cfg.test_pipeline
    pipelines = [[load, resize, pack]]
    if views:
        resize = dict(type='Resize', keep_ratio=True)
        flip = dict(type='RandomFlip')
        pipelines = [
            [load, dict(resize, scale_factor=r), dict(flip, prob=p), pack]
            for r in (0.5, 0.75, 1.0, 1.25, 1.5, 1.75)
            for p in (0.0, 1.0)
        ]
    predictions = []
    for image in images:
        total = torch.zeros(())
        for pipeline in pipelines:
            model.cfg.test_pipeline = pipeline
            scores = inference_model(model, str(image)).seg_logits.data
            total = total + scores.softmax(0)
        predictions.append(total.argmax(0).numpy())
    return predictions


def read_train_ids(path: Path) -> np.ndarray:
    """A submitted label image, mapped back to train ids."""
    ids = np.array(Image.open(path))
    train_ids = np.full(256, VOID)
    train_ids[list(LABEL_IDS)] = range(19)
    return train_ids[ids]
