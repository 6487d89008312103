"""Labels that are changed behind the loading transform are noticed."""

import random

import numpy as np
import pytest
import torch
from mmseg.datasets import BaseSegDataset
from mmseg.registry import TRANSFORMS

from tests.small_training import AUGMENTED, PLAIN
from tests.stats.builders import open_set, report_on, write_set

REMAP = {'type': 'RemapLabels'}


@TRANSFORMS.register_module()
class RemapLabels:
    """Makes class 3 part of class 0, and fails once it is told to."""

    calls = 0

    def __init__(self, fails: bool = False) -> None:
        self.fails = fails

    def __call__(self, results):
        if self.fails:
            raise RuntimeError('not today')
        self.calls += 1
        labels = results['gt_seg_map']
        results['gt_seg_map'] = np.where(labels == 3, 0, labels)
        return results


class Remapped(BaseSegDataset):
    def prepare_data(self, idx):
        sample = super().prepare_data(idx)
        labels = sample['data_samples'].gt_sem_seg.data
        labels[labels == 3] = 0
        return sample


@pytest.mark.parametrize('augmented', [False, True])
@pytest.mark.parametrize('how', ['transform', 'prepare_data'])
def test_changed_labels(root, augmented, how):
    pipeline = list(AUGMENTED if augmented else PLAIN)
    kind = Remapped
    if how == 'transform':
        pipeline.insert(2, REMAP)
        kind = BaseSegDataset
    (warning,) = report_on(open_set(root, None, pipeline, kind=kind)).warnings
    assert 'class 3 (class 3) has ' in warning
    assert 'none in the samples' in warning
    assert 'a subclass of LoadAnnotations' in warning


def test_a_class_that_is_in_no_file(tmp_path):
    root = write_set(tmp_path, 1, values=(1, 2, 3))
    dataset = open_set(root, pipeline=[*PLAIN[:2], REMAP])
    assert 'sample 0 has pixels of class 0 (sky)' in str(report_on(dataset))


def test_random_crops_are_no_reason_to_warn(tmp_path):
    root = write_set(tmp_path, 30)
    assert str(report_on(open_set(root, pipeline=AUGMENTED))) == ''


def test_pipelines_that_fail_are_named(root):
    pipeline = [*PLAIN[:2], {**REMAP, 'fails': True}]
    (warning,) = report_on(open_set(root, pipeline=pipeline)).warnings
    assert 'RuntimeError: not today' in warning


def test_nothing_changes_for_the_training(root):
    """Neither the random numbers nor the state of a transform."""
    dataset = open_set(root, pipeline=[*AUGMENTED[:-1], REMAP])

    def draw(between=lambda: None):
        random.seed(1)
        np.random.seed(1)  # noqa: NPY002  (transforms use this generator)
        torch.manual_seed(1)
        between()
        numpy = np.random.rand()  # noqa: NPY002
        return random.random(), numpy, float(torch.rand(1))

    assert draw(lambda: report_on(dataset)) == draw()
    assert dataset.pipeline.transforms[-1].calls == 0
