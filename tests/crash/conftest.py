"""One process that forks for all crash tests of a session: importing everything costs more than most lives."""

from collections.abc import Iterator

import pytest

from outlast.testing.fork_server import ForkServer, fork_server
from tests.crash.stories import CODE


@pytest.fixture(scope="session")
def forking() -> Iterator[ForkServer]:
    with fork_server(CODE) as one:
        yield one
