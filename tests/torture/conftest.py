"""Time limits, and the sum of all that was tried."""

import signal
from collections import Counter
from collections.abc import Iterator

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
    """A test that hangs fails, wherever it hangs."""

    def stop(*_) -> None:
        raise TimeoutError(f'no end after {LONGEST_TEST} seconds')

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(LONGEST_TEST)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


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
