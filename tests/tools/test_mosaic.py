"""tools/mosaic.py: pictures of the test split, and of images of one's own."""

import shutil

import pytest
from PIL import Image

from tests.commands import call


def columns(path):
    """How many images stand side by side, by the width of the picture."""
    with Image.open(path) as picture:
        return round(picture.width / 312)


def test_the_test_split_with_its_labels(world, tmp_path, capsys):
    out = tmp_path / 'new folder' / 'mosaic.png'
    code, said = call(
        capsys, 'mosaic', *world[1:], '--out', out, '--images', 2
    )
    assert (code, columns(out)) == (0, 3)
    assert f'The picture is {out}' in said


def test_images_of_ones_own(world, tmp_path, capsys):
    image = next(world[0].glob('leftImg8bit/test/*/*.png'))
    for name in ('a.png', 'b.PNG', 'notes.txt'):
        shutil.copy(image, tmp_path / name)
    out = tmp_path / 'out' / 'mosaic.png'
    options = ['--cfg-options', 'test_dataloader.dataset.data_root=nowhere']
    inputs = ['--input', image, tmp_path, '--out', out]
    assert call(capsys, 'mosaic', *world[1:], *inputs, *options)[0] == 0
    assert columns(out) == 2


@pytest.mark.parametrize(
    ('arguments', 'said'),
    [
        (['--images', '0'], '--images must be 1 or more, got 0'),
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
    code, shown = call(capsys, 'mosaic', *world[1:], *arguments)
    assert code == 1
    assert f'error: {said}' in shown
