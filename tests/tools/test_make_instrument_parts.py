"""The embedded data set: its images and its files."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mmseg_margin.datasets import PART_COLOURS, InstrumentPartsDataset
from mmseg_margin.errors import DataSetError
from tests.commands import TOOLS, output_of, output_of_python
from tools.instrument_synthesis import (
    SPLITS,
    Settings,
    draw_image,
    write_dataset,
)

SMALL = Settings(width=48, height=40, train=3, val=2, test=2)
PAPER_SHARES = np.array([0.912, 0.049, 0.014, 0.016, 0.008])
LOADING = [dict(type='LoadImageFromFile'), dict(type='mmseg.LoadAnnotations')]


@pytest.fixture(scope='module')
def small_set(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp('parts') / 'set'
    assert write_dataset(root, SMALL)
    return root


def read_files(root: Path) -> dict[str, bytes]:
    files = (path for path in root.rglob('*') if path.is_file())
    return {str(x.relative_to(root)): x.read_bytes() for x in files}


def test_images_depend_on_seed_split_and_index_alone(small_set, tmp_path):
    small = read_files(small_set)
    write_dataset(tmp_path / 'other', replace(SMALL, seed=1))
    write_dataset(tmp_path / 'more', replace(SMALL, train=4, val=3))
    other, more = read_files(tmp_path / 'other'), read_files(tmp_path / 'more')
    assert other.keys() == small.keys()
    images = [name for name in small if name.startswith('images/')]
    assert len({small[name] for name in images}) == 7
    assert all(other[name] != small[name] for name in images)
    assert all(more[name] == small[name] for name in images)


@pytest.mark.parametrize('split', SPLITS)
def test_classes_are_as_frequent_as_in_the_paper(split):
    labels = [
        draw_image(0, split, index, 72, 60)[1]
        for index in range(getattr(Settings(), split))
    ]
    shares = [np.mean(np.stack(labels) == k) for k in range(5)]
    np.testing.assert_allclose(shares, PAPER_SHARES, rtol=0.2)


@pytest.mark.parametrize('image_format', ['png', 'jpg'])
def test_dataset_loads_through_mmseg(tmp_path, image_format):
    write_dataset(tmp_path, replace(SMALL, image_format=image_format))
    dataset = InstrumentPartsDataset(
        data_root=str(tmp_path),
        data_prefix=dict(img_path='images/train', seg_map_path='labels/train'),
        img_suffix=f'.{image_format}',
        pipeline=LOADING,
    )
    assert len(dataset) == SMALL.train
    for sample in dataset:
        assert sample['img'].shape == (40, 48, 3)
        with Image.open(sample['seg_map_path']) as stored:
            palette = np.reshape(stored.getpalette()[:15], (5, 3))
            np.testing.assert_array_equal(sample['gt_seg_map'], stored)
        assert [*map(tuple, palette)] == [*PART_COLOURS.values()]


def test_what_is_not_written(tmp_path):
    """An interrupted set, one with bad settings, and into other folders."""
    with pytest.raises(ValueError, match='extension'):
        write_dataset(tmp_path / 'set', replace(SMALL, image_format='none'))
    assert list(tmp_path.iterdir()) == []
    (tmp_path / 'notes.txt').write_text('mine')
    with pytest.raises(DataSetError, match='generator'):
        write_dataset(tmp_path, SMALL)
    assert [p.name for p in tmp_path.iterdir()] == ['notes.txt']
    for change in ({'width': 8}, {'val': 0}, {'seed': -1}):
        with pytest.raises(ValueError, match='32 pixels'):
            replace(SMALL, **change)


def test_tool_makes_the_set_once_and_refuses_another(
    small_set, tmp_path, monkeypatch, capsys
):
    # Python prepends the folder of a script to its path.
    monkeypatch.syspath_prepend(TOOLS)
    out = tmp_path / 'deep' / 'set'

    def make(*last, code=0):
        flags = ['--out', out, '--size', 48, 40, '--counts', 3, 2, *last]
        return output_of(capsys, 'make_instrument_parts', *flags, code=code)

    assert 'made' in make(2)
    assert read_files(out) == read_files(small_set)
    assert 'already there' in make(2)
    assert 'test 2 instead of 1' in make(1, code=1)
    assert 'seed 0 instead of 3' in make(2, '--seed', 3, code=1)
    assert read_files(out) == read_files(small_set)


def test_nothing_of_other_packages_is_printed(tmp_path):
    """The forks print on import."""
    tool = TOOLS / 'make_instrument_parts.py'
    flags = ['--out', 'set', '--size', 48, 40, '--counts', 1, 1, 1]
    said = output_of_python(tmp_path, tool, *flags)
    assert 'made' in said
    assert 'import' not in said
