"""Store of a test world: in memory. `postgres_ground` has the other one."""

from collections.abc import Coroutine
from typing import Any, Protocol

from outlast.clocks import VirtualClock
from outlast.core.rows.all_kinds import Row
from outlast.core.rows.row_kind import AnyKind, Key
from outlast.store.memory import MemoryCore, MemoryStore
from outlast.store.port import Store


class Shelf(Protocol):
    """Direct access of tests to the rows, without virtual time."""

    def get(self, kind: AnyKind, key: Key) -> Row | None: ...

    def under(self, kind: AnyKind, prefix: Key) -> list[Row]: ...

    def put(self, kind: AnyKind, key: Key, row: Row) -> None: ...


class Ground(Protocol):
    """One store for all processes of a world."""

    core: Any  # with a `shelf`

    def open(self, writer: str) -> Store: ...

    def now(self, call: Coroutine[Any, Any, Any]) -> None:
        """Run a coroutine to its end without passing virtual time."""

    async def answered(self) -> bool:
        """Wait until the store has answered a request. False: there was none."""

    def close(self) -> None: ...


class InMemory:
    """Store that never waits."""

    def __init__(self, time: VirtualClock) -> None:
        self.core = MemoryCore(time)

    def open(self, writer: str) -> Store:
        return MemoryStore(self.core, writer)

    def now(self, call: Coroutine[Any, Any, Any]) -> None:
        try:
            call.send(None)
        except StopIteration:
            return
        raise AssertionError("it waited")

    async def answered(self) -> bool:
        return False

    def close(self) -> None:
        pass
