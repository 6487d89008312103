"""The folder of a submission: formats, ownership and content of files."""

import os

import numpy as np
import pytest
from mmengine.config import ConfigDict
from PIL import Image

from mmseg_margin.tooling import submission_folder as folder_module
from mmseg_margin.tooling.submission_folder import (
    FORMATS,
    SubmissionError,
    SubmissionFolder,
    find_format,
)
from tests.evaluation.fakes import LABEL_IDS
from tests.processes import FORK, wait_for

IDENTITY = {'dataset': 'CityscapesDataset', 'checkpoint': 'a'}


def make_folder(root) -> SubmissionFolder:
    return SubmissionFolder(root, find_format({'type': 'CityscapesDataset'}))


@pytest.fixture
def image(tmp_path) -> str:
    path = tmp_path / 'ulm_0_leftImg8bit.png'
    Image.new('RGB', (9, 5)).save(path)
    return str(path)


def snapshot(root) -> dict:
    """Content and time of every file below a folder."""
    return {
        path: (path.read_bytes(), path.stat().st_mtime_ns)
        for path in root.rglob('*')
        if path.is_file() and path.suffix != '.lock'
    }


def test_a_folder_is_created_and_continued(tmp_path):
    folder = make_folder(tmp_path / 'new' / 'out')
    folder.claim(IDENTITY)
    before = snapshot(tmp_path)
    make_folder(tmp_path / 'new' / 'out').claim(IDENTITY)
    assert snapshot(tmp_path) == before


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


def test_predictions_of_two_checkpoints_are_not_mixed(tmp_path):
    make_folder(tmp_path).claim(IDENTITY)
    with pytest.raises(SubmissionError, match=r'different: checkpoint\)'):
        make_folder(tmp_path).claim({**IDENTITY, 'checkpoint': 'b'})


def claim_and_hold(root, number, barrier, results) -> None:
    """The body of a process; the lock is kept until all have tried."""
    folder_module.LOCK_SECONDS = 0.0
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


def test_a_kill_while_claiming_does_not_lock_the_folder(tmp_path):
    (tmp_path / '.submission.json.0.tmp').write_text('{"datas')
    make_folder(tmp_path).claim(IDENTITY)


def test_a_kill_while_writing_leaves_no_label_image(
    tmp_path, image, monkeypatch
):
    folder = make_folder(tmp_path / 'out')
    folder.claim(IDENTITY)

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
    ('content', 'message'),
    [
        (np.full((5, 8), 7), r'size \(8, 5\) for an image of \(9, 5\)'),
        (np.full((5, 9), 0), r'invalid values \[0\]'),
        (np.full((5, 9, 3), 7), 'is not valid'),
        (None, 'ulm_0_leftImg8bit.png cannot be read'),
    ],
)
def test_a_label_image_the_server_would_refuse(
    tmp_path, image, content, message
):
    folder = make_folder(tmp_path / 'out')
    folder.write(image, np.resize(range(19), (5, 9)), [])
    path = folder.label_path(image)
    if content is None:
        path.write_bytes(path.read_bytes()[:60])
    else:
        Image.fromarray(content.astype(np.uint8)).save(path)
    with pytest.raises(SubmissionError, match=message):
        folder.check(image)


def test_no_name_leads_out_of_the_archive(tmp_path):
    with pytest.raises(SubmissionError, match='backslash'):
        make_folder(tmp_path).pack([r'ulm\..\..\evil_leftImg8bit.png'])
    assert list(tmp_path.iterdir()) == []


def test_cityscapes_ids_are_those_of_cityscapesscripts():
    assert find_format({'type': 'CityscapesDataset'}).label_ids == LABEL_IDS
    labels = pytest.importorskip('cityscapesscripts.helpers.labels')
    for train_id, label_id in enumerate(LABEL_IDS):
        assert labels.trainId2label[train_id].id == label_id


def test_ids_are_distinct_bytes():
    for form in FORMATS:
        assert len(set(form.label_ids)) == len(form.label_ids)
        assert max(form.label_ids) < 256


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
