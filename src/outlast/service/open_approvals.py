"""Presence of one service process: its open pages of approvals, and those that other processes announce."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

from outlast.clocks import new_nonce
from outlast.core.presence import ASKED, PRESENCE_S, RENEWALS, OpenPage, PresenceNote, PresenceTable, as_delta, note_of
from outlast.core.state.delta_packets import Delta
from outlast.store.port import DeltaChannel, Store

ANSWERS_S: Final = 0.05
"""Time that a process waits for the announcements of the others before its first answer."""
Watcher = tuple[str, Callable[[], None]]
"""Tenant, and the function that is called if the people who have one of its approvals open have changed."""


class Presence:
    """Open pages of approvals. A process that dies loses its own; the others forget them after `kept_s`.

    Without a DeltaChannel, a process knows its own pages only.
    """

    def __init__(self, store: Store, kept_s: float = PRESENCE_S) -> None:
        self._store = store
        self._tick_s = kept_s / RENEWALS / 2
        self._table = PresenceTable(kept_s)
        self._mine: dict[OpenPage, None] = {}
        self._watchers: dict[int, Watcher] = {}
        self._numbers = 0
        self._leave: Callable[[], None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._known_at = 0.0
        self._closed = False

    def open(self, tenant: str, approval: str, person: str) -> Callable[[], None]:
        """Announce an open page. Return the function that announces its end."""
        self._start()
        page = OpenPage(tenant, approval, person, new_nonce())
        self._mine[page] = None
        self._publish([PresenceNote(page)])

        def end() -> None:
            if page in self._mine:
                del self._mine[page]
                self._publish([PresenceNote(page, is_open=False)])

        return end

    def watch(self, tenant: str, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` if the open pages of a tenant change. Return the function that ends it."""
        self._start()
        self._numbers += 1
        number = self._numbers
        self._watchers[number] = (tenant, callback)

        def end() -> None:
            self._watchers.pop(number, None)

        return end

    async def others(self, tenant: str, approvals: Collection[str], me: str) -> dict[str, list[str]]:
        """Return by approval who else has it open."""
        self._start()
        loop = asyncio.get_running_loop()
        if loop.time() < self._known_at:
            await asyncio.sleep(self._known_at - loop.time())
        return self._table.people(tenant, approvals.__contains__, me, loop.time())

    def close(self) -> None:
        """Announce the end of each page, and listen no longer."""
        self._closed = True
        if self._mine and isinstance(self._store, DeltaChannel):
            self._store.publish([as_delta(PresenceNote(page, is_open=False)) for page in self._mine])
        self._mine.clear()
        self._watchers.clear()
        if self._leave is not None:
            self._leave()
        if self._task is not None:
            self._task.cancel()
        self._leave = self._task = None

    def _start(self) -> None:
        """Listen to the other processes, and ask for their pages, unless it is done."""
        if self._closed or (self._task is not None and not self._task.done()):
            return
        loop = asyncio.get_running_loop()
        if isinstance(self._store, DeltaChannel):
            self._leave = self._store.on_deltas(self._hear)
            self._known_at = loop.time() + ANSWERS_S
        self._publish([ASKED])
        self._task = asyncio.create_task(self._tick(), name="outlast-presence")

    async def _tick(self) -> None:
        """Announce the own pages again and forget those of processes that are silent."""
        while True:
            await asyncio.sleep(self._tick_s)
            self._publish([PresenceNote(page) for page in self._mine])
            self._tell(self._table.expired(asyncio.get_running_loop().time()))

    def _publish(self, notes: Sequence[PresenceNote]) -> None:
        if notes and isinstance(self._store, DeltaChannel):
            self._store.publish([as_delta(note) for note in notes])  # this process hears them, too
        elif notes:
            self._record(notes)

    def _hear(self, deltas: Sequence[Delta]) -> None:
        notes = [note for delta in deltas if (note := note_of(delta)) is not None]
        if ASKED in notes and self._mine:
            self._publish([PresenceNote(page) for page in self._mine])
        self._record(notes)

    def _record(self, notes: Iterable[PresenceNote]) -> None:
        now = asyncio.get_running_loop().time()
        self._tell([note.page for note in notes if self._table.note(note, now) and note.page is not None])

    def _tell(self, changed: Sequence[OpenPage]) -> None:
        tenants = {page.tenant for page in changed}
        for tenant, callback in list(self._watchers.values()):
            if tenant in tenants:
                callback()
