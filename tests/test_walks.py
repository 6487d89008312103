"""Walks through configs, data sets and models."""

import pytest
from mmengine.config import Config, ConfigDict
from mmengine.dataset import ConcatDataset
from mmengine.registry import init_default_scope
from mmseg.models import FCNHead
from mmseg.models.decode_heads import IterativeDecodeHead
from mmseg.registry import MODELS
from torch import nn
from torch.utils.data import Subset

from mmseg_margin.hooks import ClassStatsHook
from mmseg_margin.walks import (
    add_hook,
    add_import,
    heads_of_config,
    heads_of_model,
    leaf_datasets,
    nodes,
    predicts_boundaries,
    registered_name,
)
from tests.hooks.builders import Wrapper, head
from tests.stats.builders import open_set, write_set


def test_names_of_strings_and_classes():
    for kind in ('FCNHead', 'mmseg.FCNHead', FCNHead):
        assert registered_name({'type': kind}) == 'FCNHead'


def test_every_dict_is_visited():
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


@pytest.mark.parametrize('kind', ['ClassStatsHook', ClassStatsHook])
def test_a_hook_is_added_once(kind):
    cfg = Config({'custom_hooks': [{'type': 'EMAHook'}, {'type': kind}]})
    add_hook(cfg, 'ClassStatsHook', on_problem='warn')
    add_hook(cfg, 'ExactResumeHook')
    names = [registered_name(hook) for hook in cfg.custom_hooks]
    assert names == ['EMAHook', 'ClassStatsHook', 'ExactResumeHook']
    assert cfg.custom_hooks[1].on_problem == 'warn'


def test_an_import_is_added_to_those_there_are():
    cfg = Config({'custom_imports': {'imports': 'mmseg'}})
    for _ in range(2):
        add_import(cfg, 'mmseg_margin')
    assert cfg.custom_imports['imports'] == ['mmseg', 'mmseg_margin']


def test_heads_have_the_same_names_in_model_and_config():
    init_default_scope('mmseg')
    fcn = head({'type': 'CrossEntropyLoss'})
    iterative = {
        'type': IterativeDecodeHead,
        'num_stages': 0,
        'kernel_generate_head': fcn,
        'kernel_update_head': [],
    }
    others = [fcn, {**fcn, 'type': 'STDCHead'}]
    model = nn.ModuleDict(
        {
            'decode_head': MODELS.build(iterative),
            'auxiliary_head': nn.ModuleList(map(MODELS.build, others)),
        }
    )
    built = heads_of_model(Wrapper(model))
    written = heads_of_config(
        ConfigDict(decode_head=iterative, auxiliary_head=others)
    )
    assert {*built} == {*written}
    for name in written:
        is_boundary = name == 'auxiliary_head.1'
        assert predicts_boundaries(written[name]) == is_boundary
        assert predicts_boundaries(built[name]) == is_boundary
