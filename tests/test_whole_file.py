"""Files that are complete or not there."""

import os

import pytest

from mmseg_margin.whole_file import whole_file, write_whole_text


def test_a_file_is_there_only_when_complete(tmp_path):
    path = tmp_path / 'text'
    with whole_file(path) as draft:
        draft.write_text('new')
        assert not path.exists()
    assert path.read_text() == 'new'
    write_whole_text(path, 'größer')
    assert path.read_text('utf-8') == 'größer'
    assert os.listdir(tmp_path) == ['text']


@pytest.mark.parametrize('error', [OSError, KeyboardInterrupt, SystemExit])
def test_a_failure_changes_nothing(tmp_path, error):
    path = tmp_path / 'text'
    path.write_text('good')

    def fail() -> None:
        with whole_file(path) as draft:
            draft.write_text('half')
            raise error

    with pytest.raises(error):
        fail()
    assert path.read_text() == 'good'
    assert os.listdir(tmp_path) == ['text']


def test_nothing_written_is_a_failure(tmp_path):
    path = tmp_path / 'text'
    path.write_text('good')
    with pytest.raises(FileNotFoundError), whole_file(path):
        pass
    assert path.read_text() == 'good'


def test_links_stay_links(tmp_path):
    target, link = tmp_path / 'target', tmp_path / 'link'
    target.write_text('old')
    link.symlink_to(target)
    write_whole_text(link, 'new')
    assert link.is_symlink()
    assert target.read_text() == 'new'


def test_devices_are_written_to_and_stay(tmp_path):
    write_whole_text('/dev/null', 'text')
    assert not os.path.isfile('/dev/null')
    with pytest.raises(OSError, match='No space left'):
        write_whole_text('/dev/full', 'text')
    with pytest.raises(IsADirectoryError):
        write_whole_text(tmp_path, 'text')
