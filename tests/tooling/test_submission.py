"""Submissions: from a config to an archive for the server."""

import tarfile
import zipfile

import numpy as np
import pytest
import torch
from mmseg.registry import DATASETS
from PIL import Image

from mmseg_margin.errors import SettingError
from mmseg_margin.evaluation import use_tta
from mmseg_margin.tooling.submission import (
    FORMATS,
    SubmissionMetric,
    find_format,
    label_ids,
    make_submission,
    use_test_images,
)
from tests.evaluation.fakes import (
    LABEL_IDS,
    TEST_SIZES,
    load,
    predict,
    read_train_ids,
    write_checkpoint,
    write_config,
)
from tests.layouts import make_ade20k, make_voc2012, write_image

CITYSCAPES = 'CityscapesDataset'


def classes_of(name):
    return DATASETS.get(name).METAINFO['classes']


def submit(cfg, out, tta=None):
    """As tools/test.py does it."""
    use_test_images(cfg)
    if tta:
        use_tta(cfg, tta)
    make_submission(cfg, str(out))


@pytest.mark.parametrize('tta', [None, 'ms-flip'])
def test_the_archive_contains_the_predictions(
    cityscapes, checkpoint, config, tmp_path, capsys, tta
):
    """Also with the views of the config."""
    out = tmp_path / 'out'
    submit(load(config, checkpoint), out, tta)
    images = sorted(cityscapes.glob('leftImg8bit/test/*/*.png'))
    assert len(images) == len(TEST_SIZES)
    with zipfile.ZipFile(out / 'cityscapes.zip') as archive:
        assert archive.namelist() == [image.name for image in images]
        archive.extractall(tmp_path / 'unpacked')
    expected = predict(config, checkpoint, images, views=tta is not None)
    for image, prediction in zip(images, expected, strict=True):
        found = read_train_ids(tmp_path / 'unpacked' / image.name)
        np.testing.assert_array_equal(found, prediction)
        assert len(np.unique(found)) > 3
    names = {path.name for path in out.iterdir()}
    assert names == {'cityscapes.zip', *(image.name for image in images)}
    said = capsys.readouterr().out
    assert '5 label images of 1,525' in said
    assert 'Upload' not in said


def test_ids_are_looked_up_by_name(
    cityscapes, checkpoint, config, tmp_path, capsys, monkeypatch
):
    """With the classes of the data set in another order."""
    # Frozen, and shared by all tests.
    monkeypatch.setitem(vars(FORMATS[CITYSCAPES]), 'images', len(TEST_SIZES))
    cfg = load(config, checkpoint)
    classes = classes_of(CITYSCAPES)[::-1]
    cfg.test_dataloader.dataset.metainfo = {'classes': classes}
    submit(cfg, tmp_path / 'out')
    assert 'Upload' in capsys.readouterr().out
    images = sorted(cityscapes.glob('leftImg8bit/test/*/*.png'))
    expected = predict(config, checkpoint, images)
    for image, prediction in zip(images, expected, strict=True):
        found = read_train_ids(tmp_path / 'out' / image.name)
        np.testing.assert_array_equal(found, 18 - prediction)


def submit_other(tmp_path, root, base, num_classes, images, classes=None):
    """Make a submission into ``out``; the predictions of these images."""
    config = write_config(tmp_path / 'config.py', root, base, num_classes)
    checkpoint = write_checkpoint(config, tmp_path / 'model.pth')
    for i, image in enumerate(images):
        write_image(image, (50 + i, 33), i)
    cfg = load(config, checkpoint)
    if classes:
        cfg.test_dataloader.dataset.metainfo = {'classes': classes}
    submit(cfg, tmp_path / 'out')
    return predict(config, checkpoint, images)


def test_ade20k(tmp_path):
    root = make_ade20k(tmp_path / 'ade/ADEChallengeData2016')
    folder = tmp_path / 'ade/release_test/testing'
    images = [folder / f'ADE_test_{i:08d}.jpg' for i in (1, 2)]
    expected = submit_other(tmp_path, root, 'ade20k', 150, images)
    with zipfile.ZipFile(tmp_path / 'out/ade20k.zip') as archive:
        assert archive.namelist() == [f'{image.stem}.png' for image in images]
    for image, prediction in zip(images, expected, strict=True):
        label = np.array(Image.open(tmp_path / f'out/{image.stem}.png'))
        np.testing.assert_array_equal(label, prediction + 1)
        assert label.max() > 20


def test_voc2012(tmp_path):
    """The palette is that of the server, whatever the order of classes."""
    root = make_voc2012(tmp_path / 'VOC2012')
    (root / 'ImageSets/Segmentation/test.txt').write_text('2008_000006\n')
    image = root / 'JPEGImages/2008_000006.jpg'
    classes = classes_of('PascalVOCDataset')[::-1]
    (prediction,) = submit_other(
        tmp_path, root, 'pascal_voc12', 21, [image], classes
    )
    with tarfile.open(tmp_path / 'out/results.tgz') as archive:
        archive.extractall(tmp_path / 'unpacked', filter='data')
    folder = 'unpacked/results/VOC2012/Segmentation/comp6_test_cls'
    label = Image.open(tmp_path / folder / '2008_000006.png')
    assert (label.mode, label.format) == ('P', 'PNG')
    np.testing.assert_array_equal(np.array(label), 20 - prediction)
    # Class 1 of VOC, the aeroplane, is drawn in dark red.
    assert label.getpalette()[3:6] == [128, 0, 0]


def test_other_files_are_left_unchanged(config, checkpoint, tmp_path):
    path = tmp_path / 'out' / 'notes.txt'
    path.parent.mkdir()
    path.write_text('mine')
    with pytest.raises(SettingError, match='empty'):
        submit(load(config, checkpoint), tmp_path / 'out')
    assert [*path.parent.iterdir()] == [path]


def write_twice(folder):
    metric = SubmissionMetric(str(folder), CITYSCAPES)
    metric.compute_metrics([folder / '1.png', folder / '1.png'])


def write_larger(folder):
    write_image(folder / '1.png', (9, 5), 0)
    metric = SubmissionMetric(str(folder), CITYSCAPES)
    metric.dataset_meta = {'classes': classes_of(CITYSCAPES)}
    prediction = {'data': torch.zeros(1, 5, 8, dtype=torch.int64)}
    sample = {'img_path': folder / '1.png', 'pred_sem_seg': prediction}
    metric.process({}, [sample])


@pytest.mark.parametrize(
    ('mistake', 'key_word'),
    [
        (lambda _: find_format('BDD100KDataset'), 'BDD100K'),
        (lambda _: label_ids(CITYSCAPES, ['road', 'tram']), 'tram'),
        (write_twice, 'same name'),
        (write_larger, 'size'),
    ],
)
def test_what_a_server_would_refuse(tmp_path, mistake, key_word):
    with pytest.raises(SettingError, match=key_word):
        mistake(tmp_path)


def test_ids_of_the_servers():
    for name, form in FORMATS.items():
        assert tuple(label_ids(name, classes_of(name))) == form.ids
    assert FORMATS[CITYSCAPES].ids == LABEL_IDS
