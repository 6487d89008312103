"""The heads of configs and of models."""

from mmengine.registry import init_default_scope
from mmseg.registry import MODELS
from torch import nn

from mmseg_margin.heads import (
    heads_of_config,
    heads_of_model,
    predicts_boundaries,
)
from tests.hooks.builders import Wrapper, head


def test_heads_have_the_same_names_in_model_and_config():
    init_default_scope('mmseg')
    fcn = head({'type': 'CrossEntropyLoss'})
    others = [fcn, {**fcn, 'type': 'STDCHead'}]
    model = nn.ModuleDict(
        {
            'decode_head': MODELS.build(fcn),
            'auxiliary_head': nn.ModuleList(map(MODELS.build, others)),
        }
    )
    built = heads_of_model(Wrapper(model))
    written = heads_of_config({'decode_head': fcn, 'auxiliary_head': others})
    assert {*built} == {*written}
    for name in written:
        is_boundary = name == 'auxiliary_head.1'
        assert predicts_boundaries(written[name]) == is_boundary
        assert predicts_boundaries(built[name]) == is_boundary
