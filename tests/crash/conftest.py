"""One zygote for all crash tests of a session: importing everything costs more than most lives."""

from collections.abc import Iterator

import pytest

from tests.crash.story import Zygote, zygote


@pytest.fixture(scope="session")
def forker() -> Iterator[Zygote]:
    with zygote() as one:
        yield one
