"""One network for all tests of this folder."""

import pytest

from tests.offsets.builders import World, make_world


@pytest.fixture(scope='session')
def world(tmp_path_factory) -> World:
    return make_world(tmp_path_factory.mktemp('world'))
