"""One subscription: at most WIDTH runs are told at once, and no other subscription waits for it."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from outlast.core import deliveries
from outlast.core.budget import DELIVERY_CLAIM, IDLE_LOOK, SECOND, STORE_RETRY
from outlast.core.commit import Commit, Put, When
from outlast.core.outgoing import Cursor, Subscription
from outlast.core.rows import CURSOR, SUBSCRIPTION
from outlast.errors import Stale, StoreError
from outlast.outbox.post import Poster
from outlast.outbox.stream import Lost, Stream
from outlast.outbox.tools import Tools
from outlast.telemetry.outage import Outage

log = logging.getLogger("outlast.outbox")
WIDTH: Final = 8
AHEAD: Final = 4  # due cursors looked at for each that is taken: dispatchers choose among them by lot
DUE: Final = "due"


class Lane:
    """Takes what is due of one subscription, and sends it."""

    def __init__(self, tools: Tools, row: Subscription, make: Callable[[], Poster], width: int = WIDTH) -> None:
        self._tools = tools
        self._row = row
        self._poster = make()
        self._outage = Outage(f"webhook {row.subscription}", tools.clock)
        self._width = width
        self._streams: dict[str, asyncio.Task[None]] = {}  # by run
        self._wake = asyncio.Event()

    def wake(self) -> None:
        """There may be something to send."""
        self._wake.set()

    async def run(self) -> None:
        """Send until the subscription is not active any more, or the dispatcher stops; then end what is under way."""
        try:
            while not self._tools.stopping():
                self._wake.clear()
                try:
                    pause = await self._round()
                    self._outage.over()
                except StoreError as error:
                    self._outage.met("is told nothing", error)
                    pause = STORE_RETRY
                if pause is None:
                    break
                try:
                    async with asyncio.timeout(pause / SECOND):
                        await self._wake.wait()
                except TimeoutError:
                    pass
        finally:
            if self._streams:
                await asyncio.wait(set(self._streams.values()), timeout=DELIVERY_CLAIM / SECOND)
            for task in self._streams.values():
                task.cancel()
            await self._poster.close()

    async def _round(self) -> int | None:
        """Take what there is room for. Answers after how many ms to look again; None where it is not active."""
        store = self._tools.store
        row = await store.load(SUBSCRIPTION, (self._row.tenant, self._row.subscription))
        assert isinstance(row, Subscription), "it is removed, never deleted"
        self._row = row  # what is under way goes on by it, too
        if not deliveries.is_active(row):
            return None
        room = self._width - len(self._streams)
        if room <= 0:
            return IDLE_LOOK  # the end of a stream wakes
        owing = await store.owing(row.tenant, row.subscription, AHEAD * self._width)
        now = await store.now()
        due = [c for c in owing if (c.due_at or 0) <= now.real and c.run not in self._streams]
        await asyncio.gather(*(self._take(cursor) for cursor in self._chosen(due, room)))
        if len(due) > room:
            return IDLE_LOOK if len(self._streams) >= self._width else 1
        later = [c.due_at for c in owing if c.due_at is not None and c.due_at > now.real and not self._mine(c)]
        return max(1, min([IDLE_LOOK, *(at - now.real for at in later)]))

    def _mine(self, cursor: Cursor) -> bool:
        return cursor.run in self._streams

    def _chosen(self, due: Sequence[Cursor], room: int) -> Sequence[Cursor]:
        """By lot among the earliest, so that several dispatchers seldom want the same."""
        return sorted(due[: AHEAD * room], key=lambda _: self._tools.chance())[:room]

    async def _take(self, cursor: Cursor) -> None:
        begun, now = self._tools.clock.mono(), await self._tools.store.now()
        held = deliveries.hold(cursor, self._tools.dispatcher, now)
        still = When(cursor.due_at or 0, True, "real", DUE)
        commit = Commit((Put(CURSOR, held, cursor.version),), whens=(still,), label=f"{cursor.run} take cursor")
        try:
            await self._tools.store.commit(commit)
        except Stale:
            return  # another dispatcher was faster
        task = asyncio.create_task(self._send(held, begun + DELIVERY_CLAIM))
        self._streams[cursor.run] = task
        task.add_done_callback(lambda _: self._ended(cursor.run))

    def _ended(self, run: str) -> None:
        self._streams.pop(run, None)
        self._wake.set()

    async def _send(self, held: Cursor, until: int) -> None:
        try:
            await Stream(self._tools, self._poster, lambda: self._row, held, until).run()
        except Lost:
            pass  # whoever has the cursor sends from it
        except StoreError as error:
            log.warning("webhook %s, run %s: its cursor waits for the end of the claim: %s",
                        held.subscription, held.run, error.what)  # fmt: skip
        except Exception:  # a mistake of ours: the claim runs out and it is tried again, the lane goes on
            log.exception("webhook %s, run %s", held.subscription, held.run)
