"""Views of every kind of test pipeline, and the merged scores."""

import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.dataset import pseudo_collate
from mmengine.registry import init_default_scope
from mmseg.models import SegTTAModel
from mmseg.registry import DATASETS, MODELS

from mmseg_margin.evaluation import tta_pipeline, use_tta
from mmseg_margin.evaluation.tta import RATIOS
from tests.evaluation.fakes import write_checkpoint


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


def kinds(pipeline: list) -> list:
    return [step['type'] for step in pipeline]


LOAD, LABELS = {'type': 'LoadImageFromFile'}, {'type': 'LoadAnnotations'}
RESIZE = {'type': 'Resize', 'scale': (2048, 512), 'keep_ratio': True}
PACK = {'type': 'PackSegInputs'}


def test_views_are_multiples_of_the_test_size():
    plain = [LOAD, LABELS, RESIZE, PACK]
    views = tta_pipeline(plain, 'ms-flip')[1]['transforms']
    assert views[0][0]['scale'] == (1024, 256)
    assert views[0][2] == RESIZE
    # Labels that are loaded early are loaded after the flips instead.
    order = [kinds(group)[0] for group in views]
    assert order == ['Resize', 'RandomFlip', *kinds([LABELS, PACK])]
    # A pipeline without resizing gets it.
    resizes = tta_pipeline([LOAD, PACK], 'ms-flip')[1]['transforms'][0]
    assert [step['scale_factor'] for step in resizes] == list(RATIOS)
    assert len(tta_pipeline([LOAD, PACK], 'flip')[1]['transforms']) == 2
    with pytest.raises(ValueError, match='rotate'):
        tta_pipeline([LOAD, PACK], 'rotate')


@pytest.mark.parametrize('mode', ['flip', 'ms-flip'])
def test_predicts_as_upstream_does(cfg, checkpoint, mode):
    use_tta(cfg, mode)
    found = predict(cfg, checkpoint)
    expected = predict(cfg, checkpoint, SegTTAModel)
    prediction = found.pred_sem_seg.data
    assert prediction.equal(expected.pred_sem_seg.data)
    assert len(prediction.unique()) > 3
    assert found.gt_sem_seg.data.equal(expected.gt_sem_seg.data)
    assert found.img_path == expected.img_path
    scores = found.seg_logits.data
    assert scores.argmax(0, keepdim=True).equal(prediction)


def test_one_view_keeps_the_margins_of_the_logits(cfg, checkpoint):
    plain = predict(cfg, checkpoint)
    use_tta(cfg, 'flip')
    views = cfg.test_dataloader.dataset.pipeline[1]['transforms']
    views[1] = views[1][:1]
    merged = predict(cfg, checkpoint)
    expected = plain.seg_logits.data - plain.seg_logits.data.amax(0)
    found = merged.seg_logits.data - merged.seg_logits.data.amax(0)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


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
    assert len(np.unique(merged.pred_sem_seg.data)) == 2


def test_a_configs_own_pipeline_and_wrapper_are_kept(cfg):
    """Also for data sets inside wrappers."""
    leaf = cfg.test_dataloader.dataset
    cfg.test_dataloader.dataset = {'type': 'ConcatDataset', 'datasets': [leaf]}
    cfg.tta_model = {'type': 'MyTTAModel'}
    use_tta(cfg, 'ms-flip')
    (changed,) = cfg.test_dataloader.dataset.datasets
    assert changed.pipeline == cfg.tta_pipeline
    assert kinds(changed.pipeline) == ['LoadImageFromFile', 'TestTimeAug']
    assert cfg.model.type == 'MyTTAModel'
