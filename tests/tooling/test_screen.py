"""The quiet screen: little on the console, everything in the file."""

import logging

import pytest
from mmengine.logging import MMLogger

from mmseg_margin.tooling.screen import IGNORED_WARNINGS, replace_console

OURS = logging.getLogger('mmseg_margin')


@pytest.fixture
def log(tmp_path):
    """A log with a file, and its part on the screen."""
    path = tmp_path / 'log'
    logger = MMLogger.get_instance(tmp_path.name, log_file=str(path))
    return logger, replace_console(logger), path


def test_ours_and_warnings_are_shown(log, capsys):
    logger, _, path = log
    OURS.info('ours')
    logger.info('theirs')
    logger.warning('a warning')
    for ignored in IGNORED_WARNINGS:
        logger.warning(f'{ignored} ...')
    assert capsys.readouterr().out.splitlines() == ['ours', 'a warning']
    text = path.read_text()
    for message in ('ours', 'theirs', 'a warning', *IGNORED_WARNINGS):
        assert message in text


def test_tables_are_shown_in_a_test(log, capsys):
    logger, screen, _ = log
    table = '\n+---+\n| a |\n+---+'
    logger.info(table)
    screen.shows_tables = True
    logger.info(table)
    assert capsys.readouterr().out == f'{table[1:]}\n'
