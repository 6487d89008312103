"""The scan against the real pipeline, pixel by pixel."""

import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from mmengine.dataset import ConcatDataset
from mmengine.fileio import LocalBackend, register_backend
from mmseg.datasets import ADE20KDataset, BaseSegDataset, PascalVOCDataset
from torch.utils.data import Subset

from mmseg_margin.datasets import CamVidDataset
from mmseg_margin.stats import collect_stats
from tests.layouts import make_ade20k, make_voc2012
from tests.processes import FORK, wait_for
from tests.stats.builders import (
    CLASSES,
    PIPELINE,
    check_scan,
    open_set,
    write_set,
)

CAMVID = Path(__file__).resolve().parents[3] / 'shared' / 'data' / 'camvid'


def test_reduce_zero_label_of_ade20k(tmp_path):
    root = make_ade20k(tmp_path, n=3)
    folders = 'images/training', 'annotations/training'
    dataset = open_set(root, None, PIPELINE, '.jpg', ADE20KDataset, folders)
    collected = check_scan(dataset)
    assert not collected.problems
    assert len(collected.stats.classes) == 150


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
    collected = check_scan(ConcatDataset(leaves), leaves)
    assert not collected.problems
    assert collected.stats.provenance.files == 6


class Streets(BaseSegDataset):
    METAINFO = {'classes': CLASSES, 'palette': [[i] * 3 for i in range(4)]}


@pytest.mark.parametrize('reduce', [False, True])
def test_reduced_list_of_classes(root, reduce):
    classes = 'car', 'road'
    dataset = open_set(root, classes, kind=Streets, reduce_zero_label=reduce)
    assert dataset.label_map == {0: 255, 1: 1, 2: 255, 3: 0}
    collected = check_scan(dataset)
    assert not collected.problems
    assert collected.stats.classes == ['car', 'road']


@pytest.mark.skipif(
    not CAMVID.is_dir(), reason='needs CamVid in ../shared/data/camvid'
)
def test_camvid():
    folders = 'train', 'trainannot'
    dataset = open_set(CAMVID, None, PIPELINE, '.jpg', CamVidDataset, folders)
    some = list(range(0, 367, 30))
    check_scan(Subset(dataset, some), [dataset.get_subset(some)])
    stats, problems, _ = collect_stats(dataset)
    assert not problems
    assert stats.provenance.files == 367
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
