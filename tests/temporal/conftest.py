"""One Temporal server for the session. All tests of this folder run in one process (tests/conftest.py)."""

from collections.abc import Iterator

import pytest

from tests.temporal.server import MISSING, PROGRAM, TemporalServer


@pytest.fixture(scope="session")
def temporal() -> Iterator[TemporalServer]:
    if not PROGRAM.exists():
        pytest.skip(MISSING)
    server = TemporalServer()
    yield server
    server.close()
