"""Views of every kind of test pipeline, and the merged scores."""

import copy

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

UPSTREAM_WITHOUT_TTA = ('pascal_context', 'synapse', 'cityscapes_769x769')


@pytest.fixture
def cfg(config) -> Config:
    init_default_scope('mmseg')
    return Config.fromfile(config)


def build_batch(cfg: Config, index: int = 0) -> dict:
    dataset = DATASETS.build(cfg.test_dataloader.dataset)
    return pseudo_collate([dataset[index]])


def build_model(cfg: Config, checkpoint):
    model = MODELS.build(cfg.model)
    weights = torch.load(checkpoint, weights_only=False)['state_dict']
    getattr(model, 'module', model).load_state_dict(weights)
    return model.eval()


def kinds(pipeline: list) -> list:
    return [step['type'] for step in pipeline]


@pytest.mark.parametrize('mode', ['flip', 'ms-flip'])
@pytest.mark.parametrize('base', UPSTREAM_WITHOUT_TTA)
def test_data_sets_whose_base_has_no_views(base, mode):
    cfg = Config.fromstring(
        f"_base_ = ['mmseg::_base_/datasets/{base}.py']", '.py'
    )
    plain = cfg.test_dataloader.dataset.pipeline
    load, views = tta_pipeline(plain, mode)
    assert load == plain[0]
    resizes, flips, labels, pack = views['transforms']
    assert len(resizes) == (len(RATIOS) if mode == 'ms-flip' else 1)
    assert [flip['prob'] for flip in flips] == [0.0, 1.0]
    assert kinds(labels) == ['LoadAnnotations']
    assert kinds(pack) == ['PackSegInputs']


def test_views_are_multiples_of_the_test_size():
    plain = [
        {'type': 'LoadImageFromFile'},
        {'type': 'Resize', 'scale': (2048, 512), 'keep_ratio': True},
        {'type': 'PackSegInputs'},
    ]
    before = copy.deepcopy(plain)
    resizes = tta_pipeline(plain, 'ms-flip')[1]['transforms'][0]
    assert resizes[0]['scale'] == (1024, 256)
    assert resizes[2] == plain[1]
    assert plain == before


def test_a_pipeline_without_resizing_gets_it():
    plain = [{'type': 'LoadImageFromFile'}, {'type': 'PackSegInputs'}]
    resizes = tta_pipeline(plain, 'ms-flip')[1]['transforms'][0]
    assert [step['scale_factor'] for step in resizes] == list(RATIOS)
    assert len(tta_pipeline(plain, 'flip')[1]['transforms']) == 2


def test_labels_loaded_early_are_loaded_after_the_flips():
    plain = [
        {'type': 'LoadImageFromFile'},
        {'type': 'LoadAnnotations', 'reduce_zero_label': True},
        {'type': 'Resize', 'scale': (8, 8)},
        {'type': 'PackSegInputs'},
    ]
    groups = tta_pipeline(plain, 'flip')[1]['transforms']
    assert [kinds(group)[0] for group in groups] == [
        'Resize',
        'RandomFlip',
        'LoadAnnotations',
        'PackSegInputs',
    ]


def test_unknown_mode():
    with pytest.raises(ValueError, match="tta='rotate' is not one of"):
        tta_pipeline([{'type': 'A'}, {'type': 'B'}], 'rotate')


@pytest.mark.parametrize('mode', ['flip', 'ms-flip'])
def test_predicts_as_upstream_does(cfg, checkpoint, mode):
    use_tta(cfg, mode)
    batch = build_batch(cfg)
    ours = build_model(cfg, checkpoint)
    upstream = SegTTAModel(module=ours.module)
    with torch.no_grad():
        (found,) = ours.test_step(copy.deepcopy(batch))
        (expected,) = upstream.test_step(copy.deepcopy(batch))
    prediction = found.pred_sem_seg.data
    assert prediction.equal(expected.pred_sem_seg.data)
    assert len(prediction.unique()) > 3
    assert found.gt_sem_seg.data.equal(expected.gt_sem_seg.data)
    assert found.img_path == expected.img_path
    scores = found.seg_logits.data
    assert scores.argmax(0, keepdim=True).equal(prediction)


def test_one_view_keeps_the_margins_of_the_logits(cfg, checkpoint):
    plain_cfg = copy.deepcopy(cfg)
    use_tta(cfg, 'flip')
    views = cfg.test_dataloader.dataset.pipeline[1]['transforms']
    views[1] = views[1][:1]
    with torch.no_grad():
        (plain,) = build_model(plain_cfg, checkpoint).test_step(
            build_batch(plain_cfg)
        )
        (merged,) = build_model(cfg, checkpoint).test_step(build_batch(cfg))
    expected = plain.seg_logits.data - plain.seg_logits.data.amax(0)
    found = merged.seg_logits.data - merged.seg_logits.data.amax(0)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_a_sigmoid_head_keeps_its_threshold(cfg, tmp_path):
    """Upstream applies the sigmoid twice, so that everything is foreground."""
    cfg.model.decode_head.update(num_classes=2, out_channels=1, threshold=0.3)
    cfg.model.decode_head.loss_decode.use_sigmoid = True
    cfg.dump(tmp_path / 'binary.py')
    checkpoint = write_checkpoint(tmp_path / 'binary.py', tmp_path / 'b.pth')
    plain_cfg = copy.deepcopy(cfg)
    use_tta(cfg, 'flip')
    with torch.no_grad():
        (plain,) = build_model(plain_cfg, checkpoint).test_step(
            build_batch(plain_cfg)
        )
        (merged,) = build_model(cfg, checkpoint).test_step(build_batch(cfg))
    agreement = (plain.pred_sem_seg.data == merged.pred_sem_seg.data).float()
    assert agreement.mean() > 0.5
    assert len(np.unique(merged.pred_sem_seg.data)) == 2


def test_a_configs_own_pipeline_and_wrapper_are_kept(cfg):
    own = cfg.tta_pipeline
    cfg.tta_model = {'type': 'MyTTAModel'}
    use_tta(cfg, 'ms-flip')
    assert cfg.test_dataloader.dataset.pipeline == own
    assert cfg.model.type == 'MyTTAModel'


def test_data_sets_inside_wrappers_get_the_views(cfg):
    leaf = cfg.test_dataloader.dataset
    cfg.test_dataloader.dataset = {'type': 'ConcatDataset', 'datasets': [leaf]}
    use_tta(cfg, 'flip')
    (changed,) = cfg.test_dataloader.dataset.datasets
    assert kinds(changed.pipeline) == ['LoadImageFromFile', 'TestTimeAug']
