"""The test split and the ids of each server."""

import pytest
from mmengine.config import ConfigDict

from mmseg_margin.tooling.submission_formats import (
    FORMATS,
    SubmissionError,
    find_format,
)
from tests.evaluation.fakes import LABEL_IDS


def switch(name: str, **dataset) -> ConfigDict:
    cfg = ConfigDict(type=name, **dataset)
    find_format(cfg).use_test_split(cfg)
    return cfg


def test_cityscapes_ids_are_those_of_cityscapesscripts():
    assert find_format({'type': 'CityscapesDataset'}).label_ids == LABEL_IDS
    labels = pytest.importorskip('cityscapesscripts.helpers.labels')
    for train_id, label_id in enumerate(LABEL_IDS):
        assert labels.trainId2label[train_id].id == label_id


@pytest.mark.parametrize(
    ('given', 'used'),
    [
        ('leftImg8bit/val', 'leftImg8bit/test'),
        ('leftImg8bit/train/', 'leftImg8bit/test'),
        ('leftImg8bit/test', 'leftImg8bit/test'),
        ('leftImg8bit/demoVideo', 'leftImg8bit/demoVideo'),
    ],
)
def test_cityscapes_split(given, used):
    cfg = switch('CityscapesDataset', data_prefix={'img_path': given})
    assert cfg.data_prefix.img_path == used


def test_ade20k_split_is_beside_or_inside(tmp_path):
    prefix = {'img_path': 'images/validation'}
    root = tmp_path / 'ADEChallengeData2016'
    cfg = switch('ADE20KDataset', data_root=str(root), data_prefix=prefix)
    assert cfg.data_prefix.img_path == '../release_test/testing'
    (root / 'images/testing').mkdir(parents=True)
    cfg = switch('ADE20KDataset', data_root=str(root), data_prefix=prefix)
    assert cfg.data_prefix.img_path == 'images/testing'


@pytest.mark.parametrize('given', ['val', 'trainval', 'test'])
def test_voc_split(given):
    folder = 'ImageSets/Segmentation'
    cfg = switch('PascalVOCDataset', ann_file=f'{folder}/{given}.txt')
    assert cfg.ann_file == f'{folder}/test.txt'


def test_a_data_set_without_a_server():
    with pytest.raises(SubmissionError, match='no server for BDD100KDataset'):
        find_format({'type': 'mmseg.BDD100KDataset'})


def test_ids_are_distinct_bytes():
    for form in FORMATS:
        assert len(set(form.label_ids)) == len(form.label_ids)
        assert max(form.label_ids) < 256
