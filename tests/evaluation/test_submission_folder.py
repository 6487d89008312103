"""The folder of a submission: whose files it holds, and what is in them."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mmseg_margin.evaluation import submission_folder as folder_module
from mmseg_margin.evaluation.submission import (
    SubmissionError,
    SubmissionFolder,
    find_format,
)
from tests.processes import FORK, wait_for

IDENTITY = {'dataset': 'CityscapesDataset', 'checkpoint': 'a'}


def make_folder(root, dataset: str = 'CityscapesDataset') -> SubmissionFolder:
    return SubmissionFolder(root, find_format({'type': dataset}))


def make_images(root, count: int = 3) -> list[str]:
    paths = [root / f'ulm_{i}_leftImg8bit.png' for i in range(count)]
    for i, path in enumerate(paths):
        Image.new('RGB', (9 + i, 5)).save(path)
    return list(map(str, paths))


def snapshot(root) -> dict:
    """Content and time of every file below a folder."""
    return {
        path: (path.read_bytes(), path.stat().st_mtime_ns)
        for path in root.rglob('*')
        if path.is_file() and path.suffix != '.lock'
    }


def test_makes_a_folder_and_goes_on_with_it(tmp_path):
    folder = make_folder(tmp_path / 'new' / 'out')
    folder.claim(IDENTITY)
    before = snapshot(tmp_path)
    make_folder(tmp_path / 'new' / 'out').claim(IDENTITY)
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize(
    'name', ['out/notes.txt', 'out/sub/ulm_0_leftImg8bit.png', 'out']
)
def test_somebodys_files_are_refused_and_left_alone(tmp_path, name):
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


def test_a_kill_while_writing_leaves_no_label_image(tmp_path, monkeypatch):
    folder = make_folder(tmp_path / 'out')
    folder.claim(IDENTITY)
    (image,) = make_images(tmp_path, 1)

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
    ('dataset', 'expected', 'mode'),
    [
        ('CityscapesDataset', [7, 8, 33], 'L'),
        ('ADE20KDataset', [1, 2, 19], 'L'),
        ('PascalVOCDataset', [0, 1, 18], 'P'),
    ],
)
def test_values_of_a_label_image(tmp_path, dataset, expected, mode):
    folder = make_folder(tmp_path / 'out', dataset)
    (image,) = make_images(tmp_path, 1)
    prediction = np.resize([0, 1, 18], (5, 9))
    palette = [[i, 2 * i, 3 * i] for i in range(21)]
    folder.write(image, prediction, palette)
    folder.check(image)
    with Image.open(folder.label_path(image)) as label:
        assert label.mode == mode
        assert label.format == 'PNG'
        values = np.array(label)
        np.testing.assert_array_equal(values, np.resize(expected, (5, 9)))
        if mode == 'P':
            colours = np.array(label.convert('RGB'))
            np.testing.assert_array_equal(colours[0, 2], palette[18])


@pytest.mark.parametrize(
    ('dataset', 'archive', 'folder'),
    [
        ('CityscapesDataset', 'cityscapes.zip', ''),
        (
            'PascalVOCDataset',
            'results.tgz',
            'results/VOC2012/Segmentation/comp6_test_cls/',
        ),
    ],
)
def test_only_label_images_are_packed(tmp_path, dataset, archive, folder):
    out = make_folder(tmp_path / 'out', dataset)
    images = make_images(tmp_path)
    out.claim(IDENTITY)
    for i, image in enumerate(images):
        out.write(image, np.zeros((5, 9 + i), int), [[0, 0, 0]] * 21)
    (tmp_path / 'out' / 'notes.png').write_text('mine')
    assert out.pack(images) == tmp_path / 'out' / archive
    shutil.unpack_archive(out.pack(images), tmp_path / 'unpacked')
    unpacked = snapshot(tmp_path / 'unpacked')
    labels = {tmp_path / 'unpacked' / folder / Path(i).name for i in images}
    assert unpacked.keys() == labels


@pytest.mark.parametrize(
    ('content', 'message'),
    [
        (np.full((5, 8), 7), r'size \(8, 5\) for an image of \(9, 5\)'),
        (np.full((5, 9), 0), r'invalid values \[0\]'),
        (np.full((5, 9, 3), 7), 'is not valid'),
        (None, 'ulm_0_leftImg8bit.png cannot be read'),
    ],
)
def test_a_label_image_the_server_would_refuse(tmp_path, content, message):
    (image,) = make_images(tmp_path, 1)
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
