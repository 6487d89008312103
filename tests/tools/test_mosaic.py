"""tools/mosaic.py: pictures of the test split, and own images."""

import shutil

import pytest
from PIL import Image

from tests.commands import output_of


def columns(path):
    """Number of images in a line, from the width of the picture."""
    with Image.open(path) as picture:
        return round(picture.width / 312)


def test_several_checkpoints_beside_the_labels(world, tmp_path, capsys):
    _, config, checkpoint = world
    out = tmp_path / 'new folder' / 'mosaic.png'
    for others in ([], [checkpoint]):
        flags = ['--out', out, '--images', 2]
        said = output_of(capsys, 'mosaic', config, checkpoint, *others, *flags)
        assert f'The picture is {out}' in said
        assert columns(out) == 3 + len(others)


def test_images_of_the_user(world, tmp_path, capsys):
    """Files and folders, of which some are drawn."""
    image = next(world[0].glob('leftImg8bit/test/*/*.png'))
    folder, out = tmp_path / 'images', tmp_path / 'mosaic.png'
    folder.mkdir()
    for name in ('1.png', '2.PNG', '3.png', 'a.txt'):
        shutil.copy(image, folder / name)
    flags = ['--input', image, folder, '--out', out, '--images', 3]
    options = ['--cfg-options', 'test_dataloader.dataset.data_root=nowhere']
    output_of(capsys, 'mosaic', *world[1:], *flags, *options)
    assert columns(out) == 2
    with Image.open(out) as picture:
        assert 0.7 < picture.width / picture.height < 1.4  # 3 rows of 2:1


@pytest.mark.parametrize(
    ('arguments', 'said'),
    [
        (['--input', 'nowhere'], 'no image nowhere'),
        (['--input', 'empty.png'], 'empty or damaged'),
        (
            ['--cfg-options', 'test_dataloader.dataset.data_root=nowhere'],
            'folder nowhere does not exist',
        ),
    ],
)
def test_mistakes(world, tmp_path, monkeypatch, capsys, arguments, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'empty.png').write_bytes(b'')
    assert said in output_of(capsys, 'mosaic', *world[1:], *arguments, code=1)
