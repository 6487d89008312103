"""The scan against the real pipeline, pixel by pixel."""

import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from mmengine.dataset import ConcatDataset
from mmengine.fileio import LocalBackend, register_backend
from mmseg.datasets import (
    ADE20KDataset,
    PascalVOCDataset,
)
from torch.utils.data import Subset

from mmseg_margin.datasets import CamVidDataset
from mmseg_margin.stats import LabelRange, collect_stats
from mmseg_margin.stats.problems import Problem
from tests.layouts import make_ade20k, make_voc2012
from tests.processes import FORK, wait_for
from tests.stats.builders import (
    CLASSES,
    PIPELINE,
    SIZE,
    check_scan,
    open_set,
    write_label_file,
    write_set,
)

SHARED = Path(__file__).resolve().parents[3] / 'shared'


def test_grey_labels(tmp_path):
    dataset = open_set(write_set(tmp_path))
    collected = check_scan(dataset, [dataset])
    assert not collected.problems
    assert collected.stats.provenance.files == 6
    assert collected.stats.provenance.dataset == 'BaseSegDataset'


def test_reduce_zero_label_of_ade20k(tmp_path):
    root = make_ade20k(tmp_path, n=3)
    dataset = ADE20KDataset(
        data_root=str(root),
        data_prefix={
            'img_path': 'images/training',
            'seg_map_path': 'annotations/training',
        },
        pipeline=list(PIPELINE),
    )
    collected = check_scan(dataset, [dataset])
    assert not collected.problems
    assert len(collected.stats.classes) == 150


def test_palette_labels_in_a_concatenation_of_voc(tmp_path):
    root = make_voc2012(tmp_path, n=3)
    leaves = [
        PascalVOCDataset(
            ann_file=f'ImageSets/Segmentation/{split}.txt',
            data_root=str(root),
            data_prefix={'img_path': 'JPEGImages', 'seg_map_path': folder},
            pipeline=list(PIPELINE),
        )
        for split, folder in (
            ('train', 'SegmentationClass'),
            ('aug', 'SegmentationClassAug'),
        )
    ]
    collected = check_scan(ConcatDataset(leaves), leaves)
    assert not collected.problems
    assert collected.stats.provenance.files == 6


@pytest.mark.parametrize('reduce_zero_label', [False, True])
def test_reduced_list_of_classes(tmp_path, reduce_zero_label):
    class Streets(type(open_set(write_set(tmp_path)))):
        METAINFO = {'classes': CLASSES, 'palette': [[i] * 3 for i in range(4)]}

    dataset = Streets(
        data_root=str(tmp_path),
        img_suffix='.png',
        data_prefix={'img_path': 'img', 'seg_map_path': 'ann'},
        metainfo={'classes': ('car', 'road')},
        reduce_zero_label=reduce_zero_label,
        pipeline=list(PIPELINE),
    )
    assert dataset.label_map == {0: 255, 1: 1, 2: 255, 3: 0}
    collected = check_scan(dataset, [dataset])
    assert not collected.problems
    assert collected.stats.classes == ['car', 'road']


def test_mixed_pixel_types(tmp_path):
    root = write_set(tmp_path, palette=True)
    rng = np.random.default_rng(1)
    shape = SIZE[::-1]
    write_label_file(root, 0, rng.integers(0, 4, shape).astype(np.uint16))
    write_label_file(root, 1, rng.integers(0, 4, shape).astype(np.uint8))
    write_label_file(root, 2, rng.integers(0, 2, shape) > 0)
    wide = 256 * rng.integers(0, 9, shape) + rng.integers(0, 4, shape)
    write_label_file(root, 3, wide.astype(np.uint16))
    dataset = open_set(root)
    collected = check_scan(dataset, [dataset])
    assert set(collected.problems) == {Problem.WRAPPED}
    assert '0003.png' in collected.problems[Problem.WRAPPED].first[0][1]


@pytest.mark.skipif(
    not (SHARED / 'data' / 'camvid').is_dir(),
    reason='needs CamVid in ../shared/data/camvid',
)
def test_camvid():
    dataset = CamVidDataset(
        data_root=str(SHARED / 'data' / 'camvid'),
        img_suffix='.jpg',
        data_prefix={'img_path': 'train', 'seg_map_path': 'trainannot'},
        pipeline=list(PIPELINE),
    )
    part = Subset(dataset, range(0, 367, 30))
    images = [dataset.get_subset(list(part.indices))]
    check_scan(part, images)
    collected = collect_stats(dataset, LabelRange(None))
    assert not collected.problems
    assert collected.stats.provenance.files == 367
    share = 100 * np.array(collected.stats.counts) / collected.stats.total
    listed = [17.5, 24.2, 1.0, 33.0, 4.7, 10.1, 1.2, 1.2, 6.1, 0.7, 0.3]
    np.testing.assert_allclose(share, listed, atol=0.06)


def test_any_number_of_threads_counts_the_same(tmp_path):
    dataset = open_set(write_set(tmp_path, 20))
    results = {
        tuple(
            collect_stats(
                dataset, LabelRange(None), num_threads=num_threads
            ).stats.counts
        )
        for num_threads in (1, 2, 7)
    }
    assert len(results) == 1


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
            collect_stats(dataset, LabelRange(None))
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
