"""Store of a test world: a real PostgreSQL whose answers take real time."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from secrets import token_hex
from typing import Any

from outlast.clocks import VirtualClock
from outlast.core.commit import Chain, Commit, Done, Put
from outlast.core.rows.all_kinds import Row
from outlast.core.rows.row_kind import AnyKind, Key
from outlast.store.port import Store
from outlast.store.postgres.store import PostgresStore, open_postgres
from tests.postgres import server

WRITES = ("commit", "urgent", "set_mapping")


class Asked:
    """Store and the number of its outstanding answers."""

    def __init__(self, inner: PostgresStore, ground: "OnPostgres") -> None:
        self._inner = inner
        self._ground = ground

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not asyncio.iscoroutinefunction(found):
            return found

        async def asked(*args: Any, **kwargs: Any) -> Any:
            self._ground.asks()
            try:
                return await found(*args, **kwargs)
            finally:
                self._ground.hears(wrote=name in WRITES)

        return asked

    def submit(self, commit: Commit, *, chain: Chain | None = None, linger: bool = False) -> "asyncio.Future[Done]":
        self._ground.asks()
        answer = self._inner.submit(commit, chain=chain, linger=linger)
        answer.add_done_callback(lambda _: self._ground.hears(wrote=True))
        return answer


class OnPostgres:
    """One schema on the session's server in virtual time; only its answers take real time."""

    def __init__(self, time: VirtualClock) -> None:
        self._time = time
        self.schema = f"engine_{token_hex(6)}"
        self._url = f"{server.url()}?schema={self.schema}"
        self._stores: list[PostgresStore] = []
        self._open = 0  # answers to come
        self._moved = False  # a commit landed since workers were last woken
        self._heard = asyncio.Event()
        self.core = self
        self.rows = self
        self._looks = self._opened("looks")

    # --- stores --------------------------------------------------------------------------------
    def _opened(self, writer: str) -> PostgresStore:
        store = elsewhere(lambda: open_postgres(self._url, writer=writer, clock=self._time))
        assert isinstance(store, PostgresStore)
        self._stores.append(store)
        return store

    def open(self, writer: str) -> Store:
        store: Any = Asked(self._opened(writer), self)
        return store

    def now(self, call: Coroutine[Any, Any, Any]) -> None:
        elsewhere(lambda: call)

    def close(self) -> None:
        async def all_of_them() -> None:
            for store in self._stores:
                await store.close()
            await server.drop(self.schema)

        elsewhere(all_of_them)

    # --- its answers -----------------------------------------------------------------------------
    def asks(self) -> None:
        self._open += 1

    def hears(self, *, wrote: bool) -> None:
        self._open -= 1
        self._moved = self._moved or wrote
        self._heard.set()

    async def answered(self) -> bool:
        if not self._open:
            if not self._moved:
                return False
            self._moved = False
            for store in self._stores:  # as a NOTIFY does, which may come later than any answer
                store._wakes.fire()
            return True
        for store in self._stores:
            store.hasten()  # because LINGER never ends: no virtual time passes while an answer is to come
        self._heard.clear()
        await self._heard.wait()
        return True

    # --- looking -----------------------------------------------------------------------------------
    def _read(self, read: Callable[[PostgresStore], Coroutine[Any, Any, Any]]) -> Any:
        return elsewhere(lambda: read(self._looks))

    def get(self, kind: AnyKind, key: Key) -> Row | None:
        row: Row | None = self._read(lambda store: store.load(kind, key))
        return row

    def under(self, kind: AnyKind, prefix: Key) -> list[Row]:
        return list(self._read(lambda store: store.rows(kind, prefix)))

    def put(self, kind: AnyKind, key: Key, row: Row) -> None:
        self._read(lambda store: store.commit(Commit((Put(kind, row, 0),))))


def elsewhere(call: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Run it in a loop and a thread beside this one, which waits."""
    found: list[Any] = []

    def live() -> None:
        found.append(asyncio.run(call()))

    thread = threading.Thread(target=live, name="elsewhere")
    thread.start()
    thread.join()
    assert found, "it failed; the thread has said why"
    return found[0]
