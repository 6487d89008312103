"""Reading and editing configs, and finding data sets in them."""

from mmengine.config import Config, ConfigDict
from mmengine.dataset import ConcatDataset
from mmseg.models import FCNHead
from torch.utils.data import Subset

from mmseg_margin.config_tools import (
    add_hook,
    add_import,
    evenly_spaced,
    leaf_datasets,
    nodes,
    registered_name,
)
from mmseg_margin.hooks import ClassStatsHook
from tests.stats.builders import open_set, write_set


def test_names_of_strings_and_classes_and_every_dict():
    for kind in ('FCNHead', 'mmseg.FCNHead', FCNHead):
        assert registered_name({'type': kind}) == 'FCNHead'
    config = ConfigDict(a=[dict(b=({'c': 1},))], d='text')
    assert [*nodes(config)] == [config, config.a[0], {'c': 1}]


def test_data_sets_inside_wrappers(tmp_path):
    leaf = {'type': 'CityscapesDataset'}
    repeated = {'type': 'RepeatDataset', 'times': 9, 'dataset': leaf}
    both = {'type': 'ConcatDataset', 'datasets': [repeated, leaf]}
    assert leaf_datasets(ConfigDict(both)) == [leaf, leaf]
    assert leaf_datasets(None) == []
    built = open_set(write_set(tmp_path))
    wrapped = Subset(ConcatDataset([built, built]), [0])
    assert leaf_datasets(wrapped) == [built, built]


def test_hooks_and_imports_are_added_once():
    hooks = [{'type': 'EMAHook'}, {'type': ClassStatsHook}]
    cfg = Config({'custom_hooks': hooks})
    cfg.custom_imports = {'imports': 'mmseg'}
    for _ in range(2):
        add_hook(cfg, 'ClassStatsHook', on_problem='warn')
        add_hook(cfg, 'FusedLossHook')
        add_import(cfg, 'mmseg_margin')
    names = [registered_name(hook) for hook in cfg.custom_hooks]
    assert names == ['EMAHook', 'ClassStatsHook', 'FusedLossHook']
    assert cfg.custom_hooks[1].on_problem == 'warn'
    assert cfg.custom_imports['imports'] == ['mmseg', 'mmseg_margin']


def test_evenly_spaced_from_first_to_last():
    assert evenly_spaced(5, 1) == [0]
    assert evenly_spaced(5, 3) == [0, 2, 4]
    assert evenly_spaced(2, 9) == evenly_spaced(2) == [0, 1]
