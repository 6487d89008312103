"""The embedded data set: its pictures and its files."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from mmseg.registry import DATASETS
from PIL import Image

from mmseg_margin.errors import DataSetError
from tests.commands import TOOLS, call
from tools.instrument_synthesis import (
    CLASSES,
    PALETTE,
    SPLITS,
    Settings,
    class_shares,
    render,
    sample_scene,
    write_dataset,
)

SMALL = Settings(width=48, height=40, train=3, val=2, test=2)
PAPER_SHARES = np.array([0.912, 0.049, 0.014, 0.016, 0.008])


@pytest.fixture(scope='module')
def small_set(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp('parts') / 'set'
    assert write_dataset(root, SMALL)
    return root


def contents(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob('*'))
        if path.is_file()
    }


def test_pictures_are_a_function_of_seed_split_and_number(small_set, tmp_path):
    small = contents(small_set)
    write_dataset(tmp_path / 'again', SMALL)
    assert contents(tmp_path / 'again') == small
    write_dataset(tmp_path / 'other', replace(SMALL, seed=1))
    other = contents(tmp_path / 'other')
    assert other.keys() == small.keys()
    first = 'images/train/00000.png'
    assert other[first] != small[first]
    write_dataset(tmp_path / 'more', replace(SMALL, train=4, val=3))
    more = contents(tmp_path / 'more')
    for name, data in small.items():
        assert name == 'settings.json' or more[name] == data
    images = [data for name, data in small.items() if name[0] == 'i']
    assert len({*images}) == SMALL.train + SMALL.val + SMALL.test


def test_the_global_random_state_is_left_alone():
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    render(sample_scene(0, 'train', 0), 48, 40)
    assert (np.random.get_state()[1] == before).all()  # noqa: NPY002


@pytest.mark.parametrize('split', SPLITS)
def test_class_shares_are_those_of_the_paper(split):
    counts = np.zeros(len(CLASSES))
    for index in range(getattr(Settings(), split)):
        _, label = render(sample_scene(0, split, index), 72, 60)
        counts += np.bincount(label.ravel(), minlength=len(CLASSES))
    np.testing.assert_allclose(counts / counts.sum(), PAPER_SHARES, rtol=0.2)


def test_class_shares_counts_pixels(small_set):
    labels = [
        np.asarray(Image.open(path))
        for path in small_set.glob('labels/train/*.png')
    ]
    expected = [np.mean(np.stack(labels) == k) for k in range(5)]
    np.testing.assert_allclose(class_shares(small_set, 'train'), expected)


def test_labels_are_palette_pngs(small_set):
    paths = sorted(small_set.glob('labels/*/*.png'))
    assert len(paths) == 7
    for path in paths:
        with Image.open(path) as label:
            assert (label.mode, label.size) == ('P', (48, 40))
            assert set(np.unique(label)) <= set(range(5))
            flat = label.getpalette()[: 3 * len(PALETTE)]
            assert flat == [v for colour in PALETTE for v in colour]


@pytest.mark.parametrize('image_format', ['png', 'jpg'])
def test_dataset_loads_through_mmseg(tmp_path, image_format):
    write_dataset(tmp_path, replace(SMALL, image_format=image_format))
    dataset = DATASETS.build(
        dict(
            type='InstrumentPartsDataset',
            data_root=str(tmp_path),
            data_prefix=dict(
                img_path='images/train', seg_map_path='labels/train'
            ),
            img_suffix=f'.{image_format}',
            pipeline=[
                dict(type='LoadImageFromFile'),
                dict(type='mmseg.LoadAnnotations'),
                dict(type='mmseg.PackSegInputs'),
            ],
        )
    )
    assert dataset.metainfo['classes'] == CLASSES
    assert len(dataset.metainfo['palette']) == len(CLASSES)
    assert len(dataset) == SMALL.train
    sample = dataset[0]
    assert sample['inputs'].shape == (3, 40, 48)
    stored = np.asarray(Image.open(tmp_path / 'labels/train/00000.png'))
    loaded = sample['data_samples'].gt_sem_seg.data[0].numpy()
    np.testing.assert_array_equal(loaded, stored)


def test_a_foreign_folder_is_left_alone(tmp_path):
    (tmp_path / 'notes.txt').write_text('mine')
    with pytest.raises(DataSetError, match='not made by this generator'):
        write_dataset(tmp_path, SMALL)
    assert [p.name for p in tmp_path.iterdir()] == ['notes.txt']


def test_an_interrupted_run_leaves_nothing(tmp_path):
    def interrupt(number: int) -> None:
        if number == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_dataset(tmp_path / 'set', SMALL, interrupt)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ('change', 'message'),
    [
        ({'width': 8}, 'size 8 x 40'),
        ({'val': 0}, 'counts 3 0 2'),
        ({'seed': -1}, 'seed -1'),
        ({'image_format': 'bmp'}, "image_format 'bmp'"),
    ],
)
def test_bad_settings_are_named(change, message):
    with pytest.raises(ValueError, match=message):
        replace(SMALL, **change)


def test_tool_makes_the_set_once_and_refuses_another(
    small_set, tmp_path, monkeypatch, capsys
):
    # As Python does for a script.
    monkeypatch.syspath_prepend(TOOLS)
    out = tmp_path / 'deep' / 'set'

    def make(*last):
        flags = ['--out', out, '--size', 48, 40, '--counts', 3, 2, *last]
        return call(capsys, 'make_instrument_parts', *flags)

    code, said = make(2)
    assert code == 0
    assert 'image 7/7, 0:00:00 left' in said
    assert 'claspers' in said
    assert contents(out) == contents(small_set)
    before = {path: path.stat().st_mtime_ns for path in out.rglob('*')}
    code, said = make(2)
    assert (code, 'already there' in said) == (0, True)
    for last, difference in (
        ([1], 'test 2 instead of 1'),
        ([2, '--seed', 3], 'seed 0 instead of 3'),
    ):
        code, said = make(*last)
        assert (code, difference in said) == (1, True)
    assert {path: path.stat().st_mtime_ns for path in before} == before
