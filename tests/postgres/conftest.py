"""A fresh schema for each test on the session's server."""

import asyncio
from collections.abc import Iterator
from secrets import token_hex

import pytest

from tests.postgres import server


@pytest.fixture
def schema() -> Iterator[str]:
    name = f"test_{token_hex(6)}"
    yield name
    asyncio.run(server.drop(name))


@pytest.fixture
def url(schema: str) -> str:
    return f"{server.url()}?schema={schema}"
