"""Data sets and pipelines of configs."""

from mmengine.config import Config
from mmseg.datasets.transforms import LoadAnnotations

from mmseg_margin.evaluation.pipelines import (
    loads_annotations,
    plain_datasets,
    registered_name,
    without_annotations,
)


def test_names_of_strings_and_classes():
    assert registered_name({'type': 'mmseg.LoadAnnotations'}) == (
        registered_name({'type': LoadAnnotations})
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


def test_wrappers_are_looked_through():
    leaf = {'type': 'CityscapesDataset', 'pipeline': []}
    repeated = {'type': 'RepeatDataset', 'times': 9, 'dataset': leaf}
    cfg = Config(
        {'d': {'type': 'ConcatDataset', 'datasets': [repeated, leaf]}}
    )
    assert plain_datasets(cfg.d) == [leaf, leaf]
