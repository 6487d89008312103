"""Small disks, time limits, and the sum of all that was tried."""

import os
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from mmengine.logging import MMLogger
from mmengine.registry import init_default_scope

LONGEST_TEST = 3600


@pytest.fixture(autouse=True)
def _as_in_a_training() -> None:
    init_default_scope('mmseg')
    MMLogger.get_instance('torture')


@pytest.fixture(autouse=True)
def _ends_in_time() -> Iterator[None]:
    """A test that hangs is killed, wherever it hangs."""
    signal.alarm(LONGEST_TEST)
    yield
    signal.alarm(0)


@pytest.fixture
def disk(tmp_path) -> Iterator[Path]:
    """A file system of half a megabyte, mounted for this test."""
    if os.geteuid() != 0:
        pytest.skip('needs root, to mount a small disk')
    folder = tmp_path / 'disk'
    folder.mkdir()
    mount = ['mount', '-t', 'tmpfs', '-o', 'size=512k', 'tmpfs', str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f'cannot mount a small disk: {done.stderr.strip()}')
    yield folder
    subprocess.run(['umount', '--lazy', str(folder)], check=True)


def pytest_terminal_summary(terminalreporter) -> None:
    """Add up what the tests say they tried, by ``record_property``."""
    tried: Counter = Counter()
    for report in terminalreporter.stats.get('passed', []):
        for name, number in report.user_properties:
            tried[name] = (
                max(tried[name], number)
                if name.endswith('at most')
                else tried[name] + number
            )
    if not tried:
        return
    terminalreporter.section('tried')
    for name, number in sorted(tried.items()):
        terminalreporter.write_line(f'{number:>10,} {name}')
    failed = len(terminalreporter.stats.get('failed', []))
    failed += len(terminalreporter.stats.get('error', []))
    result = f'{failed} tests failed' if failed else 'nothing was lost'
    terminalreporter.write_line(f'{"":>10} {result}')
