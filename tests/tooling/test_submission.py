"""``make_submission`` from a config to an archive, with a real Runner."""

import shutil
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mmseg_margin.evaluation import use_tta
from mmseg_margin.tooling.submission import (
    SubmissionError,
    find_format,
    make_submission,
)
from tests.evaluation.fakes import (
    TEST_SIZES,
    load,
    predict,
    read_train_ids,
    write_checkpoint,
    write_config,
)
from tests.layouts import make_ade20k, make_voc2012, write_image


def unlabelled(root: Path) -> list[Path]:
    return sorted(root.glob('leftImg8bit/test/*/*.png'))


@pytest.fixture(scope='module')
def finished(cityscapes, checkpoint, tmp_path_factory) -> Path:
    """A complete submission; not to be written to."""
    folder = tmp_path_factory.mktemp('finished')
    config = write_config(folder / 'config.py', cityscapes)
    make_submission(load(config, checkpoint), str(folder / 'out'))
    return folder / 'out'


@pytest.fixture
def out(finished, tmp_path) -> Path:
    """A copy of a complete submission."""
    return shutil.copytree(finished, tmp_path / 'out')


@pytest.mark.parametrize('mode', [None, 'ms-flip'])
def test_the_archive_contains_the_predictions(
    cityscapes, checkpoint, config, tmp_path, capsys, mode
):
    out = tmp_path / 'out'
    cfg = load(config, checkpoint)
    if mode:
        use_tta(cfg, mode)
    make_submission(cfg, str(out))
    images = unlabelled(cityscapes)
    assert len(images) == len(TEST_SIZES)
    with zipfile.ZipFile(out / 'cityscapes.zip') as archive:
        assert archive.namelist() == [image.name for image in images]
        archive.extractall(tmp_path / 'unpacked')
    expected = predict(config, checkpoint, images, views=mode is not None)
    for image, prediction in zip(images, expected, strict=True):
        found = read_train_ids(tmp_path / 'unpacked' / image.name)
        np.testing.assert_array_equal(found, prediction)
        assert len(np.unique(found)) > 3
    assert {path.name for path in out.iterdir()} == {
        '.submission.json.lock',
        'cityscapes.zip',
        'submission.json',
        *(image.name for image in images),
    }
    said = capsys.readouterr().out
    assert '5 label images (5 new)' in said
    assert 'cityscapes.zip' in said
    assert 'has 1,525 images, not 5' in said
    assert 'Upload' not in said


def test_another_run_does_not_go_into_the_same_folder(
    cityscapes, checkpoint, config, out, tmp_path
):
    before = [path.read_bytes() for path in sorted(out.iterdir())]
    flipped, other_model = (load(config, checkpoint) for _ in range(2))
    use_tta(flipped, 'flip')
    other_model.model.decode_head.align_corners = True
    root = shutil.copytree(cityscapes, tmp_path / 'copy')
    other_images = write_config(tmp_path / 'other.py', root)
    for other, difference in (
        (flipped, 'pipeline'),
        (other_model, 'model'),
        (load(other_images, checkpoint), 'images'),
    ):
        with pytest.raises(SubmissionError, match=f'different: {difference}'):
            make_submission(other, str(out))
    assert [path.read_bytes() for path in sorted(out.iterdir())] == before


def test_a_complete_submission_is_to_be_uploaded(
    checkpoint, config, out, capsys, monkeypatch
):
    # Frozen, and shared by all tests.
    form = find_format({'type': 'CityscapesDataset'})
    monkeypatch.setitem(vars(form), 'images', len(TEST_SIZES))
    (out / 'notes.png').write_text('mine')
    make_submission(load(config, checkpoint), str(out))
    assert f'Upload {out / "cityscapes.zip"}' in capsys.readouterr().out
    with zipfile.ZipFile(out / 'cityscapes.zip') as archive:
        assert len(archive.namelist()) == len(TEST_SIZES)


def test_a_damaged_label_image_is_found(checkpoint, config, out):
    damaged = next(out.glob('*.png'))
    Image.new('L', (64, 32)).save(damaged)
    with pytest.raises(SubmissionError, match=f'{damaged.name} is not valid'):
        make_submission(load(config, checkpoint), str(out))


def test_missing_test_images(cityscapes, checkpoint, tmp_path):
    root = tmp_path / 'cityscapes'
    shutil.copytree(cityscapes, root)
    config = write_config(tmp_path / 'config.py', root)
    shutil.rmtree(root / 'leftImg8bit/test/bonn')
    with pytest.raises(SubmissionError, match='has 0 images'):
        make_submission(load(config, checkpoint), str(tmp_path / 'out'))
    shutil.rmtree(root / 'leftImg8bit/test')
    with pytest.raises(SubmissionError, match='download the test images'):
        make_submission(load(config, checkpoint), str(tmp_path / 'out'))
    assert not (tmp_path / 'out').exists()


def test_ade20k(tmp_path):
    root = make_ade20k(tmp_path / 'ade/ADEChallengeData2016')
    images = [
        tmp_path / f'ade/release_test/testing/ADE_test_{i:08d}.jpg'
        for i in (1, 2)
    ]
    for i, image in enumerate(images):
        write_image(image, (50 + i, 33), i)
    config = write_config(tmp_path / 'config.py', root, 'ade20k', 150)
    checkpoint = write_checkpoint(config, tmp_path / 'model.pth')
    make_submission(load(config, checkpoint), str(tmp_path / 'out'))
    with zipfile.ZipFile(tmp_path / 'out/ade20k.zip') as archive:
        assert archive.namelist() == [f'{image.stem}.png' for image in images]
    expected = predict(config, checkpoint, images)
    for image, prediction in zip(images, expected, strict=True):
        label = np.array(Image.open(tmp_path / f'out/{image.stem}.png'))
        np.testing.assert_array_equal(label, prediction + 1)
        assert label.max() > 20


def test_voc2012(tmp_path):
    root = make_voc2012(tmp_path / 'VOC2012')
    (root / 'ImageSets/Segmentation/test.txt').write_text('2008_000006\n')
    image = root / 'JPEGImages/2008_000006.jpg'
    write_image(image, (41, 30), 3)
    config = write_config(tmp_path / 'config.py', root, 'pascal_voc12', 21)
    checkpoint = write_checkpoint(config, tmp_path / 'model.pth')
    make_submission(load(config, checkpoint), str(tmp_path / 'out'))
    with tarfile.open(tmp_path / 'out/results.tgz') as archive:
        archive.extractall(tmp_path / 'unpacked', filter='data')
    folder = 'unpacked/results/VOC2012/Segmentation/comp6_test_cls'
    label = Image.open(tmp_path / folder / '2008_000006.png')
    assert (label.mode, label.format) == ('P', 'PNG')
    (prediction,) = predict(config, checkpoint, [image])
    np.testing.assert_array_equal(np.array(label), prediction)
    # Class 1 of VOC is drawn in dark red.
    assert label.getpalette()[3:6] == [128, 0, 0]


def test_classes_left_out_by_the_config(checkpoint, config, tmp_path):
    cfg = load(config, checkpoint)
    cfg.test_dataloader.dataset.metainfo = {'classes': ('road', 'car')}
    with pytest.raises(SubmissionError, match='its 19 classes'):
        make_submission(cfg, str(tmp_path / 'out'))
