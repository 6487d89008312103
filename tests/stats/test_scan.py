"""The scan against the real pipeline, pixel by pixel."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from mmengine.dataset import ConcatDataset, RepeatDataset
from mmseg.datasets import (
    ADE20KDataset,
    MultiImageMixDataset,
    PascalVOCDataset,
)
from mmseg.datasets.transforms import LoadAnnotations
from mmseg.registry import TRANSFORMS
from torch.utils.data import Subset

from mmseg_margin.datasets import CamVidDataset, InstrumentPartsDataset
from mmseg_margin.stats import LabelRange, collect_stats
from mmseg_margin.stats.findings import Kind
from tests.layouts import make_ade20k, make_voc2012
from tests.stats.builders import (
    CLASSES,
    PIPELINE,
    SIZE,
    CountingBackend,
    count_pixel_by_pixel,
    open_set,
    write_label_file,
    write_set,
)

SHARED = Path(__file__).resolve().parents[3] / 'shared'
REPOSITORY = Path(__file__).resolve().parents[2]


def check(dataset, leaves, ignore_index=255, num_classes=None):
    """Compare a scan with counting pixel by pixel; return the scan."""
    collected = collect_stats(dataset, LabelRange(num_classes, ignore_index))
    stats = collected.stats
    counts, images, ignored = count_pixel_by_pixel(
        leaves, len(stats.classes), ignore_index
    )
    assert stats.counts == counts
    assert stats.images == images
    assert stats.ignored == ignored
    assert sum(counts) > 0
    return collected


def test_grey_labels(tmp_path):
    dataset = open_set(write_set(tmp_path))
    collected = check(dataset, [dataset])
    assert not collected.findings
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
    collected = check(dataset, [dataset])
    assert not collected.findings
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
    collected = check(ConcatDataset(leaves), leaves)
    assert not collected.findings
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
    collected = check(dataset, [dataset])
    assert not collected.findings
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
    collected = check(dataset, [dataset])
    assert set(collected.findings) == {Kind.WRAPPED}
    assert '0003.png' in collected.findings[Kind.WRAPPED].first[0][1]


def test_embedded_data_set(tmp_path):
    tool = REPOSITORY / 'tools' / 'make_instrument_parts.py'
    subprocess.run(
        [
            *(sys.executable, tool, '--out', tmp_path),
            *('--counts', '4', '1', '1', '--size', '160', '128'),
        ],
        check=True,
        capture_output=True,
    )
    dataset = InstrumentPartsDataset(
        data_root=str(tmp_path),
        data_prefix={
            'img_path': 'images/train',
            'seg_map_path': 'labels/train',
        },
        pipeline=list(PIPELINE),
    )
    assert not check(dataset, [dataset]).findings


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
    collected = check(dataset, [dataset])
    assert not collected.findings
    assert collected.stats.provenance.files == 367
    share = 100 * np.array(collected.stats.counts) / collected.stats.total
    listed = [17.5, 24.2, 1.0, 33.0, 4.7, 10.1, 1.2, 1.2, 6.1, 0.7, 0.3]
    np.testing.assert_allclose(share, listed, atol=0.06)


def test_wrappers(tmp_path):
    first = open_set(write_set(tmp_path / 'a', 3))
    second = open_set(write_set(tmp_path / 'b', 4, values=(0, 1)))
    once = check(first, [first]).stats
    both = ConcatDataset([first, second])
    check(both, [first, second])
    mixed = MultiImageMixDataset(both, pipeline=[])
    check(mixed, [first, second])
    repeated = collect_stats(RepeatDataset(first, 5), LabelRange(None))
    assert repeated.stats.counts == once.counts
    assert repeated.stats.provenance.files == 3
    twice = collect_stats(ConcatDataset([first, first]), LabelRange(None))
    assert twice.stats.counts == [2 * count for count in once.counts]


def test_subsets(tmp_path):
    root = write_set(tmp_path, 6)
    for indices in (3, [5, 0]):
        part = open_set(root, indices=indices)
        check(part, [part])
    whole = open_set(root)
    part = open_set(root, indices=[4, 1])
    subset = Subset(whole, [4, 1])
    subset.metainfo = whole.metainfo
    stats = collect_stats(subset, LabelRange(None)).stats
    assert stats.counts == collect_stats(part, LabelRange(None)).stats.counts


def test_lazy_data_set(tmp_path):
    dataset = open_set(write_set(tmp_path), lazy_init=True)
    check(dataset, [dataset])


@pytest.mark.parametrize('ignore_index', [11, 0, 255])
def test_ignore_index(tmp_path, ignore_index):
    values = (0, 1, 2, 3, ignore_index)
    dataset = open_set(write_set(tmp_path, values=values))
    assert not check(dataset, [dataset], ignore_index).findings


def test_without_classes(tmp_path):
    dataset = open_set(write_set(tmp_path), classes=None)
    stats = check(dataset, [dataset]).stats
    assert stats.classes == ['class 0', 'class 1', 'class 2', 'class 3']
    assert len(check(dataset, [dataset], num_classes=9).stats.classes) == 9


@TRANSFORMS.register_module()
class LoadAnnotationsPlusOne(LoadAnnotations):
    """A subclass of a user, which does something else to pixels."""

    def _load_seg_map(self, results):
        super()._load_seg_map(results)
        results['gt_seg_map'] = (
            results['gt_seg_map'].astype(np.int64) + 1
        ) % 4


@TRANSFORMS.register_module()
class LoadColours(LoadAnnotations):
    """Three-channel labels: the class is the sum of the channels."""

    def _load_seg_map(self, results):
        self.imdecode_backend = 'cv2'
        super()._load_seg_map(results)
        results['gt_seg_map'] = results['gt_seg_map'].sum(-1) % 4


@pytest.mark.parametrize(
    'loader', ['LoadAnnotationsPlusOne', 'LoadColours', 'cv2', 'numpy']
)
def test_other_loading_transforms_are_run(tmp_path, loader):
    root = write_set(tmp_path)
    transform = {'type': loader}
    kwargs = {}
    if loader == 'cv2':
        transform = {'type': 'LoadAnnotations', 'imdecode_backend': 'cv2'}
    if loader == 'LoadColours':
        for index in range(6):
            colours = np.full((32, 48, 3), index // 2, dtype=np.uint8)
            write_label_file(root, index, colours)
    if loader == 'numpy':
        transform = {
            'type': 'LoadBiomedicalAnnotation',
            'decode_backend': 'numpy',
        }
        kwargs = {'seg_map_suffix': '.npy'}
        for index in range(6):
            volume = np.full((5, 6, 7), index % 3, dtype=np.int16)
            np.save(root / 'ann' / f'{index:04d}.npy', volume)
    pipeline = [{'type': 'LoadImageFromFile'}, transform]
    dataset = open_set(root, pipeline=pipeline, **kwargs)
    assert not check(dataset, [dataset]).findings


def test_labels_come_through_the_file_backend(tmp_path):
    args = {'backend': 'counting'}
    pipeline = [{'type': 'LoadAnnotations', 'backend_args': args}]
    dataset = open_set(write_set(tmp_path), pipeline=pipeline)
    CountingBackend.read.clear()
    collect_stats(dataset, LabelRange(None))
    names = sorted(Path(path).name for path in CountingBackend.read)
    assert names == [f'{index:04d}.png' for index in range(6)]


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
import sys, time
from mmengine.fileio import LocalBackend, register_backend
from mmengine.registry import init_default_scope
from mmseg_margin.stats import LabelRange, collect_stats
from mmseg.datasets import BaseSegDataset

class SlowBackend(LocalBackend):
    def get(self, filepath):
        print('reading', flush=True)
        time.sleep(0.2)
        return super().get(filepath)

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
    start = time.monotonic()
    _, errors = process.communicate(timeout=30)
    assert time.monotonic() - start < 5  # the whole scan takes 40 seconds
    assert process.returncode != 0
    assert errors.strip().endswith('KeyboardInterrupt')
