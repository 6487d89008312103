"""Other loading transforms and file backends, against the real pipeline."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
from mmseg.datasets.transforms import LoadAnnotations
from mmseg.registry import TRANSFORMS

from mmseg_margin.stats import LabelRange, collect_stats
from tests.stats.builders import (
    CountingBackend,
    check_scan,
    open_set,
    write_label_file,
    write_set,
)


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
    assert not check_scan(dataset, [dataset]).problems


def test_no_temporary_folder_is_needed(tmp_path, monkeypatch):
    def fail(*args, **kwargs):
        raise FileNotFoundError('No usable temporary directory found')

    for name in ('gettempdir', 'mkstemp', 'mkdtemp', 'TemporaryDirectory'):
        monkeypatch.setattr(tempfile, name, fail)
    dataset = open_set(write_set(tmp_path))
    assert not check_scan(dataset, [dataset]).problems


def test_labels_come_through_the_file_backend(tmp_path):
    args = {'backend': 'counting'}
    pipeline = [{'type': 'LoadAnnotations', 'backend_args': args}]
    dataset = open_set(write_set(tmp_path), pipeline=pipeline)
    CountingBackend.read.clear()
    collect_stats(dataset, LabelRange(None))
    names = sorted(Path(path).name for path in CountingBackend.read)
    assert names == [f'{index:04d}.png' for index in range(6)]
