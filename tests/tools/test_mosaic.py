"""tools/mosaic.py: pictures of the test split, and of images of one's own."""

import runpy
from pathlib import Path

import pytest
from PIL import Image

from tests.evaluation.fakes import (
    make_benchmark,
    write_checkpoint,
    write_config,
)

MAIN = runpy.run_path(str(Path(__file__).parents[2] / 'tools' / 'mosaic.py'))[
    'main'
]


@pytest.fixture(scope='module')
def world(tmp_path_factory):
    """A data set, its config and an untrained model."""
    folder = tmp_path_factory.mktemp('world')
    root = make_benchmark(folder / 'cityscapes', [(61, 33)] * 2)
    config = write_config(folder / 'config.py', root)
    return root, config, write_checkpoint(config, folder / 'model.pth')


def columns(path):
    """How many images stand side by side, by the width of the picture."""
    with Image.open(path) as picture:
        return round(picture.width / 312)


def test_the_test_split_with_its_labels(world, tmp_path, capsys):
    out = tmp_path / 'new folder' / 'mosaic.png'
    MAIN([*map(str, world[1:]), '--out', str(out), '--images', '2'])
    assert columns(out) == 3
    assert f'The picture is {out}' in capsys.readouterr().out


def test_images_of_ones_own(world, tmp_path):
    root, config, checkpoint = world
    folder = next(root.glob('leftImg8bit/test/*'))
    image = next(folder.glob('*.png'))
    out = tmp_path / 'mosaic.png'
    options = ['--cfg-options', 'test_dataloader.dataset.data_root=nowhere']
    inputs = ['--input', str(image), str(folder), '--out', str(out)]
    MAIN([str(config), str(checkpoint), *inputs, *options])
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
    with pytest.raises(SystemExit):
        MAIN([*map(str, world[1:]), *arguments])
    assert f'error: {said}' in capsys.readouterr().err
