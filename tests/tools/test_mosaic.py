"""tools/mosaic.py: pictures of the test split, and own images."""

import shutil
from pathlib import Path

import pytest
from PIL import Image

from mmseg_margin.tooling.mosaic import titles_of
from tests.commands import output_of


def columns(path):
    """Number of images in a line, from the width of the picture."""
    with Image.open(path) as picture:
        return round(picture.width / 312)


def test_the_test_split_with_its_labels(world, tmp_path, capsys):
    out = tmp_path / 'new folder' / 'mosaic.png'
    flags = ['--out', out, '--images', 2]
    said = output_of(capsys, 'mosaic', *world[1:], *flags)
    assert columns(out) == 3
    assert f'The picture is {out}' in said


def test_several_checkpoints_side_by_side(world, tmp_path, capsys):
    _, config, checkpoint = world
    (tmp_path / 'other').mkdir()
    other = shutil.copy(checkpoint, tmp_path / 'other')
    out = tmp_path / 'mosaic.png'
    for titles in ([], ['--titles', 'before', 'after']):
        flags = ['--out', out, '--images', 1, *titles]
        output_of(capsys, 'mosaic', config, checkpoint, other, *flags)
        assert columns(out) == 4
    assert titles_of(['a/x.pth', 'b/y.pth']) == ['x.pth', 'y.pth']
    assert titles_of(['a/x.pth', 'b/x.pth']) == ['a/x.pth', 'b/x.pth']
    flags = ['--titles', 'one']
    said = output_of(capsys, 'mosaic', config, other, other, *flags, code=2)
    assert 'one title for each checkpoint' in said


def test_images_of_the_user(world, tmp_path, monkeypatch, capsys):
    """Files and folders; they fill lines, and an earlier picture is kept."""
    monkeypatch.chdir(tmp_path)
    Path('mosaic.png').write_text('mine')
    image = next(world[0].glob('leftImg8bit/test/*/*.png'))
    Path('images').mkdir()
    for name in (*(f'{number}.png' for number in range(16)), 'b.PNG', 'a.txt'):
        shutil.copy(image, f'images/{name}')
    options = ['--cfg-options', 'test_dataloader.dataset.data_root=nowhere']
    inputs = ['--input', image, 'images', *options]
    said = output_of(capsys, 'mosaic', *world[1:], *inputs)
    assert 'The picture is mosaic_1.png' in said
    assert Path('mosaic.png').read_text() == 'mine'
    assert columns('mosaic_1.png') == 4  # 18 images of 2:1, in pairs
    with Image.open('mosaic_1.png') as picture:
        assert 0.5 < picture.width / picture.height < 2


@pytest.mark.parametrize(
    ('arguments', 'said'),
    [
        (['--input', 'nowhere'], 'There is no image nowhere'),
        (['--input', 'empty.png'], 'The image empty.png is empty or damaged'),
        (
            ['--cfg-options', 'test_dataloader.dataset.data_root=nowhere'],
            'The data set folder nowhere does not exist',
        ),
    ],
)
def test_mistakes(world, tmp_path, monkeypatch, capsys, arguments, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'empty.png').write_bytes(b'')
    shown = output_of(capsys, 'mosaic', *world[1:], *arguments, code=1)
    assert f'error: {said}' in shown
