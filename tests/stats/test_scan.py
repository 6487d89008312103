"""The scan against the real pipeline, pixel by pixel, and its fingerprint."""

import builtins
import os
import signal
import time
from collections import Counter
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from mmengine.dataset import ConcatDataset, RepeatDataset
from mmengine.fileio import LocalBackend, register_backend
from mmseg.datasets import (
    ADE20KDataset,
    MultiImageMixDataset,
    PascalVOCDataset,
)
from torch.utils.data import Subset

from mmseg_margin.datasets import CamVidDataset
from mmseg_margin.stats import collect_stats
from tests.layouts import make_ade20k, make_voc2012
from tests.processes import FORK, wait_for
from tests.stats.builders import (
    PIPELINE,
    Streets,
    check_scan,
    open_set,
    write_set,
)

CAMVID = Path(__file__).resolve().parents[3] / 'shared' / 'data' / 'camvid'


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


def test_palette_labels_in_a_concatenation_of_voc(tmp_path):
    root = make_voc2012(tmp_path, n=3)
    leaves = [
        open_set(
            *(root, None, PIPELINE, '.jpg', PascalVOCDataset),
            folders=('JPEGImages', folder),
            ann_file=f'ImageSets/Segmentation/{split}.txt',
        )
        for split, folder in (
            ('train', 'SegmentationClass'),
            ('aug', 'SegmentationClassAug'),
        )
    ]
    stats = check_scan(ConcatDataset(leaves), leaves).stats
    assert stats.files == 6


@pytest.mark.parametrize('reduce', [False, True])
def test_reduced_list_of_classes(root, reduce):
    classes = 'car', 'road'
    dataset = open_set(root, classes, kind=Streets, reduce_zero_label=reduce)
    assert dataset.label_map == {0: 255, 1: 1, 2: 255, 3: 0}
    assert check_scan(dataset).stats.classes == ['car', 'road']


def test_subsets(root):
    for indices in (3, [5, 0]):
        check_scan(open_set(root, indices=indices))
    part = open_set(root, indices=[4, 1])
    check_scan(Subset(open_set(root), [4, 1]), [part])


@pytest.mark.parametrize('ignore_index', [11, 0, 255])
def test_ignore_index(tmp_path, ignore_index):
    dataset = open_set(write_set(tmp_path, values=(0, 1, 2, 3, ignore_index)))
    check_scan(dataset, ignore_index=ignore_index)


@pytest.mark.parametrize('num_classes', [None, 9])
def test_without_classes(root, num_classes):
    dataset = open_set(root, classes=None)
    stats = check_scan(dataset, num_classes=num_classes).stats
    expected = [f'class {index}' for index in range(num_classes or 4)]
    assert stats.classes == expected


@pytest.mark.skipif(
    not CAMVID.is_dir(), reason='needs CamVid in ../shared/data/camvid'
)
def test_camvid():
    folders = 'train', 'trainannot'
    dataset = open_set(CAMVID, None, PIPELINE, '.jpg', CamVidDataset, folders)
    some = list(range(0, 367, 30))
    check_scan(Subset(dataset, some), [dataset.get_subset(some)])
    stats, findings, _ = collect_stats(dataset)
    assert not findings
    assert stats.files == 367
    share = 100 * np.array(stats.counts) / stats.total
    listed = [17.5, 24.2, 1.0, 33.0, 4.7, 10.1, 1.2, 1.2, 6.1, 0.7, 0.3]
    np.testing.assert_allclose(share, listed, atol=0.06)


def test_any_number_of_threads_counts_the_same(tmp_path):
    dataset = open_set(write_set(tmp_path, 40))
    first, *others = (
        collect_stats(dataset, num_threads=threads).stats
        for threads in (1, 2, 7)
    )
    assert others == [first, first]
    with pytest.raises(ValueError, match='num_threads'):
        collect_stats(dataset, num_threads=0)


def test_every_file_is_opened_once_and_its_state_read_once(root, monkeypatch):
    dataset = open_set(root)
    calls: Counter = Counter()

    def count(module, name):
        function = getattr(module, name)

        def counted(path, *args, **kwargs):
            if str(path).startswith(str(root)):
                calls[name, str(path)] += 1
            return function(path, *args, **kwargs)

        monkeypatch.setattr(module, name, counted)

    info = dataset.get_data_info
    indices = []
    dataset.get_data_info = lambda index: indices.append(index) or info(index)
    files = [*root.glob('img/*'), *root.glob('ann/*')]
    count(os, 'stat')
    count(builtins, 'open')
    collect_stats(dataset)
    assert sorted(indices) == list(range(6))
    names = product(('open', 'stat'), map(str, files))
    assert calls == dict.fromkeys(names, 1)


class SlowBackend(LocalBackend):
    """Takes its time, and says so."""

    log: Path

    def get(self, filepath):
        with self.log.open('a') as file:
            file.write('reading\n')
        time.sleep(0.2)
        return super().get(filepath)


def test_ctrl_c_stops_it_at_once(tmp_path):
    register_backend('slow', SlowBackend, force=True)
    SlowBackend.log = tmp_path / 'log'
    args = {'backend': 'slow'}
    pipeline = [{'type': 'LoadAnnotations', 'backend_args': args}]
    dataset = open_set(write_set(tmp_path, 400), pipeline=pipeline)

    def scan():
        # A shell's background jobs start with the signal ignored.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            collect_stats(dataset)
        except KeyboardInterrupt:
            os._exit(7)

    process = FORK.Process(target=scan)
    process.start()
    while not SlowBackend.log.exists():
        assert process.is_alive()
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGINT)
    assert wait_for([process], 60) == [7]
    assert SlowBackend.log.read_text().count('reading') < 200  # of 400


def key_of(root, labels=(), **kwargs):
    stats = collect_stats(open_set(root, **kwargs), *labels).stats
    return stats.fingerprint


def longer(path):
    """At the old time."""
    before = path.stat()
    path.write_bytes(path.read_bytes() + b'0')
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def linked(path):
    """A link to a file elsewhere."""
    other = path.parents[2] / 'elsewhere.png'
    path.rename(other)
    path.symlink_to(other)
    other.touch()


def added(path):
    """A further sample."""
    for folder in ('img', 'ann'):
        copy = path.parents[1] / folder / '0009.png'
        copy.write_bytes(path.read_bytes())


@pytest.mark.parametrize(
    ('folder', 'change'),
    [
        ('ann', Path.unlink),
        ('ann', added),
        *product(('img', 'ann'), (longer, Path.touch, linked)),
    ],
)
def test_every_change_is_seen(root, change, folder):
    before = key_of(root)
    assert key_of(root) == before
    change(root / folder / '0002.png')
    assert key_of(root) != before


def test_every_setting_is_seen(root):
    (root / 'listed.txt').write_text('0001\n0002\n')
    settings = [
        {'classes': list('abce')},
        {'classes': None},
        {'classes': None, 'labels': [5]},
        {'labels': [None, 3]},
        {'reduce_zero_label': True},
        {'ann_file': 'listed.txt'},
    ]
    keys = {key_of(root), *(key_of(root, **kwargs) for kwargs in settings)}
    assert len(keys) == 1 + len(settings)
