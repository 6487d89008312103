"""Upstream's configs at a small size, and the table of them in the docs."""

import re
from pathlib import Path
from typing import Any, NamedTuple

import mmseg
import torch
from mmengine.config import Config
from mmengine.structures import PixelData
from mmseg.structures import SegDataSample

from mmseg_margin.config_tools import nodes, registered_name
from mmseg_margin.tooling.launch import prepare_for_device

ROOT = Path(__file__).parents[1]
CONFIGS = Path(mmseg.__file__).parent / '.mim' / 'configs'
ROW = re.compile(r'^\| (.+?) \| `(.+?)` \| (.+?) \| (.*?) \|$', re.M)
SIZE = 64
# LR-ASPP pools over windows of 49 positions at an eighth of the resolution.
LARGER = {'MobileNetV3': 400}
SHRINK = 8
RESNETS = ('ResNet', 'ResNetV1c', 'ResNetV1d', 'ResNeSt', 'SEResNeXt')
WIDE = (*RESNETS, 'UNet', 'BEiT', 'MAE', 'VisionTransformer')
WIDE += ('SwinTransformer', 'SVT')
WIDTHS = re.compile('channels|embed_dim')


class Row(NamedTuple):
    """A line of the table in ``docs/heads.md``."""

    family: str
    config: str
    heads: str
    remark: str

    @property
    def path(self) -> Path:
        return CONFIGS / f'{self.config}.py'


def documented() -> list[Row]:
    text = (ROOT / 'docs' / 'heads.md').read_text('utf-8')
    return [Row(*cells) for cells in ROW.findall(text)]


def first_python_block() -> str:
    text = (ROOT / 'README.md').read_text('utf-8')
    return re.findall(r'```python\n(.*?)```', text, re.S)[0]


def small_model(cfg: Config, size: int = SIZE) -> Any:
    """The model of a config, narrow and without pretrained weights."""
    prepare_for_device(cfg)
    for node in nodes(cfg.model):
        if 'img_size' in node:
            node['img_size'] = (size, size)
    narrow(cfg.model)
    cfg.model.data_preprocessor.size = (size, size)
    return cfg.model


def narrow(model: Any) -> None:
    """An eighth of the channels and all of the depth, without weights."""
    model.pretrained = None
    name, backbone = registered_name(model.backbone), model.backbone
    if name in RESNETS and 'base_channels' not in backbone:
        backbone.update(base_channels=64, stem_channels=64)
        if name == 'SEResNeXt':
            backbone.groups = 32 // SHRINK
    is_wide = name in WIDE and backbone.get('base_channels', 64) == 64
    for node in list(nodes(model)):
        node.pop('init_cfg', None)
        for key in filter(WIDTHS.search, list(node) if is_wide else ()):
            node[key] = _narrow_width(node[key])


def _narrow_width(width: Any) -> Any:
    if isinstance(width, (list, tuple)):
        return type(width)(_narrow_width(each) for each in width)
    wide = isinstance(width, int) and width >= 64
    return width // SHRINK if wide else width


def training_batch(model: Any, size: int = SIZE) -> dict[str, Any]:
    """Two images of noise with labels of every class, edges and void."""
    generator = torch.Generator().manual_seed(0)
    samples = []
    for _ in range(2):
        shape = (1, size, size)
        label = torch.randint(model.num_classes, shape, generator=generator)
        label[:, :4] = 255
        sample = SegDataSample(metainfo={'img_shape': shape[1:]})
        sample.gt_sem_seg = PixelData(data=label)
        edges = torch.rand(shape, generator=generator) > 0.9
        sample.gt_edge_map = PixelData(data=edges.long())
        samples.append(sample)
    images = [torch.rand(3, size, size, generator=generator) for _ in samples]
    return model.data_preprocessor(
        {'inputs': images, 'data_samples': samples}, True
    )
