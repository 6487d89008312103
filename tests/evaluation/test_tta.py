"""Views of every kind of test pipeline, and the merged scores."""

import pytest
import torch
from mmengine.config import Config
from mmengine.dataset import pseudo_collate
from mmengine.registry import init_default_scope
from mmseg.models import SegTTAModel
from mmseg.registry import DATASETS, MODELS

from mmseg_margin.evaluation.tta import RATIOS, tta_pipeline, use_tta
from tests.evaluation.fakes import write_checkpoint

LOAD, LABELS = {'type': 'LoadImageFromFile'}, {'type': 'LoadAnnotations'}
RESIZE = {'type': 'Resize', 'scale': (2048, 512), 'keep_ratio': True}
PACK = {'type': 'PackSegInputs'}


@pytest.fixture
def cfg(config) -> Config:
    init_default_scope('mmseg')
    return Config.fromfile(config)


@torch.no_grad()
def predict(cfg: Config, checkpoint, tta_model=None):
    """The first image, by the model of the config or by another wrapper."""
    model = MODELS.build(cfg.model)
    weights = torch.load(checkpoint, weights_only=False)['state_dict']
    getattr(model, 'module', model).load_state_dict(weights)
    if tta_model:
        model = tta_model(module=model.module)
    batch = [DATASETS.build(cfg.test_dataloader.dataset)[0]]
    (sample,) = model.eval().test_step(pseudo_collate(batch))
    return sample


def test_views_are_multiples_of_the_test_size():
    views = tta_pipeline([LOAD, LABELS, RESIZE, PACK], 'ms-flip')
    resizes, flips, *rest = views[1]['transforms']
    assert resizes[0]['scale'] == (1024, 256)
    assert resizes[2] == RESIZE
    assert len(flips) == 2
    # Labels that are loaded early are loaded after the flips instead.
    assert rest == [[LABELS], [PACK]]
    # A pipeline without resizing gets it.
    resizes = tta_pipeline([LOAD, PACK], 'ms-flip')[1]['transforms'][0]
    assert [step['scale_factor'] for step in resizes] == list(RATIOS)
    with pytest.raises(ValueError, match='rotate'):
        tta_pipeline([LOAD, PACK], 'rotate')


@pytest.mark.parametrize('mode', ['flip', 'ms-flip'])
def test_predicts_as_upstream_does(cfg, checkpoint, mode):
    use_tta(cfg, mode)
    if mode == 'ms-flip':  # the config's own, as with upstream's flag
        assert cfg.test_dataloader.dataset.pipeline == cfg.tta_pipeline
    found = predict(cfg, checkpoint)
    expected = predict(cfg, checkpoint, SegTTAModel)
    prediction = found.pred_sem_seg.data
    assert prediction.equal(expected.pred_sem_seg.data)
    assert len(prediction.unique()) > 3
    assert found.gt_sem_seg.data.equal(expected.gt_sem_seg.data)
    assert found.seg_logits.data.argmax(0, keepdim=True).equal(prediction)


def test_a_sigmoid_head_keeps_its_threshold(cfg, tmp_path):
    """Upstream applies the sigmoid twice, so that everything is foreground."""
    cfg.model.decode_head.update(num_classes=2, out_channels=1, threshold=0.3)
    cfg.model.decode_head.loss_decode.use_sigmoid = True
    cfg.dump(tmp_path / 'binary.py')
    checkpoint = write_checkpoint(tmp_path / 'binary.py', tmp_path / 'b.pth')
    plain = predict(cfg, checkpoint)
    use_tta(cfg, 'flip')
    merged = predict(cfg, checkpoint)
    agreement = (plain.pred_sem_seg.data == merged.pred_sem_seg.data).float()
    assert agreement.mean() > 0.5
    assert len(merged.pred_sem_seg.data.unique()) == 2
