"""EventPoller: changes of another process, poll by poll, with a clock that only tests advance."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partialmethod
from pathlib import Path
from typing import Any

import pytest

from outlast.core.commit import Commit, Put
from outlast.core.rows.run_rows import EVENT, RUN, Event, Run
from outlast.errors import Corrupt, Unavailable
from outlast.service import event_poller
from outlast.service.event_broadcaster import EventBroadcaster
from outlast.service.event_poller import LATE_MS, EventPoller
from outlast.service.event_stream import EventListener
from outlast.store.queries import LoadMany, Moving, Page, Query
from outlast.store.sqlite.database import OFF, Database
from outlast.store.sqlite.store import SqliteStore
from tests.conformance.subject import (
    TENANT,
    HandClock,
    claimed,
    ended,
    event_row,
    run_row,
    start,
    the_run,
)
from tests.mutants import remove
from tests.service.conftest import PATIENCE_S, Running
from tests.service.test_event_broadcaster import all_from_now, heard_until_over

SEEN = 4  # the newest runs that every look sees, and the older ones that it sees in turn
MANY = 24  # so that a turn takes six looks
LONG = 10 * LATE_MS
QUIET_S = 3_600.0  # no heartbeat keeps a stream alive that hears nothing
Patch = pytest.MonkeyPatch


@pytest.fixture(autouse=True)
def few(monkeypatch: Patch) -> None:
    monkeypatch.setattr(event_poller, "RECENT", SEEN)


class Two:
    """Two stores on one file, for the service and another process, with one clock."""

    def __init__(self, path: Path) -> None:
        self.clock = HandClock()
        self.mine, self.theirs = (self._open(path, writer) for writer in ("mine", "theirs"))

    def _open(self, path: Path, writer: str) -> SqliteStore:
        database = Database(path, synchronous=OFF)
        database.migrate()
        return SqliteStore(database, writer, self.clock)

    async def wait(self, run: str, tenant: str = TENANT) -> None:
        """Start a waiting run, younger than those before."""
        self.clock.time += 1
        row = run_row(run, tenant, created_at=self.clock.time)
        await self.theirs.commit(start(row))

    async def move(self, run: str, *, end: bool, tenant: str = TENANT) -> Run:
        """Let the other process claim or end it, with an event of this moment."""
        row = await the_run(self.theirs, run, tenant)
        after = ended(row)._replace(ended_at=self.clock.time) if end else claimed(row, "w", await self.theirs.now())
        after = after._replace(seq=row.seq + 1)
        said = event_row(run, after.seq, tenant)._replace(at=self.clock.time)
        await self.theirs.commit(Commit((Put(RUN, after, row.version), Put(EVENT, said, 0))))
        return after

    async def sent(self, looking: EventPoller, runs: list[Run]) -> list[tuple[str, int]]:
        """Return the new events of these runs, as EventBroadcaster does."""
        found = []
        for run in runs:
            first = not looking.knows(run.run)
            for event in await self.mine.rows(EVENT, (run.tenant, run.run)):
                assert isinstance(event, Event)
                if looking.is_news(event, first=first):
                    found.append((event.run, event.seq))
        return found

    async def look(self, looking: EventPoller) -> list[tuple[str, int]]:
        return await self.sent(looking, await looking.moved())


@asynccontextmanager
async def many_wait(path: Path, *, oldest: str = "oldest") -> AsyncIterator[tuple[Two, EventPoller]]:
    """A run older than many others, all started long before the poller."""
    two = Two(path)
    try:
        await two.wait(oldest)
        for n in range(MANY):
            await two.wait(f"waits-{n}")
        two.clock.time += LONG
        looking = EventPoller(two.mine, TENANT)
        await looking.begin()
        yield two, looking
    finally:
        await two.theirs.close()
        await two.mine.close()


@pytest.mark.req("RUN-7")
@pytest.mark.parametrize("guarded", [True, False])
def test_the_next_poll_finds_an_old_run_of_another_process(tmp_path: Path, monkeypatch: Patch, guarded: bool) -> None:
    """While it is owned, and once it has ended. Without `moving`, only when its page is read."""
    if not guarded:
        remove("moves_not_indexed", monkeypatch)

    async def meet() -> None:
        async with many_wait(tmp_path / "s.db") as (two, looking):
            await two.move("oldest", end=False)
            assert await two.look(looking) == ([("oldest", 2)] if guarded else []), "not a word of what was before"
            await two.move("oldest", end=True)
            assert await two.look(looking) == ([("oldest", 3)] if guarded else [])
            late = [await two.look(looking) for _ in range(MANY)]
            assert [each for look in late for each in look] == ([] if guarded else [("oldest", 2), ("oldest", 3)])

    asyncio.run(meet())


@pytest.mark.req("RUN-7")
def test_an_end_that_was_committed_late_is_found(tmp_path: Path) -> None:
    """Its timestamp is before the last poll, which could not see it yet."""

    async def meet() -> None:
        async with many_wait(tmp_path / "s.db") as (two, looking):
            two.clock.time += LONG
            assert await two.look(looking) == []
            two.clock.time -= LATE_MS // 2  # the clock of its writer
            ended = await two.move("oldest", end=True)
            two.clock.time += LATE_MS
            assert ended.ended_at < (await two.mine.now()).business
            assert await two.look(looking) == [("oldest", 2)]

    asyncio.run(meet())


@pytest.mark.req("RUN-7")
def test_an_ended_run_is_sent_once_and_forgotten(tmp_path: Path) -> None:
    """Every poll returns it for a while. It stays known that long and at most two passes more."""

    async def meet() -> None:
        async with many_wait(tmp_path / "s.db") as (two, looking):
            for n in range(MANY):
                await two.move(f"waits-{n}", end=True)
            told = await two.look(looking)
            assert sorted(run for run, _ in told) == sorted(f"waits-{n}" for n in range(MANY))
            for _ in range(3 * MANY):
                two.clock.time += LATE_MS // 10
                assert await two.look(looking) == []
            assert not [n for n in range(MANY) if looking.knows(f"waits-{n}")]
            assert looking.knows("oldest"), "it waits still"

    asyncio.run(meet())


@pytest.mark.req("RUN-7")
def test_runs_owned_or_ended_before_are_not_sent(tmp_path: Path) -> None:
    """Also within the time between timestamp and commit, for any age of the run."""

    async def meet() -> None:
        async with many_wait(tmp_path / "s.db") as (two, _):
            await two.move("oldest", end=True)
            await two.move("waits-0", end=False)
            looking = EventPoller(two.mine, TENANT)
            await looking.begin()
            assert [await two.look(looking) for _ in range(MANY)] == [[]] * MANY
            await two.move("waits-0", end=True)
            assert await two.look(looking) == [("waits-0", 3)]

    asyncio.run(meet())


@pytest.mark.req("RUN-7")
def test_a_failed_poll_is_repeated(tmp_path: Path, monkeypatch: Patch) -> None:
    """For any length of the outage."""

    query = SqliteStore.query

    async def away(self: SqliteStore, kind: type, asked: Query[Any]) -> Any:
        if isinstance(asked, kind):
            raise Unavailable("away")
        return await query(self, asked)

    async def fails(looking: EventPoller) -> None:
        with pytest.raises(Unavailable):
            await looking.moved()

    async def meet() -> None:
        async with many_wait(tmp_path / "s.db") as (two, looking):
            await two.move("oldest", end=True)
            for kind in (Moving, LoadMany):
                monkeypatch.setattr(SqliteStore, "query", partialmethod(away, kind))
                for _ in range(3):
                    two.clock.time += LONG
                    await fails(looking)
                monkeypatch.setattr(SqliteStore, "query", query)
            assert await two.look(looking) == [("oldest", 2)]

    asyncio.run(meet())


@pytest.mark.req("RUN-7")
def test_results_of_one_poller_are_sent_although_the_next_fails(tmp_path: Path, monkeypatch: Patch) -> None:
    """An ended run is found for a few seconds only, so results must survive a failure of the poll."""
    moved = EventPoller.moved
    found: list[Run] = []
    failures = iter(range(3))

    async def trouble(self: EventPoller) -> list[Run]:
        if self is not first:
            for _ in failures if found else ():
                raise Unavailable("away")
            return []
        if found:
            return []  # its time is over
        found.extend(await moved(self))
        return list(found)

    async def meet() -> None:
        nonlocal first
        async with many_wait(tmp_path / "s.db") as (two, _):
            monkeypatch.setattr(EventPoller, "moved", trouble)
            live = EventBroadcaster(two.mine, heartbeat_s=QUIET_S)
            listener, _missed = await live.listen_to_all(TENANT, "")
            await live.listen_to_all("globex", "")
            first = live._tenants[TENANT]
            await two.move("oldest", end=True)
            async with asyncio.timeout(PATIENCE_S):
                assert b"run.moved" in (await listener.received())[0][1]
            assert next(failures, None) is None, "the other poller has failed"
            live.close()

    first: EventPoller | None = None
    asyncio.run(meet())


@pytest.mark.req("RUN-7")
def test_the_end_of_an_old_run_on_another_worker_is_sent(folder_url: str, monkeypatch: Patch) -> None:
    """Two services over one store: the one with the listener does nothing itself."""
    page = SqliteStore.page

    async def newest_only(self: SqliteStore, kind: object, *args: object, **more: object) -> Page:
        if kind is RUN and more.get("cursor"):
            return Page((), "")
        return await page(self, kind, *args, **more)  # type: ignore[arg-type]

    with Running(folder_url) as other, Running(folder_url, worker=False, heartbeat_s=QUIET_S) as service:
        oldest = other.start("wish", text="?")
        for _ in range(MANY):
            other.start("wish", text="?")
        other.until("/v1/runs?status=waiting&limit=500", lambda body: len(body["runs"]) == MANY + 1)
        before = other.get(f"/v1/runs/{oldest}").json()["version"]
        monkeypatch.setattr(SqliteStore, "page", newest_only)
        with all_from_now(service, monkeypatch) as everything:
            other.post(f"/v1/runs/{oldest}/signals/said", {"payload": {"text": "hi"}})
            found = heard_until_over(everything, {oldest})
    assert set(found) == {oldest}
    assert found[oldest][0] == before + 1
    assert found[oldest] == list(range(before + 1, found[oldest][-1] + 1)), "each once, in order"


@pytest.mark.req("RUN-7")
def test_kept_events_are_limited_by_size_too(tmp_path: Path, monkeypatch: Patch) -> None:
    """Results may be large. A listener that missed dropped events gets a gap."""
    own = EventPoller(Two(tmp_path / "outlast.db").mine, TENANT)
    frames = [own.keep(event_row("r", 1))]
    size = len(frames[0])
    monkeypatch.setattr(event_poller, "KEPT_BYTES", 3 * size + 2)
    frames += [own.keep(event_row("r", 1)) for _ in range(4)]
    ids = [frame.split(b"\n", 1)[0].removeprefix(b"id: ").decode() for frame in frames]
    assert [own.since(each) for each in ids] == [None, frames[2:], frames[3:], frames[4:], []]
    monkeypatch.setattr(event_poller, "KEPT_BYTES", size - 1)
    own.keep(event_row("r", 1))
    assert own.since(ids[-1]) is None, "the last one alone was too large"


def test_an_unreadable_event_ends_the_streams_of_its_run_only(tmp_path: Path, monkeypatch: Patch) -> None:
    """It ended every stream of the process, and again each time that a listener came back."""
    reads: list[str] = []
    rows = SqliteStore.rows

    async def read(self: SqliteStore, kind: Any, prefix: Any, **more: Any) -> Any:
        if kind is EVENT:
            reads.append(prefix[1])
            if prefix[1].startswith("bad"):
                raise Corrupt(f"event {prefix[0]}/{prefix[1]}/2: its at is no number")
        return await rows(self, kind, prefix, **more)

    async def numbers(listener: EventListener) -> list[int]:
        async with asyncio.timeout(PATIENCE_S):
            return [number for number, _ in await listener.received()]

    async def go() -> None:
        two = Two(tmp_path / "two.db")
        for run in ("bad", "good"):
            await two.wait(run)
        broadcaster = EventBroadcaster(two.mine, poll_s=0.01, heartbeat_s=QUIET_S)
        bad, good = [await broadcaster.listen(TENANT, run) for run in ("bad", "good")]
        of_all, _ = await broadcaster.listen_to_all(TENANT, "")
        monkeypatch.setattr(SqliteStore, "rows", read)
        two.clock.time += 1
        for run in ("bad", "good"):
            await two.move(run, end=False)
        assert await numbers(bad) == [] and bad.reopens, "its next stream names the event"
        assert await numbers(good) == [2]
        assert len(await numbers(of_all)) == 1
        await two.wait("bad-2")
        await two.wait("good-2")
        assert len(await numbers(of_all)) == 1, "of the run that can be read"
        await two.wait("good-3")
        assert len(await numbers(of_all)) == 1
        assert (reads.count("bad"), reads.count("bad-2")) == (1, 1), "it is not read again and again"
        broadcaster.close()
        await two.theirs.close()
        await two.mine.close()

    asyncio.run(go())
