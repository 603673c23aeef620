"""Crash scenarios on PostgreSQL: a database for each state, which is copied as a template."""

import asyncio
import hashlib
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar

import asyncpg
from typing_extensions import override

from outlast.store.postgres.store import PostgresStore, open_postgres
from outlast.testing.child_process import ChildClock, name_claims
from outlast.testing.crash_values import CrashHook, ScenarioState
from outlast.testing.loading import CodeUnderTest
from outlast.testing.run_snapshot import TABLES, RunSnapshot, ScenarioFile, ScenarioStore, snapshot_of
from tests.crash.scenarios import CODE
from tests.postgres.server import Server

T = TypeVar("T")
SCHEMA: Final = "outlast"
LOOK_S: Final = 0.005
WAIT_S: Final = 20.0


async def open_child(ask: dict[str, Any], writer: str, clock: ChildClock, trace: CrashHook) -> PostgresStore:
    """Open the store of a process."""
    store = await open_postgres(ask["url"], writer=writer, clock=clock)
    name_claims(store, trace)
    return store


class Databases(ScenarioStore):
    """A database for each scenario. A copy is made by the server, from the database as a template."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._runner = asyncio.Runner()
        self._live: set[Path] = set()
        self._admin: asyncpg.Connection[Any] = self._run(asyncpg.connect(url))

    def close(self) -> None:
        """End the connection."""
        self._run(self._admin.close())
        self._runner.close()

    @override
    def request(self, state: ScenarioState) -> dict[str, Any]:
        self._create(state.folder, "template1")
        url = f"{self._of(state.folder)}?schema={SCHEMA}"
        return {"url": url, "opener": f"{__name__}:{open_child.__name__}"}

    @override
    def read(self, state: ScenarioState) -> RunSnapshot:
        return self._run(self._read(state.folder)) if state.folder in self._live else snapshot_of(None)

    @override
    def copy(self, state: ScenarioState, to: Path) -> ScenarioState:
        if state.folder in self._live:
            self._run(self._alone(state.folder))
            self._create(to, _database(state.folder))
        return state.copy(to)

    @override
    def discard(self, folder: Path) -> None:
        for live in [each for each in self._live if each.is_relative_to(folder)]:
            self._live.discard(live)
            self._run(self._admin.execute(f"DROP DATABASE {_database(live)} WITH (FORCE)"))
        ScenarioFile().discard(folder)

    def _run(self, call: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(call)

    def _of(self, folder: Path) -> str:
        return f"{self._url.rpartition('/')[0]}/{_database(folder)}"

    def _create(self, folder: Path, template: str) -> None:
        if folder not in self._live:
            self._live.add(folder)
            self._run(self._admin.execute(f"CREATE DATABASE {_database(folder)} TEMPLATE {template}"))

    async def _alone(self, folder: Path) -> None:
        """Wait until the server has ended the sessions of killed processes."""
        sessions = "SELECT count(*) FROM pg_stat_activity WHERE datname = $1"
        async with asyncio.timeout(WAIT_S):
            while await self._admin.fetchval(sessions, _database(folder)):  # noqa: ASYNC110 - the server tells nobody
                await asyncio.sleep(LOOK_S)

    async def _read(self, folder: Path) -> RunSnapshot:
        await self._alone(folder)
        db: asyncpg.Connection[Any] = await asyncpg.connect(self._of(folder))
        try:
            there = {row[0] for row in await db.fetch("SELECT tablename FROM pg_tables WHERE schemaname = $1", SCHEMA)}
            if not there.issuperset(TABLES):
                return snapshot_of(None)
            found = {
                name: [dict(row) for row in await db.fetch(f'SELECT * FROM {SCHEMA}."{name}" ORDER BY {order}')]
                for name, order in TABLES.items()
            }
            return snapshot_of(found)
        finally:
            await db.close()


def _database(folder: Path) -> str:
    return f"crash_{hashlib.sha256(str(folder).encode()).hexdigest()[:24]}"


@contextmanager
def on_server(folder: str | None) -> Iterator[tuple[Databases, CodeUnderTest]]:
    """Start a server with its data in a folder. Yield the store and the code for the fork server."""
    server = Server(folder)
    try:
        store = Databases(server.url)
        try:
            yield store, replace(CODE, modules=(*CODE.modules, (__name__, __file__)))
        finally:
            store.close()
    finally:
        server.close()
