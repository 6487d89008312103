"""Files that would block or fill the memory are named, not read."""

import os
import shutil

import pytest

from tests.stats.builders import check_scan, open_set, report_on, write_set


def report(root):
    return str(report_on(root))


def loop(path):
    other = path.with_name('other.png')
    other.symlink_to(path)
    path.symlink_to(other)


def large(path):
    """Two terabytes that take no room."""
    with path.open('wb') as file:
        file.truncate(2 << 40)


STRANGE = {
    'pipe': (os.mkfifo, 'not a regular file'),
    'folder': (os.mkdir, 'not a regular file'),
    'device': (lambda x: x.symlink_to('/dev/zero'), 'not a regular file'),
    'loop': (loop, 'Too many levels of symbolic links'),
}


def test_a_pipe_is_named_by_other_loaders_too(tmp_path):
    root = write_set(tmp_path)
    path = root / 'ann' / '0003.png'
    path.unlink()
    os.mkfifo(path)
    pipeline = [{'type': 'LoadAnnotations', 'imdecode_backend': 'cv2'}]
    dataset = open_set(root, pipeline=pipeline)
    found = report_on(dataset)
    assert 'ann/0003.png: not a regular file' in str(found)


def test_a_folder_within_itself_is_named(tmp_path):
    root = write_set(tmp_path)
    (root / 'img' / 'again').symlink_to(root / 'img')
    with pytest.raises(OSError, match=r'Too many levels .*img/again'):
        open_set(root)


@pytest.mark.parametrize('folder', ['img', 'ann'])
@pytest.mark.parametrize('kind', STRANGE)
def test_strange_files_are_named(tmp_path, kind, folder):
    root = write_set(tmp_path)
    dataset = open_set(root)
    path = root / folder / '0003.png'
    path.unlink()
    make, message = STRANGE[kind]
    make(path)
    found = report_on(dataset)
    assert f'{folder}/0003.png: {message}' in str(found)
    assert len(found.errors) == 1


def test_a_huge_file_is_named(tmp_path):
    root = write_set(tmp_path)
    large(root / 'ann' / '0003.png')
    assert '0003.png: 2199023255552 bytes, more than' in report(root)


def test_a_dangling_link_is_a_missing_label(tmp_path):
    root = write_set(tmp_path)
    path = root / 'ann' / '0003.png'
    path.unlink()
    path.symlink_to(tmp_path / 'nowhere')
    assert 'missing label files (1 file(s))' in report(root)


def test_links_out_of_the_data_set_are_followed(tmp_path):
    """Data sets are often made of links to where the data are."""
    root = write_set(tmp_path / 'data')
    elsewhere = tmp_path / 'elsewhere'
    shutil.move(root / 'ann', elsewhere)
    (root / 'ann').mkdir()
    for path in elsewhere.iterdir():
        (root / 'ann' / path.name).symlink_to(path)
    dataset = open_set(root)
    assert not check_scan(dataset, [dataset]).problems


def test_programs_are_not_run(tmp_path):
    root = write_set(tmp_path)
    program = (
        b'%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n'
    )
    (root / 'ann' / '0003.png').write_bytes(program)
    assert '0003.png: a PostScript program, which is not run' in report(root)
