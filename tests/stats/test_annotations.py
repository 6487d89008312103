"""The list of label files through all wrappers, and the state of the files."""

import os
from itertools import product
from pathlib import Path

import pytest
from mmengine.dataset import ConcatDataset, RepeatDataset
from mmseg.datasets import BaseSegDataset, MultiImageMixDataset
from torch.utils.data import Subset

from mmseg_margin.stats import collect_stats
from mmseg_margin.stats.scan import FileStates, list_annotations
from tests.stats.builders import check_scan, open_set, write_set


def test_wrappers(tmp_path):
    first = open_set(write_set(tmp_path / 'a', 3), lazy_init=True)
    second = open_set(write_set(tmp_path / 'b', 4, values=(0, 1)))
    once = check_scan(first).stats
    both = ConcatDataset([first, second])
    for dataset in (both, MultiImageMixDataset(both, pipeline=[])):
        check_scan(dataset, [first, second])
    repeated = check_scan(RepeatDataset(first, 5), [first]).stats
    assert repeated.provenance.files == 3
    assert repeated.provenance.dataset == 'BaseSegDataset'
    twice = collect_stats(ConcatDataset([first, first])).stats
    assert twice.counts == [2 * count for count in once.counts]


class Named(BaseSegDataset):
    """A data set, not a wrapper, with an attribute of that name."""

    dataset = 'streets'
    datasets = ('streets',)


def test_attributes_named_like_those_of_wrappers(root):
    assert not check_scan(open_set(root, kind=Named)).problems


def test_subsets(root):
    for indices in (3, [5, 0]):
        check_scan(open_set(root, indices=indices))
    part = open_set(root, indices=[4, 1])
    check_scan(Subset(open_set(root), [4, 1]), [part])


@pytest.mark.parametrize('ignore_index', [11, 0, 255])
def test_ignore_index(tmp_path, ignore_index):
    dataset = open_set(write_set(tmp_path, values=(0, 1, 2, 3, ignore_index)))
    assert not check_scan(dataset, ignore_index=ignore_index).problems


@pytest.mark.parametrize('num_classes', [None, 9])
def test_without_classes(root, num_classes):
    dataset = open_set(root, classes=None)
    stats = check_scan(dataset, num_classes=num_classes).stats
    expected = [f'class {index}' for index in range(num_classes or 4)]
    assert stats.classes == expected


def test_states_of_shares_add_up_to_the_whole(root):
    samples = list_annotations(open_set(root))
    whole = samples.states()
    for ranks in (2, 3, 7):
        shares = [samples[rank::ranks].states() for rank in range(ranks)]
        assert sum(shares, start=FileStates()) == whole
    assert samples[:5].states() != whole


def key_of(root, labels=(), **kwargs):
    stats = collect_stats(open_set(root, **kwargs), *labels).stats
    return stats.provenance.fingerprint


def same_size(path):
    """Other pixels in a file of the same length, at the old time."""
    before = path.stat()
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = path.stat()
    assert after.st_size == before.st_size
    assert after.st_mtime_ns == before.st_mtime_ns


def replaced(path):
    """Another file under the name, as old and as long."""
    other = path.with_name('other')
    other.write_bytes(path.read_bytes())
    before = path.stat()
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.replace(path)


def linked(path):
    """A link to a file elsewhere."""
    other = path.parents[2] / 'elsewhere.png'
    path.rename(other)
    path.symlink_to(other)
    other.touch()


@pytest.mark.parametrize(
    ('folder', 'change'),
    [
        ('ann', Path.unlink),
        *product(('img', 'ann'), (same_size, replaced, Path.touch, linked)),
    ],
)
def test_every_change_is_seen(root, change, folder):
    before = key_of(root)
    assert key_of(root) == before
    change(root / folder / '0002.png')
    assert key_of(root) != before


def test_every_setting_is_seen(root):
    settings = [
        {'classes': list('abce')},
        {'classes': None},
        {'classes': None, 'labels': [5]},
        {'labels': [None, 3]},
        {'reduce_zero_label': True},
        {'pipeline': [{'type': 'LoadAnnotations'}]},
    ]
    keys = {key_of(root), *(key_of(root, **kwargs) for kwargs in settings)}
    assert len(keys) == 1 + len(settings)


def test_added_and_removed_samples_are_seen(root):
    before = key_of(root)
    for folder in ('img', 'ann'):
        content = (root / folder / '0000.png').read_bytes()
        (root / folder / '0009.png').write_bytes(content)
    assert key_of(root) != before
    (root / 'img' / '0009.png').unlink()
    assert key_of(root) == before
