"""One writer of a DynamoDB store without the store around it, for tests that choose the fate of each request."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from outlast.core.commit import Chain, Commit, Done
from outlast.core.rows.row_kind import AnyKind, Key
from outlast.errors import StoreError
from outlast.store.dynamodb.connection import (
    Away,
    ConditionRefused,
    Conflicted,
    Connection,
    DynamoAddress,
    Throttled,
    Unusable,
)
from outlast.store.dynamodb.items import decode, place
from outlast.store.dynamodb.landing import Lander
from outlast.store.dynamodb.receipts import Receipts
from outlast.store.dynamodb.tables import open_tables
from outlast.store.dynamodb.takes import RunFinder
from outlast.store.dynamodb.writer import CommitScheduler
from outlast.store.store_clock import StoreClock
from outlast.store.threads import WakeSubscribers
from outlast.store.tickets import Ticket
from tests.conformance.subject import HandClock
from tests.dynamodb import server
from tests.dynamodb.proxy import Wire, wire

ANSWER_S = 5.0


class Writer:
    """A registered writer."""

    def __init__(self, url: str, name: str, clock: HandClock, answer_s: float) -> None:
        self.name = name
        self.connection = Connection(DynamoAddress.parse(url), answer_s=answer_s)
        self.receipts = Receipts(self.connection, name)
        self.lander = Lander(self.connection, self.receipts, StoreClock(clock))
        self.finder = RunFinder(self.lander, self.receipts.items)
        self.scheduler = CommitScheduler(self.lander, self.finder, WakeSubscribers())

    async def open(self) -> None:
        """Create the tables and register."""
        await self.connection.open()
        await open_tables(self.connection, make=True)
        await self.lander.refresh()
        await self.receipts.register(0)

    async def land(self, commit: Commit, chain: Chain | None = None) -> Done:
        """Land one commit by itself."""
        return (await self.lander.land(commit, chain)).done

    def submit(self, commit: Commit, chain: Chain | None = None) -> "asyncio.Future[Done]":
        """Submit a commit to the scheduler."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Done] = loop.create_future()
        self.scheduler.submit([Ticket(commit, future, loop, chain)])
        return future

    async def close(self) -> None:
        """Land what was submitted and resign, if the server allows it."""
        await self.scheduler.close()
        try:
            await self.receipts.resign()
        except (StoreError, Away, ConditionRefused, Conflicted, Throttled, Unusable):
            pass
        finally:
            await self.connection.close()


class Bench:
    """Writers on one environment: some by way of a proxy, some directly."""

    def __init__(self, env: str, through: Wire) -> None:
        self.env = env
        self.through = through
        self.clock = HandClock()
        self._writers: list[Writer] = []
        self._reader = Connection(DynamoAddress.parse(server.url(env)))

    async def writer(self, name: str = "writer-a", *, direct: bool = False, answer_s: float = ANSWER_S) -> Writer:
        """Open a writer. By way of the proxy, its requests so far are forgotten."""
        at = "" if direct else self.through.endpoint
        made = Writer(server.url(self.env, at), name, self.clock, answer_s)
        self._writers.append(made)
        await made.open()
        self.through.record.clear()
        return made

    async def row(self, kind: AnyKind, key: Key) -> Any:
        """Read a row around the proxy and around the code under test, or None."""
        item = await self.item(kind, key)
        return None if item is None else decode(kind, item)

    async def item(self, kind: AnyKind, key: Key) -> Any:
        """Read the item of a row, or None."""
        where = place(kind, key)
        answer = await self._reader.call(
            "GetItem", TableName=f"{self.env}-{where.table}", Key=where.key(), ConsistentRead=True
        )
        return answer.get("Item")

    async def open(self) -> None:
        """Open the connection of `row`."""
        await self._reader.open()

    async def close(self) -> None:
        """Close every writer."""
        for each in self._writers:
            await each.close()
        await self._reader.close()


def on_a_bench(test: Callable[[Bench], Awaitable[None]]) -> Callable[[str], None]:
    """Run a test with writers on a fresh environment, and a proxy before the emulator."""

    def run(env: str) -> None:
        asyncio.run(_run(env, test))

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


async def _run(env: str, test: Callable[[Bench], Awaitable[None]]) -> None:
    with wire(server.emulator()) as through:
        async with bench(env, through) as made:
            await test(made)


@asynccontextmanager
async def bench(env: str, through: Wire) -> AsyncIterator[Bench]:
    """Open a bench on a proxy."""
    made = Bench(env, through)
    await made.open()
    try:
        yield made
    finally:
        through.rules.clear()
        await asyncio.to_thread(through.release)
        await made.close()
