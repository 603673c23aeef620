"""Receivers of webhooks, real servers that may be hostile, and a store with runs whose events they are told of."""

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

from outlast.core.rows import EVENT, UNPUBLISHED, Event
from outlast.flow import Context, Workflow
from outlast.outbox.address import AddressPolicy
from outlast.outbox.dispatcher import Dispatcher
from outlast.runtime.operations import Operations
from outlast.runtime.port import Actor
from outlast.runtime.serve import worker_of
from outlast.runtime.stores import open_store
from outlast.runtime.webhooks import new_dispatcher
from outlast.store.port import Store

TENANT = "acme"
DEVELOPMENT = AddressPolicy.of(private=True, plain=True)
"""This machine and private networks, over plain HTTP, at any port."""


@dataclass
class Got:
    """A request as it arrived."""

    headers: dict[str, str]
    body: bytes
    at: float

    @property
    def event(self) -> dict[str, Any]:
        """The event in it."""
        found: dict[str, Any] = json.loads(self.body)
        return found

    @property
    def place(self) -> tuple[str, int]:
        """Its run, and its number there."""
        return self.event["subject"], int(self.event["sequence"])

    def verified(self, secret: str) -> dict[str, Any]:
        """The event, if the signature over the bytes received is the sender's. By the library."""
        found: dict[str, Any] = Webhook(secret).verify(self.body, self.headers)
        return found


Behaviour = Callable[[Got, asyncio.StreamWriter], Awaitable[None]]


def answer(status: int = 204, body: bytes = b"", **headers: str) -> Behaviour:
    """Answer so at once."""

    async def behave(got: Got, writer: asyncio.StreamWriter) -> None:
        lines = [f"HTTP/1.1 {status} X", f"content-length: {len(body)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        await writer.drain()

    return behave


@dataclass
class Receiver:
    """A server that records what it gets before it answers, as it is told to."""

    behaviour: Behaviour = field(default_factory=answer)
    script: list[Behaviour] = field(default_factory=list)
    """For the first requests; then `behaviour`."""
    got: list[Got] = field(default_factory=list)
    accepted: list[Got] = field(default_factory=list)
    """Those that the present behaviour answered to the end."""
    port: int = 0
    open: set[asyncio.StreamWriter] = field(default_factory=set)

    def cut(self) -> None:
        """Reset every connection."""
        for writer in self.open:
            writer.transport.abort()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}/hooks"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open.add(writer)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                parts = [line.partition(":") for line in head[1:] if line]
                headers = {name.strip().lower(): value.strip() for name, _, value in parts}
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                got = Got(headers, body, asyncio.get_running_loop().time())
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
        """Listen on a free port."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=tls)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()


class Count(BaseModel):
    """How often to go round."""

    left: int


def rounds(name: str = "rounds") -> Workflow[Count]:
    """A workflow that goes round as often as it is told."""
    flow = Workflow(name, state=Count, version=1)

    @flow.node(start=True, max_visits=1_000)
    async def again(ctx: Context[Count]) -> Literal["again"] | None:
        ctx.state.left -= 1
        return "again" if ctx.state.left > 0 else None

    return flow


@asynccontextmanager
async def a_store(url: str) -> AsyncIterator[Operations]:
    """A store, with one workflow that can be started."""
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
    """A worker."""
    worker = worker_of(store, flows or (ROUNDS,))
    task = asyncio.create_task(worker.run())
    try:
        yield
    finally:
        worker.drain()
        await task


@asynccontextmanager
async def dispatching(store: Store, **given: Any) -> AsyncIterator[Dispatcher]:
    """A dispatcher."""
    dispatcher: Dispatcher = new_dispatcher(store, reach=DEVELOPMENT, **given)
    task = asyncio.create_task(dispatcher.run())
    try:
        yield dispatcher
    finally:
        dispatcher.drain()
        await task


async def until(condition: Callable[[], bool | Awaitable[bool]], within: float = 20.0) -> None:
    """Return once it holds; fail when it does not within so many seconds."""
    async with asyncio.timeout(within):
        while True:
            found = condition()
            if found if isinstance(found, bool) else await found:
                return
            await asyncio.sleep(0.01)


async def history(store: Store, run: str) -> list[Event]:
    """A run's events."""
    return [row for row in await store.rows(EVENT, (TENANT, run)) if isinstance(row, Event)]


def firsts(got: Sequence[Got]) -> dict[str, list[int]]:
    """For each run the numbers of its events, in the order in which each first arrived."""
    found: dict[str, list[int]] = {}
    for each in got:
        run, seq = each.place
        if seq not in found.setdefault(run, []):
            found[run].append(seq)
    return found


async def all_told(ops: Operations, receiver: Receiver, *runs: str) -> bool:
    """Are these runs over, and was every event of them accepted?"""
    have = firsts(receiver.accepted)
    rows = [await ops.run(run) for run in runs]
    return all(row.ended_at and len(have.get(row.run, ())) == row.seq for row in rows)


async def settled(ops: Operations, subscription: str) -> bool:
    """Is nothing untold, and nothing owed to this subscription?"""
    return not await ops.store.rows(UNPUBLISHED, ()) and not await ops.store.owing(TENANT, subscription, 1)


def url_of(path: Path) -> str:
    """Of a store in a file."""
    return f"sqlite:{path / 'outlast.db'}"


ROUNDS = rounds()
