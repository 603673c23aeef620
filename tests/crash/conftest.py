"""One fork server for all crash tests of a session, because the imports take longer than most processes run."""

from collections.abc import Iterator

import pytest

from outlast.testing.fork_server import ForkServer, fork_server
from tests.crash.scenarios import CODE


@pytest.fixture(scope="session")
def forking() -> Iterator[ForkServer]:
    with fork_server(CODE) as one:
        yield one
