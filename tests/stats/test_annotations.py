"""Wrappers and subsets, against the real pipeline."""

import pytest
from mmengine.dataset import ConcatDataset, RepeatDataset
from mmseg.datasets import (
    MultiImageMixDataset,
)
from torch.utils.data import Subset

from mmseg_margin.stats import LabelRange, collect_stats
from tests.stats.builders import (
    check_scan,
    open_set,
    write_set,
)


def test_wrappers(tmp_path):
    first = open_set(write_set(tmp_path / 'a', 3))
    second = open_set(write_set(tmp_path / 'b', 4, values=(0, 1)))
    once = check_scan(first, [first]).stats
    both = ConcatDataset([first, second])
    check_scan(both, [first, second])
    mixed = MultiImageMixDataset(both, pipeline=[])
    check_scan(mixed, [first, second])
    repeated = collect_stats(RepeatDataset(first, 5), LabelRange(None))
    assert repeated.stats.counts == once.counts
    assert repeated.stats.provenance.files == 3
    twice = collect_stats(ConcatDataset([first, first]), LabelRange(None))
    assert twice.stats.counts == [2 * count for count in once.counts]


def test_subsets(tmp_path):
    root = write_set(tmp_path, 6)
    for indices in (3, [5, 0]):
        part = open_set(root, indices=indices)
        check_scan(part, [part])
    whole = open_set(root)
    part = open_set(root, indices=[4, 1])
    stats = collect_stats(Subset(whole, [4, 1]), LabelRange(None)).stats
    assert stats.counts == collect_stats(part, LabelRange(None)).stats.counts


def test_lazy_data_set(tmp_path):
    dataset = open_set(write_set(tmp_path), lazy_init=True)
    check_scan(dataset, [dataset])


@pytest.mark.parametrize('ignore_index', [11, 0, 255])
def test_ignore_index(tmp_path, ignore_index):
    values = (0, 1, 2, 3, ignore_index)
    dataset = open_set(write_set(tmp_path, values=values))
    assert not check_scan(dataset, [dataset], ignore_index).problems


def test_without_classes(tmp_path):
    dataset = open_set(write_set(tmp_path), classes=None)
    stats = check_scan(dataset, [dataset]).stats
    assert stats.classes == ['class 0', 'class 1', 'class 2', 'class 3']
    assert (
        len(check_scan(dataset, [dataset], num_classes=9).stats.classes) == 9
    )
