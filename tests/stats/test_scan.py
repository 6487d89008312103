"""The scan against the real pipeline, pixel by pixel, and its fingerprint."""

import os
from pathlib import Path

import pytest
from mmengine.dataset import ConcatDataset, RepeatDataset
from mmseg.datasets import (
    ADE20KDataset,
    MultiImageMixDataset,
    PascalVOCDataset,
)
from torch.utils.data import Subset

from mmseg_margin.stats import collect_stats
from tests.layouts import make_ade20k, make_voc2012
from tests.stats.builders import PIPELINE, check_scan, open_set, write_set


def test_wrappers(tmp_path):
    first = open_set(write_set(tmp_path / 'a', 3), lazy_init=True)
    second = open_set(write_set(tmp_path / 'b', 4, values=(0, 1)))
    once = check_scan(first).stats
    both = ConcatDataset([first, second])
    for dataset in (both, MultiImageMixDataset(both, pipeline=[])):
        check_scan(dataset, [first, second])
    repeated = check_scan(RepeatDataset(first, 5), [first]).stats
    assert repeated.files == 3
    assert repeated.dataset == 'BaseSegDataset'
    twice = collect_stats(ConcatDataset([first, first])).stats
    assert twice.counts == [2 * count for count in once.counts]


def test_reduce_zero_label_of_ade20k(tmp_path):
    root = make_ade20k(tmp_path, n=3)
    folders = 'images/training', 'annotations/training'
    dataset = open_set(root, None, PIPELINE, '.jpg', ADE20KDataset, folders)
    assert len(check_scan(dataset).stats.classes) == 150


def test_palette_labels_of_voc(tmp_path):
    dataset = open_set(
        *(make_voc2012(tmp_path, n=3), None, PIPELINE, '.jpg'),
        kind=PascalVOCDataset,
        folders=('JPEGImages', 'SegmentationClass'),
        ann_file='ImageSets/Segmentation/train.txt',
    )
    assert check_scan(dataset).stats.files == 3


def test_subsets(root):
    for indices in (3, [5, 0]):
        check_scan(open_set(root, indices=indices))
    part = open_set(root, indices=[4, 1])
    check_scan(Subset(open_set(root), [4, 1]), [part])


@pytest.mark.parametrize('ignore_index', [11, 0, 255])
def test_ignore_index(tmp_path, ignore_index):
    dataset = open_set(write_set(tmp_path, values=(0, 1, 2, 3, ignore_index)))
    check_scan(dataset, ignore_index=ignore_index)


def key_of(root, labels=(), **kwargs):
    stats = collect_stats(open_set(root, **kwargs), *labels).stats
    return stats.fingerprint


def longer(path):
    """At the old time."""
    before = path.stat()
    path.write_bytes(path.read_bytes() + b'0')
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize('folder', ['img', 'ann'])
@pytest.mark.parametrize('change', [Path.unlink, longer, Path.touch])
def test_every_change_is_seen(root, change, folder):
    before = key_of(root)
    assert key_of(root) == before
    change(root / folder / '0002.png')
    assert key_of(root) != before


def test_every_setting_is_seen(root):
    settings = [
        {'classes': list('abce')},
        {'classes': None, 'labels': [5]},
        {'labels': [None, 3]},
        {'reduce_zero_label': True},
    ]
    keys = {key_of(root), *(key_of(root, **kwargs) for kwargs in settings)}
    assert len(keys) == 1 + len(settings)
