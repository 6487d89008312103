"""Loading transforms and file backends, against the real pipeline."""

import tempfile

import numpy as np
import pytest
from mmseg.datasets.transforms import LoadAnnotations
from mmseg.registry import TRANSFORMS

from tests.stats.builders import check_scan, open_set, write_label_file


@TRANSFORMS.register_module()
class LoadAnnotationsPlusOne(LoadAnnotations):
    """A subclass of a user, which does something else to pixels."""

    def _load_seg_map(self, results):
        super()._load_seg_map(results)
        labels = results['gt_seg_map'].astype(np.int64)
        results['gt_seg_map'] = (labels + 1) % 4


@TRANSFORMS.register_module()
class LoadColours(LoadAnnotations):
    """Three-channel labels: the class is the sum of the channels."""

    def _load_seg_map(self, results):
        self.imdecode_backend = 'cv2'
        super()._load_seg_map(results)
        results['gt_seg_map'] = results['gt_seg_map'].sum(-1) % 4


@pytest.mark.parametrize(
    ('transform', 'suffix'),
    [
        ({'type': 'LoadAnnotationsPlusOne'}, '.png'),
        ({'type': 'LoadColours'}, '.png'),
        ({'type': 'LoadAnnotations', 'imdecode_backend': 'cv2'}, '.png'),
        (
            {'type': 'LoadBiomedicalAnnotation', 'decode_backend': 'numpy'},
            '.npy',
        ),
    ],
)
def test_other_loading_transforms_are_run(root, transform, suffix):
    for index in range(6):
        if transform['type'] == 'LoadColours':
            colours = np.full((32, 48, 3), index // 2, dtype=np.uint8)
            write_label_file(root, index, colours)
        volume = np.full((5, 6, 7), index % 3, dtype=np.int16)
        np.save(root / 'ann' / f'{index:04d}.npy', volume)
    pipeline = [{'type': 'LoadImageFromFile'}, transform]
    dataset = open_set(root, pipeline=pipeline, seg_map_suffix=suffix)
    assert not check_scan(dataset).problems


def test_no_temporary_folder_is_needed(root, monkeypatch):
    def fail(*args, **kwargs):
        raise FileNotFoundError('No usable temporary directory found')

    for name in ('gettempdir', 'mkstemp', 'mkdtemp', 'TemporaryDirectory'):
        monkeypatch.setattr(tempfile, name, fail)
    assert not check_scan(open_set(root)).problems
