"""Submissions: from a config to an archive, and the folder in between."""

import os
import shutil
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from mmengine.config import ConfigDict
from PIL import Image

from mmseg_margin.evaluation import use_tta
from mmseg_margin.tooling import submission
from mmseg_margin.tooling.submission import (
    FORMATS,
    SubmissionError,
    SubmissionFolder,
    find_format,
    make_submission,
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
from tests.processes import FORK, run_ranks, wait_for

IDENTITY = {'dataset': 'CityscapesDataset', 'checkpoint': 'a'}
CITYSCAPES = find_format({'type': 'CityscapesDataset'})


def make_folder(root) -> SubmissionFolder:
    return SubmissionFolder(root, CITYSCAPES)


def snapshot(root) -> dict:
    """Content and time of every file below a folder."""
    return {
        path: (path.read_bytes(), path.stat().st_mtime_ns)
        for path in root.rglob('*')
        if path.is_file() and path.suffix != '.lock'
    }


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
    images = sorted(cityscapes.glob('leftImg8bit/test/*/*.png'))
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
    before = snapshot(out)
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
    assert snapshot(out) == before


def test_a_complete_submission_is_to_be_uploaded(
    checkpoint, config, out, capsys, monkeypatch
):
    # Frozen, and shared by all tests.
    monkeypatch.setitem(vars(CITYSCAPES), 'images', len(TEST_SIZES))
    (out / 'notes.png').write_text('mine')
    make_submission(load(config, checkpoint), str(out))
    assert f'Upload {out / "cityscapes.zip"}' in capsys.readouterr().out
    with zipfile.ZipFile(out / 'cityscapes.zip') as archive:
        assert len(archive.namelist()) == len(TEST_SIZES)
    next(out.glob('*_leftImg8bit.png')).write_bytes(b'damaged')
    with pytest.raises(SubmissionError, match='is not valid'):
        make_submission(load(config, checkpoint), str(out))


def test_missing_test_images(cityscapes, checkpoint, tmp_path):
    root = shutil.copytree(cityscapes, tmp_path / 'cityscapes')
    config = write_config(tmp_path / 'config.py', root)
    for folder, said in (
        ('test/bonn', 'has 0 images'),
        ('test', 'download the test images'),
    ):
        shutil.rmtree(root / 'leftImg8bit' / folder)
        with pytest.raises(SubmissionError, match=said):
            make_submission(load(config, checkpoint), str(tmp_path / 'out'))
    assert not (tmp_path / 'out').exists()


def refusal(cfg, out) -> str:
    with pytest.raises(SubmissionError) as caught:
        make_submission(cfg, out)
    return str(caught.value)


def test_every_rank_gives_the_reason(config, checkpoint, tmp_path):
    out = tmp_path / 'out'
    out.mkdir()
    (out / 'notes.txt').write_text('mine')
    cfg = load(config, checkpoint)
    said = run_ranks(2, refusal, tmp_path / 'ranks', cfg, str(out))
    assert said[0] == said[1]
    assert 'nothing was touched' in said[0]


def submit(tmp_path, root, base, num_classes, images):
    """Make a submission into ``out``; the predictions of these images."""
    config = write_config(tmp_path / 'config.py', root, base, num_classes)
    checkpoint = write_checkpoint(config, tmp_path / 'model.pth')
    for i, image in enumerate(images):
        write_image(image, (50 + i, 33), i)
    make_submission(load(config, checkpoint), str(tmp_path / 'out'))
    return predict(config, checkpoint, images)


def test_ade20k(tmp_path):
    root = make_ade20k(tmp_path / 'ade/ADEChallengeData2016')
    folder = tmp_path / 'ade/release_test/testing'
    images = [folder / f'ADE_test_{i:08d}.jpg' for i in (1, 2)]
    expected = submit(tmp_path, root, 'ade20k', 150, images)
    with zipfile.ZipFile(tmp_path / 'out/ade20k.zip') as archive:
        assert archive.namelist() == [f'{image.stem}.png' for image in images]
    for image, prediction in zip(images, expected, strict=True):
        label = np.array(Image.open(tmp_path / f'out/{image.stem}.png'))
        np.testing.assert_array_equal(label, prediction + 1)
        assert label.max() > 20


def test_voc2012(tmp_path):
    root = make_voc2012(tmp_path / 'VOC2012')
    (root / 'ImageSets/Segmentation/test.txt').write_text('2008_000006\n')
    image = root / 'JPEGImages/2008_000006.jpg'
    (prediction,) = submit(tmp_path, root, 'pascal_voc12', 21, [image])
    with tarfile.open(tmp_path / 'out/results.tgz') as archive:
        archive.extractall(tmp_path / 'unpacked', filter='data')
    folder = 'unpacked/results/VOC2012/Segmentation/comp6_test_cls'
    label = Image.open(tmp_path / folder / '2008_000006.png')
    assert (label.mode, label.format) == ('P', 'PNG')
    np.testing.assert_array_equal(np.array(label), prediction)
    # Class 1 of VOC is drawn in dark red.
    assert label.getpalette()[3:6] == [128, 0, 0]


def test_classes_left_out_by_the_config(checkpoint, config, tmp_path):
    cfg = load(config, checkpoint)
    cfg.test_dataloader.dataset.metainfo = {'classes': ('road', 'car')}
    with pytest.raises(SubmissionError, match='its 19 classes'):
        make_submission(cfg, str(tmp_path / 'out'))


@pytest.mark.parametrize(
    'name', ['out/notes.txt', 'out/sub/ulm_0_leftImg8bit.png', 'out']
)
def test_other_files_are_refused_and_left_unchanged(tmp_path, name):
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text('mine')
    before = snapshot(tmp_path)
    with pytest.raises(SubmissionError, match='nothing was touched'):
        make_folder(tmp_path / 'out').claim(IDENTITY)
    assert snapshot(tmp_path) == before


def test_a_folder_is_continued_with_the_same_checkpoint_only(tmp_path):
    """Also one that a kill has left with a draft of its marker."""
    (tmp_path / '.submission.json.0.tmp').write_text('{"datas')
    make_folder(tmp_path).claim(IDENTITY)
    before = snapshot(tmp_path)
    make_folder(tmp_path).claim(IDENTITY)
    with pytest.raises(SubmissionError, match=r'different: checkpoint\)'):
        make_folder(tmp_path).claim({**IDENTITY, 'checkpoint': 'b'})
    assert snapshot(tmp_path) == before


def claim_and_hold(root, number, barrier, results) -> None:
    """The body of a process; the lock is kept until all have tried."""
    submission.LOCK_SECONDS = 0.0
    own = make_folder(root)
    barrier.wait()
    try:
        own.claim({**IDENTITY, 'checkpoint': str(number)})
        results.put(number)
    except SubmissionError:
        pass
    barrier.wait()


def test_of_simultaneous_claims_exactly_one_wins(tmp_path):
    for attempt in range(int(os.environ.get('MMSEG_MARGIN_CLAIMS', 3))):
        barrier, results = FORK.Barrier(4), FORK.Queue()
        root = tmp_path / str(attempt)
        processes = [
            FORK.Process(
                target=claim_and_hold, args=(root, number, barrier, results)
            )
            for number in range(4)
        ]
        for process in processes:
            process.start()
        assert wait_for(processes, 60) == [0] * 4
        winner = results.get(timeout=5)
        assert results.empty()
        # What is left belongs to the winner.
        make_folder(root).claim({**IDENTITY, 'checkpoint': str(winner)})


@pytest.fixture
def image(tmp_path) -> str:
    path = tmp_path / 'ulm_0_leftImg8bit.png'
    Image.new('RGB', (9, 5)).save(path)
    return str(path)


def test_a_kill_while_writing_leaves_no_label_image(
    tmp_path, image, monkeypatch
):
    folder = make_folder(tmp_path / 'out')

    def die(self, path, **kwargs):
        path.write_bytes(b'half')
        raise KeyboardInterrupt

    monkeypatch.setattr(Image.Image, 'save', die)
    with pytest.raises(KeyboardInterrupt):
        folder.write(image, np.zeros((5, 9), int), [])
    assert folder.missing([image]) == [0]
    monkeypatch.undo()
    folder.write(image, np.zeros((5, 9), int), [])
    assert folder.missing([image]) == []
    assert not list((tmp_path / 'out').rglob('*.tmp'))


@pytest.mark.parametrize(
    'content',
    [np.full((5, 8), 7), np.full((5, 9), 0), np.full((5, 9, 3), 7), None],
    ids=['size', 'value', 'colours', 'cut off'],
)
def test_a_label_image_the_server_would_refuse(tmp_path, image, content):
    folder = make_folder(tmp_path / 'out')
    folder.write(image, np.resize(range(19), (5, 9)), [])
    folder.check(image)
    path = folder.label_path(image)
    if content is None:
        path.write_bytes(path.read_bytes()[:60])
    else:
        Image.fromarray(content.astype(np.uint8)).save(path)
    message = rf'{path.name} is not valid.*\(5, 9\).*Delete it'
    with pytest.raises(SubmissionError, match=message):
        folder.check(image)


def test_no_name_leads_out_of_the_archive(tmp_path):
    with pytest.raises(SubmissionError, match='backslash'):
        make_folder(tmp_path).pack([r'ulm\..\..\evil_leftImg8bit.png'])
    assert list(tmp_path.iterdir()) == []


def test_ids_of_the_servers():
    """Distinct bytes, and for Cityscapes those of cityscapesscripts."""
    for form in FORMATS:
        assert len(set(form.label_ids)) == len(form.label_ids)
        assert max(form.label_ids) < 256
    assert CITYSCAPES.label_ids == LABEL_IDS
    labels = pytest.importorskip('cityscapesscripts.helpers.labels')
    for train_id, label_id in enumerate(LABEL_IDS):
        assert labels.trainId2label[train_id].id == label_id


CITY, VOC = 'leftImg8bit', 'ImageSets/Segmentation'


@pytest.mark.parametrize(
    ('name', 'given', 'used'),
    [
        ('CityscapesDataset', f'{CITY}/val', f'{CITY}/test'),
        ('CityscapesDataset', f'{CITY}/train/', f'{CITY}/test'),
        ('CityscapesDataset', f'{CITY}/test', f'{CITY}/test'),
        ('CityscapesDataset', f'{CITY}/demoVideo', f'{CITY}/demoVideo'),
        ('PascalVOCDataset', f'{VOC}/val.txt', f'{VOC}/test.txt'),
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


def test_a_data_set_without_a_server():
    with pytest.raises(SubmissionError, match='no server for BDD100KDataset'):
        find_format({'type': 'mmseg.BDD100KDataset'})
