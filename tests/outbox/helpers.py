"""Receivers of webhooks, some hostile, and stores with runs whose events they receive."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel
from standardwebhooks import Webhook

from outlast.core.addresses import AddressPolicy
from outlast.core.approvals import Actor
from outlast.core.rows.outbox_rows import UNPUBLISHED
from outlast.core.rows.run_rows import EVENT, Event
from outlast.flow import Context, Workflow
from outlast.outbox.dispatcher import Dispatcher
from outlast.runtime.local_worker import worker_of
from outlast.runtime.operations import Operations
from outlast.runtime.stores import open_store
from outlast.runtime.webhooks import new_dispatcher
from outlast.store.port import Store
from outlast.store.queries import Owing

TENANT = "acme"
DEVELOPMENT = AddressPolicy.of(private=True, plain=True)
"""This machine and private networks, over plain HTTP, at any port."""


@dataclass
class Got:
    """A request as it arrived at the receiver."""

    headers: dict[str, str]
    body: bytes
    at: float
    line: str = ""
    """Request line: `POST /hooks HTTP/1.1`."""

    @property
    def event(self) -> dict[str, Any]:
        """Return the event in the body."""
        found: dict[str, Any] = json.loads(self.body)
        return found

    @property
    def place(self) -> tuple[str, int]:
        """Return its run and its number there."""
        return self.event["subject"], int(self.event["sequence"])

    def verified(self, secret: str) -> dict[str, Any]:
        """Return the event if the library accepts its signature."""
        found: dict[str, Any] = Webhook(secret).verify(self.body, self.headers)
        return found


Behaviour = Callable[[Got, asyncio.StreamWriter], Awaitable[None]]


def answer(status: int = 204, body: bytes = b"", **headers: str) -> Behaviour:
    """Answer at once with this status, body and headers."""

    async def behave(got: Got, writer: asyncio.StreamWriter) -> None:
        lines = [f"HTTP/1.1 {status} X", f"content-length: {len(body)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        await writer.drain()

    return behave


@dataclass
class Receiver:
    """A server that records each request and then behaves as the test tells it."""

    behaviour: Behaviour = field(default_factory=answer)
    script: list[Behaviour] = field(default_factory=list)
    """For the first requests; then `behaviour`."""
    got: list[Got] = field(default_factory=list)
    accepted: list[Got] = field(default_factory=list)
    """Those that the present behaviour answered to the end."""
    port: int = 0
    open: set[asyncio.StreamWriter] = field(default_factory=set)

    def cut(self) -> None:
        """Reset all connections that are open now."""
        for writer in self.open:
            writer.transport.abort()

    @property
    def url(self) -> str:
        """Return the URL at which it listens."""
        return f"http://127.0.0.1:{self.port}/hooks"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open.add(writer)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                parts = [line.partition(":") for line in head[1:] if line]
                headers = {name.strip().lower(): value.strip() for name, _, value in parts}
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                got = Got(headers, body, asyncio.get_running_loop().time(), head[0])
                self.got.append(got)
                behave = self.script.pop(0) if self.script else self.behaviour
                await behave(got, writer)
                self.accepted.append(got)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    @asynccontextmanager
    async def listening(self, tls: ssl.SSLContext | None = None) -> "AsyncIterator[Receiver]":
        """Listen on a free port while the block runs."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=tls)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()


class Count(BaseModel):
    """Number of rounds that a run makes."""

    left: int


def rounds(name: str = "rounds") -> Workflow[Count]:
    """Return a workflow that makes the requested number of rounds."""
    flow = Workflow(name, state=Count, version=1)

    @flow.node(start=True, max_visits=1_000)
    async def again(ctx: Context[Count]) -> Literal["again"] | None:
        ctx.state.left -= 1
        return "again" if ctx.state.left > 0 else None

    return flow


@asynccontextmanager
async def a_store(url: str) -> AsyncIterator[Operations]:
    """Open a store and operations with one workflow."""
    store = await open_store(url)
    try:
        bound = Operations(
            store, tenant=TENANT, actor=Actor("local:ann", frozenset({"admin"})), workflows={"rounds": ROUNDS}
        )
        bound.webhooks.reach = DEVELOPMENT
        yield bound
    finally:
        await store.close()


@asynccontextmanager
async def working(store: Store, *flows: Workflow[Any]) -> AsyncIterator[None]:
    """Run a worker while the block runs."""
    worker = worker_of(store, flows or (ROUNDS,))
    task = asyncio.create_task(worker.run())
    try:
        yield
    finally:
        worker.drain()
        await task


@asynccontextmanager
async def dispatching(store: Store, **given: Any) -> AsyncIterator[Dispatcher]:
    """Run a dispatcher while the block runs."""
    dispatcher: Dispatcher = new_dispatcher(store, reach=DEVELOPMENT, **given)
    task = asyncio.create_task(dispatcher.run())
    try:
        yield dispatcher
    finally:
        dispatcher.drain()
        await task


async def until(condition: Callable[[], bool | Awaitable[bool]], within: float = 20.0) -> None:
    """Return once the condition holds; fail if it does not within these seconds."""
    async with asyncio.timeout(within):
        while True:
            found = condition()
            if found if isinstance(found, bool) else await found:
                return
            await asyncio.sleep(0.01)


async def history(store: Store, run: str) -> list[Event]:
    """Return the events of a run."""
    return [row for row in await store.rows(EVENT, (TENANT, run)) if isinstance(row, Event)]


def firsts(got: Sequence[Got]) -> dict[str, list[int]]:
    """Return, by run, the numbers of its events in the order of their first arrival."""
    found: dict[str, list[int]] = {}
    for each in got:
        run, seq = each.place
        if seq not in found.setdefault(run, []):
            found[run].append(seq)
    return found


async def all_delivered(ops: Operations, receiver: Receiver, *runs: str) -> bool:
    """Return True if these runs have ended and every event of them was accepted."""
    have = firsts(receiver.accepted)
    rows = [await ops.rows.run(run) for run in runs]
    return all(row.ended_at and len(have.get(row.run, ())) == row.seq for row in rows)


async def settled(ops: Operations, subscription: str) -> bool:
    """Return True if no event is unpublished and nothing is owed to this subscription."""
    return not await ops.store.rows(UNPUBLISHED, ()) and not await ops.store.query(Owing(TENANT, subscription, 1))


def url_of(path: Path) -> str:
    """Return the URL of a store in a file of this folder."""
    return f"sqlite:{path / 'outlast.db'}"


ROUNDS = rounds()
