"""One Temporal server for the session. All tests of this folder run in one process (tests/conftest.py)."""

from collections.abc import Iterator

import pytest

from tests.temporal.server import MISSING, PROGRAM, TemporalServer


@pytest.fixture(scope="session")
def _server() -> Iterator[TemporalServer]:
    if not PROGRAM.exists():
        pytest.skip(MISSING)
    server = TemporalServer()
    yield server
    server.close()


@pytest.fixture
def temporal(_server: TemporalServer) -> TemporalServer:
    """The session's server, running."""
    if not _server.pid:  # a test that killed it has failed
        _server.start()
    return _server
