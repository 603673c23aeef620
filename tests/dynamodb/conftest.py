"""A fresh environment for each test on the session's server."""

import asyncio
from collections.abc import Iterator
from secrets import token_hex

import pytest

from tests.dynamodb import server


@pytest.fixture
def env() -> Iterator[str]:
    name = f"test-{token_hex(6)}"
    yield name
    asyncio.run(server.discard(name))


@pytest.fixture
def url(env: str) -> str:
    return server.url(env)
