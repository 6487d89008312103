"""The embedded data set: its images and its files."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mmseg_margin.errors import DataSetError
from tests.commands import TOOLS, output_of
from tools.instrument_synthesis import Settings, draw_image, write_dataset

SMALL = Settings(width=48, height=40, train=3, val=2, test=2)
PAPER_FRACTIONS = np.array([0.912, 0.049, 0.014, 0.016, 0.008])


def read_files(root: Path) -> dict[str, bytes]:
    files = (path for path in root.rglob('*') if path.is_file())
    return {str(x.relative_to(root)): x.read_bytes() for x in files}


def test_images_depend_on_seed_split_and_index_alone(tmp_path):
    changes = {'small': {}, 'other': {'seed': 1}, 'more': {'train': 4}}
    for name, change in changes.items():
        write_dataset(tmp_path / name, replace(SMALL, **change))
    small, other, more = (read_files(tmp_path / name) for name in changes)
    images = [name for name in small if name.startswith('images/')]
    assert len({small[name] for name in images}) == 7
    assert all(other[name] != small[name] for name in images)
    assert all(more[name] == small[name] for name in images)


def test_classes_are_as_frequent_as_in_the_paper():
    labels = [draw_image(0, 'val', i, 72, 60)[1] for i in range(40)]
    fractions = [np.mean(np.stack(labels) == k) for k in range(5)]
    np.testing.assert_allclose(fractions, PAPER_FRACTIONS, rtol=0.2)


def test_the_tool_makes_the_set_once_and_refuses_others(
    tmp_path, monkeypatch, capsys
):
    # Python prepends the folder of a script to its path.
    monkeypatch.syspath_prepend(TOOLS)
    out = tmp_path / 'deep' / 'set'

    def make(*last, code=0):
        flags = ['--out', out, '--size', 48, 40, '--counts', 3, 2, *last]
        return output_of(capsys, 'make_instrument_parts', *flags, code=code)

    assert 'made' in make(2)
    assert 'already there' in make(2)
    assert 'test 2 instead of 1' in make(1, code=1)
    (tmp_path / 'notes.txt').write_text('mine')
    with pytest.raises(DataSetError, match='generator'):
        write_dataset(tmp_path, SMALL)
