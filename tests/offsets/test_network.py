"""Which layer takes the offsets, in every family of upstream's heads."""

import mmcv
import pytest
import torch
from mmengine.config import Config
from mmengine.registry import init_default_scope
from mmseg.registry import MODELS
from torch import nn

from mmseg_margin.errors import SettingError
from mmseg_margin.offsets.network import (
    check_classifier,
    find_classifier,
    shift_bias,
)
from tests.upstream import LARGER, SIZE, documented, small_model

NO_BIAS = ('Segmenter', 'K-Net', 'PointRend')
REFUSED = 'cannot be put into this network'
ROWS = [
    row
    for row in documented()
    if row.heads != 'refused' and 'mmpretrain' not in row.remark
]


def build(row, size):
    init_default_scope('mmseg')
    try:
        model = MODELS.build(small_model(Config.fromfile(row.path), size))
    except RuntimeError as error:
        if 'compiled' in row.remark and 'mmcv' in str(error):
            pytest.skip(f'mmcv {mmcv.__version__} is not compiled')
        raise
    return model.eval()


@pytest.mark.parametrize('row', ROWS, ids=lambda row: row.family)
def test_the_scores_of_each_family_move_by_the_offsets(row):
    size = LARGER.get(row.family, SIZE)
    model = build(row, size)
    if row.family in NO_BIAS:
        with pytest.raises(SettingError, match=REFUSED):
            find_classifier(model)
        return
    name, layer = find_classifier(model)
    stages = row.heads.count('decode_head')
    stage = f'.{stages - 1}' if stages > 1 else ''
    assert name == f'decode_head{stage}.conv_seg'
    image = torch.randn(1, 3, size, size)
    keys = ('ori_shape', 'img_shape', 'pad_shape')
    meta = dict.fromkeys(keys, (size, size))

    @torch.no_grad()
    def score():
        torch.manual_seed(0)  # SegNeXt's head draws random numbers
        return model.encode_decode(image, [meta])[0]

    bias, before = layer.bias.detach().clone(), score()
    check_classifier(model, score)
    assert torch.equal(layer.bias, bias)
    offsets = torch.linspace(-2, 2, len(before))
    layer.bias.data = shift_bias(bias, offsets)
    difference = score() - before - offsets[:, None, None]
    assert difference.abs().max() < 1e-3 * (1 + before.abs().max())


def test_scores_that_do_not_follow_the_bias_are_refused():
    model = nn.Module()
    model.decode_head = nn.Module()
    with pytest.raises(SettingError, match=REFUSED):
        find_classifier(model)
    model.decode_head.conv_seg = layer = nn.Conv2d(4, 3, 1)
    image = torch.randn(4, 6, 8)
    check_classifier(model, lambda: layer(image).detach())
    with pytest.raises(SettingError, match='A step after decode_head'):
        check_classifier(model, lambda: layer(image).detach().tanh())
