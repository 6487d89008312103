"""Pipelines of configs."""

from mmengine.config import Config

from mmseg_margin.evaluation.tta import (
    loads_annotations,
    without_annotations,
)


def test_what_loads_annotations():
    kinds = {
        'LoadAnnotations': True,
        'LoadBiomedicalAnnotation': True,
        'LoadImageFromFile': False,
        'PackSegInputs': False,
    }
    for kind, expected in kinds.items():
        assert loads_annotations({'type': kind}) == expected


def test_annotations_leave_plain_and_nested_pipelines(config):
    cfg = Config.fromfile(config)
    plain = without_annotations(cfg.test_dataloader.dataset.pipeline)
    nested = without_annotations(cfg.tta_pipeline)
    assert 'LoadAnnotations' not in str(plain) + str(nested)
    assert len(plain) == 3
    assert len(nested[1]['transforms']) == 3
    assert 'LoadAnnotations' in str(cfg.tta_pipeline)
