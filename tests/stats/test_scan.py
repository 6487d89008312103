"""The scan against the real pipeline, pixel by pixel."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from mmengine.dataset import ConcatDataset
from mmseg.datasets import (
    ADE20KDataset,
    PascalVOCDataset,
)

from mmseg_margin.datasets import CamVidDataset
from mmseg_margin.stats import LabelRange, collect_stats
from mmseg_margin.stats.problems import Kind
from tests.layouts import make_ade20k, make_voc2012
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
    assert set(collected.problems) == {Kind.WRAPPED}
    assert '0003.png' in collected.problems[Kind.WRAPPED].first[0][1]


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
    collected = check_scan(dataset, [dataset])
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


SLOW_SCAN = """
import signal, sys, time
from mmengine.fileio import LocalBackend, register_backend
from mmengine.registry import init_default_scope
from mmseg_margin.stats import LabelRange, collect_stats
from mmseg.datasets import BaseSegDataset

class SlowBackend(LocalBackend):
    def get(self, filepath):
        print('reading', flush=True)
        time.sleep(0.2)
        return super().get(filepath)

# A shell's background jobs start with the signal ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
register_backend('slow', SlowBackend)
init_default_scope('mmseg')
loader = dict(type='LoadAnnotations', backend_args=dict(backend='slow'))
dataset = BaseSegDataset(
    data_root=sys.argv[1], img_suffix='.png', pipeline=[loader],
    data_prefix=dict(img_path='img', seg_map_path='ann'))
collect_stats(dataset, LabelRange(None))
"""


def test_ctrl_c_stops_it_at_once(tmp_path):
    root = write_set(tmp_path, 400)
    process = subprocess.Popen(
        [sys.executable, '-c', SLOW_SCAN, root],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while process.stdout.readline() != 'reading\n':
        assert process.poll() is None
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    read, errors = process.communicate(timeout=120)
    assert read.count('reading') < 200  # of 400 files
    assert process.returncode != 0
    assert errors.strip().endswith('KeyboardInterrupt')
