"""The project's recipes at a size that a CPU trains within a second."""

import copy
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from mmengine.config import Config
from mmengine.runner import Runner

from mmseg_margin.config_tools import nodes
from mmseg_margin.tooling.launch import prepare_for_device, without_validation
from tests import small_training
from tests.upstream import SHRINK, narrow

ROOT = Path(__file__).parents[2]
CONFIGS = sorted(
    path
    for path in (ROOT / 'configs').glob('*/*.py')
    if path.parent.name != '_base_'
)
SMALLEST_SIDE = 32
Sides = int | tuple[int, ...]


# mmengine reads every metafile of mmseg for each base in `mmseg::`.
read_config = lru_cache(maxsize=None)(Config.fromfile)


def smaller(sides: Sides) -> Sides:
    if isinstance(sides, int):
        return max(sides // SHRINK, SMALLEST_SIDE)
    return tuple(max(side // SHRINK, SMALLEST_SIDE) for side in sides)


def reduced_config(path: Path, roots: Mapping[str, Path]) -> Config:
    """A recipe on the tiny data sets of ``roots`` (by data set type)."""
    cfg = copy.deepcopy(read_config(path))
    narrow(cfg.model)
    for node in list(nodes(cfg._cfg_dict)):
        if 'data_root' in node and 'type' in node:
            node['data_root'] = str(roots[node['type']])
        for key in ('crop_size', 'size', 'scale'):
            if node.get(key):
                node[key] = smaller(node[key])
        if node.get('type') == 'ClassStatsHook':
            node['use_cache'] = False
        if node.get('type') == 'MarginCalibrationLoss':
            # Two images have few pixels and few classes.
            node.update(largest_offset=0.4, absent_class='zero')
    for split in ('train', 'val', 'test'):
        cfg[f'{split}_dataloader'].update(
            num_workers=0, persistent_workers=False
        )
    cfg.train_dataloader.batch_size = 2
    prepare_for_device(cfg)
    return cfg


def one_of_each() -> list[Path]:
    """One recipe for each network and data set, the last by name."""
    chosen = {}
    for path in CONFIGS:
        cfg = read_config(path)
        network, head = cfg.model.backbone, cfg.model.decode_head
        data = cfg.train_dataloader.dataset.type, head.num_classes
        chosen[network.type, network.get('depth'), data] = path
    return list(chosen.values())


def build_runner(cfg: Config, work_dir: Path, validate: bool) -> Runner:
    """A runner of a reduced recipe, with or without its validation."""
    if not validate:
        without_validation(cfg)
    return small_training.build_runner(
        cfg,
        work_dir=str(work_dir),
        experiment_name=work_dir.name,
        visualizer=None,
    )
