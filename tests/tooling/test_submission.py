"""Submissions: from a config to an archive for the server."""

import tarfile
import zipfile

import numpy as np
import pytest
from mmengine.config import ConfigDict
from PIL import Image

from mmseg_margin.evaluation import use_tta
from mmseg_margin.tooling.submission import (
    FORMATS,
    SubmissionError,
    check_submission,
    find_format,
    label_path,
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

CITYSCAPES = find_format({'type': 'CityscapesDataset'})


def submit(cfg, out, tta=None):
    """As tools/test.py does it."""
    use_test_images(cfg)
    if tta:
        use_tta(cfg, tta)
    make_submission(cfg, str(out))


@pytest.mark.parametrize('tta', [None, 'ms-flip', 'own'])
def test_the_archive_contains_the_predictions(
    cityscapes, checkpoint, config, tmp_path, capsys, tta
):
    """Also with the views of a config that has none of its own."""
    out = tmp_path / 'out'
    cfg = load(config, checkpoint)
    if tta == 'ms-flip':
        cfg.test_dataloader.dataset.pipeline[1] = {
            'type': 'Resize',
            'scale_factor': 1.0,
            'keep_ratio': True,
        }
        cfg.pop('tta_pipeline')
    submit(cfg, out, tta and 'ms-flip')
    images = sorted(cityscapes.glob('leftImg8bit/test/*/*.png'))
    assert len(images) == len(TEST_SIZES)
    with zipfile.ZipFile(out / 'cityscapes.zip') as archive:
        assert archive.namelist() == [image.name for image in images]
        archive.extractall(tmp_path / 'unpacked')
    if tta != 'ms-flip':
        expected = predict(config, checkpoint, images, views=tta is not None)
        for image, prediction in zip(images, expected, strict=True):
            found = read_train_ids(tmp_path / 'unpacked' / image.name)
            np.testing.assert_array_equal(found, prediction)
            assert len(np.unique(found)) > 3
    names = {path.name for path in out.iterdir()}
    assert names == {'cityscapes.zip', *(image.name for image in images)}
    said = capsys.readouterr().out
    assert 'has 1,525 images, not 5' in said
    assert 'Upload' not in said


def test_ids_are_looked_up_by_name(
    cityscapes, checkpoint, config, tmp_path, capsys, monkeypatch
):
    """With the classes of the data set in another order."""
    # Frozen, and shared by all tests.
    monkeypatch.setitem(vars(CITYSCAPES), 'images', len(TEST_SIZES))
    classes = CITYSCAPES.metainfo['classes'][::-1]
    cfg = load(config, checkpoint)
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


@pytest.mark.parametrize('order', [1, -1])
def test_voc2012(tmp_path, order):
    """The palette is that of the server, whatever the order of classes."""
    root = make_voc2012(tmp_path / 'VOC2012')
    (root / 'ImageSets/Segmentation/test.txt').write_text('2008_000006\n')
    image = root / 'JPEGImages/2008_000006.jpg'
    classes = find_format({'type': 'PascalVOCDataset'}).metainfo['classes']
    (prediction,) = submit_other(
        tmp_path, root, 'pascal_voc12', 21, [image], classes[::order]
    )
    with tarfile.open(tmp_path / 'out/results.tgz') as archive:
        archive.extractall(tmp_path / 'unpacked', filter='data')
    folder = 'unpacked/results/VOC2012/Segmentation/comp6_test_cls'
    label = Image.open(tmp_path / folder / '2008_000006.png')
    assert (label.mode, label.format) == ('P', 'PNG')
    expected = prediction if order > 0 else 20 - prediction
    np.testing.assert_array_equal(np.array(label), expected)
    # Class 1 of VOC, the aeroplane, is drawn in dark red.
    assert label.getpalette()[3:6] == [128, 0, 0]


@pytest.mark.parametrize('name', ['out/notes.txt', 'out'])
def test_other_files_are_left_unchanged(config, checkpoint, tmp_path, name):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text('mine')
    with pytest.raises(SubmissionError, match='empty'):
        submit(load(config, checkpoint), tmp_path / 'out')
    assert path.read_text() == 'mine'
    assert path == tmp_path / 'out' or [*path.parent.iterdir()] == [path]


def refuse_label(folder, content):
    """Check a label image that the server would refuse."""
    image = folder / 'ulm_0.png'
    Image.new('RGB', (9, 5)).save(image)
    path = label_path(str(image), folder / 'out', CITYSCAPES)
    path.parent.mkdir()
    Image.fromarray(content.astype(np.uint8)).save(path)
    check_submission([str(image)], folder / 'out', CITYSCAPES)


@pytest.mark.parametrize(
    ('mistake', 'key_word'),
    [
        (lambda _: find_format({'type': 'mmseg.BDD100KDataset'}), 'BDD100K'),
        (lambda _: CITYSCAPES.label_ids(['road', 'tram']), 'tram'),
        (lambda at: refuse_label(at, np.full((5, 8), 7)), 'size'),
        (lambda at: refuse_label(at, np.zeros((5, 9))), 'values'),
        (lambda at: refuse_label(at, np.full((5, 9, 3), 7)), 'size'),
        (lambda at: check_submission([], at, CITYSCAPES), 'has 0 images'),
        (
            lambda at: check_submission(['a/1.png', '1.png'], at, CITYSCAPES),
            '1 different names',
        ),
    ],
)
def test_what_a_server_would_refuse(tmp_path, mistake, key_word):
    with pytest.raises(SubmissionError, match=key_word):
        mistake(tmp_path)


def test_ids_of_the_servers():
    """Distinct bytes, and for Cityscapes those of cityscapesscripts."""
    for form in FORMATS:
        classes = form.metainfo['classes']
        assert tuple(form.label_ids(classes)) == form.ids
        assert len(set(form.ids)) == len(set(classes)) == len(form.ids)
    assert CITYSCAPES.ids == LABEL_IDS
    labels = pytest.importorskip('cityscapesscripts.helpers.labels')
    for name in CITYSCAPES.metainfo['classes']:
        assert labels.name2label[name].id == CITYSCAPES.label_ids([name])


CITY, VOC = 'leftImg8bit', 'ImageSets/Segmentation'


@pytest.mark.parametrize(
    ('name', 'given', 'used'),
    [
        ('CityscapesDataset', f'{CITY}/val', f'{CITY}/test'),
        ('CityscapesDataset', f'{CITY}/train/', f'{CITY}/test'),
        ('CityscapesDataset', f'{CITY}/demoVideo', f'{CITY}/demoVideo'),
        ('PascalVOCDataset', f'{VOC}/trainval.txt', f'{VOC}/test.txt'),
        ('PascalVOCDataset', f'{VOC}/test.txt', f'{VOC}/test.txt'),
        ('ADE20KDataset', 'images/validation', '../release_test/testing'),
        ('ADE20KDataset', 'inside/validation', 'inside/testing'),
    ],
)
def test_a_labelled_split_becomes_the_test_split(tmp_path, name, given, used):
    (tmp_path / 'inside' / 'testing').mkdir(parents=True)
    cfg = ConfigDict(type=name, data_root=str(tmp_path), ann_file=given)
    cfg.data_prefix = {'img_path': given}
    form = find_format(cfg)
    form.use_test_split(cfg)
    assert used == (cfg.ann_file if form.is_list else cfg.data_prefix.img_path)
