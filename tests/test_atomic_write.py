"""Files that are complete or not there."""

import os

import pytest

from mmseg_margin.atomic_write import atomic_write, atomic_write_text


def test_a_file_is_there_only_when_complete(tmp_path):
    path = tmp_path / 'text'
    with atomic_write(path) as draft:
        draft.write_text('new')
        assert not path.exists()
    assert path.read_text() == 'new'
    atomic_write_text(path, 'größer')
    assert path.read_text('utf-8') == 'größer'
    assert os.listdir(tmp_path) == ['text']


@pytest.mark.parametrize('error', [OSError, KeyboardInterrupt, None])
def test_a_failure_changes_nothing(tmp_path, error):
    """Nothing written is a failure too."""
    path = tmp_path / 'text'
    path.write_text('good')

    def fail() -> None:
        with atomic_write(path) as draft:
            if error:
                draft.write_text('half')
                raise error

    with pytest.raises(error or FileNotFoundError):
        fail()
    assert path.read_text() == 'good'
    assert os.listdir(tmp_path) == ['text']


def test_links_and_devices_are_written_to_and_stay(tmp_path):
    target, link = tmp_path / 'target', tmp_path / 'link'
    target.write_text('old')
    link.symlink_to(target)
    atomic_write_text(link, 'new')
    assert link.is_symlink()
    assert target.read_text() == 'new'
    atomic_write_text('/dev/null', 'text')
    assert not os.path.isfile('/dev/null')
