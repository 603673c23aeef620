"""One process that forks for all crash tests of a session: importing everything costs more than most lives."""

from collections.abc import Iterator

import pytest

from outlast.testing.forker import Forker, forker
from tests.crash.stories import CODE


@pytest.fixture(scope="session")
def forking() -> Iterator[Forker]:
    with forker(CODE) as one:
        yield one
