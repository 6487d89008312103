"""Files that would block or fill the memory are reported, not read."""

import os
import shutil

import pytest

from tests.stats.builders import check_scan, open_set, report_on

PROGRAM = (
    b'%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n'
    b'(executed) (w) file closefile\n%%EOF\n'
)


def loop(path):
    other = path.with_name('other.png')
    other.symlink_to(path)
    path.symlink_to(other)


def large(path):
    """Two terabytes that take no room."""
    path.touch()
    os.truncate(path, 2 << 40)


STRANGE = {
    'pipe': (os.mkfifo, ': not a regular file'),
    'folder': (os.mkdir, ': not a regular file'),
    'device': (lambda x: x.symlink_to('/dev/zero'), ': not a regular file'),
    'loop': (loop, ': Too many levels of symbolic links'),
    'dangling link': (lambda x: x.symlink_to(x.parent / 'nowhere'), '\n'),
}
STRANGE_LABELS = {
    'large': (large, ': 2199023255552 bytes, more than'),
    'program': (
        lambda x: x.write_bytes(PROGRAM),
        ': a PostScript program, which is not run',
    ),
}


@pytest.mark.parametrize(
    ('folder', 'kind'),
    [
        *((folder, kind) for folder in ('img', 'ann') for kind in STRANGE),
        *(('ann', kind) for kind in STRANGE_LABELS),
    ],
)
def test_strange_files_are_named(root, kind, folder):
    dataset = open_set(root)
    path = root / folder / '0003.png'
    path.unlink()
    make, message = (STRANGE | STRANGE_LABELS)[kind]
    make(path)
    (error,) = report_on(dataset).errors
    assert f'{folder}/0003.png{message}' in error
    assert error.startswith('missing') == (kind == 'dangling link')


def test_a_pipe_is_named_by_other_loaders_too(root):
    path = root / 'ann' / '0003.png'
    path.unlink()
    os.mkfifo(path)
    pipeline = [{'type': 'LoadAnnotations', 'imdecode_backend': 'cv2'}]
    found = report_on(open_set(root, pipeline=pipeline))
    assert 'ann/0003.png: not a regular file' in str(found)


def test_a_folder_within_itself_is_named(root):
    (root / 'img' / 'again').symlink_to(root / 'img')
    with pytest.raises(OSError, match=r'Too many levels .*img/again'):
        open_set(root)


def test_links_out_of_the_data_set_are_followed(root, tmp_path):
    """Data sets are often made of links to where the data are."""
    elsewhere = tmp_path / 'elsewhere'
    shutil.move(root / 'ann', elsewhere)
    (root / 'ann').mkdir()
    for path in elsewhere.iterdir():
        (root / 'ann' / path.name).symlink_to(path)
    assert not check_scan(open_set(root)).problems
