"""Stores for the tests of the outbox: files, and those of servers if a test requests them."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from secrets import token_hex

import pytest

from outlast.core.webhooks import deliveries
from outlast.outbox import channel_client
from outlast.outbox import delivery_client as client
from tests.dynamodb import server as dynamodb
from tests.outbox.helpers import url_of
from tests.postgres import server


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test marked `every_store` over a PostgreSQL server, too."""
    if metafunc.definition.get_closest_marker("every_store"):
        metafunc.parametrize("url", ["sqlite", "postgres"], indirect=True)


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Return the URL of an empty store."""
    match getattr(request, "param", "sqlite"):
        case "postgres":
            schema = f"test_{token_hex(6)}"
            yield f"{server.url()}?schema={schema}"
            asyncio.run(server.drop(schema))
        case "dynamodb":
            env = f"test-{token_hex(6)}"
            yield dynamodb.url(env)
            asyncio.run(dynamodb.discard(env))
        case _:
            yield url_of(tmp_path)


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the waits between attempts, but keep the attempt's ten seconds, because a busy machine is slow."""
    monkeypatch.setattr(deliveries, "DELIVERY_FIRST_WAIT", 20)
    monkeypatch.setattr(deliveries, "DELIVERY_BACKOFF_CEILING", 100)


@pytest.fixture
def quick(soon: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten attempts too, for receivers that do not answer in time."""
    for kind in (client.DeliveryClient, channel_client.ChannelClient):
        begin = kind.__init__
        monkeypatch.setattr(begin, "__kwdefaults__", {**(begin.__kwdefaults__ or {}), "timeout_ms": 500})
