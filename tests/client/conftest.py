"""One place per module for each way to reach it: the store in this process, and a service on SQLite and PostgreSQL."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from secrets import token_hex
from typing import NamedTuple

import pytest

import outlast
from outlast import Client
from outlast.core.addresses import AddressPolicy
from tests.client import flows
from tests.postgres import server
from tests.service.conftest import Running

OPEN = AddressPolicy.of(private=True, plain=True, networks=())
PATIENCE = "20s"


class Place(NamedTuple):
    """A store whose workflows are served, and the target under which clients reach it."""

    target: str
    store: str
    in_process: bool

    def play(self, test: Callable[[Client], Awaitable[None]]) -> None:
        """Run a test with a client."""

        async def go() -> None:
            async with outlast.connect(self.target, workflows=flows.ALL) as client:
                await test(client)

        asyncio.run(go())


@pytest.fixture(autouse=True)
def broken_again() -> Iterator[None]:
    """Let each test begin with a broken line, whatever another test of this process has mended."""
    flows.broken["on"] = True
    yield
    flows.broken["on"] = True


@pytest.fixture(scope="module", params=["in process", "http sqlite", "http postgres"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Return the place of a module. Clients in this process may send webhooks to this machine, like the service."""
    store, schema = f"sqlite:{tmp_path_factory.mktemp('client') / 'outlast.db'}", ""
    with ExitStack() as stack:
        monkeypatch = stack.enter_context(pytest.MonkeyPatch.context())
        monkeypatch.setenv("OUTLAST_WEBHOOKS__ALLOW_PRIVATE", "true")
        monkeypatch.setenv("OUTLAST_WEBHOOKS__ALLOW_HTTP", "true")
        if request.param == "http postgres":
            schema = f"test_{token_hex(6)}"
            store = f"{server.url()}?schema={schema}"
            stack.callback(lambda: asyncio.run(server.drop(schema)))
        if request.param == "in process":
            worker = stack.enter_context(outlast.connect_sync(store))
            stack.enter_context(worker.worker(flows.ALL))
            yield Place(store, store, True)
        else:
            service = stack.enter_context(Running(store, flows.ALL))
            service.state.reach = OPEN
            yield Place(service.url, store, False)
