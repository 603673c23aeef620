"""Acknowledged commits are there, refused ones are not, and lost results of a COMMIT are found (S-7 to S-9)."""

import asyncio
import itertools
import threading
from typing import Any

import asyncpg
import pytest

from outlast.core.commit import Commit, Put
from outlast.core.rows.run_rows import EVENT, MESSAGE, RUN, Message, Run
from outlast.errors import Stale, StoreError, Unavailable, Uncertain
from outlast.store.postgres import statements
from outlast.store.postgres.store import PostgresStore, open_postgres
from tests.conformance import subject as make
from tests.mutants import remove
from tests.postgres import server
from tests.postgres.proxy import Wire, wire


async def moves(store: PostgresStore, row: Run, count: int) -> Run:
    for _ in range(count):
        await store.commit(make.put_run(row))
        row = make.moved(row)
    return row


def through(url: str, line: Wire) -> str:
    return f"{line.url}?{url.partition('?')[2]}"


@pytest.mark.req("RT-5")
@pytest.mark.parametrize("cut", ["before", "after"])
def test_the_result_of_a_commit_with_a_lost_answer_is_found(url: str, cut: Any) -> None:
    """Cut after the COMMIT: it landed. Cut before: it did not. Nothing is written twice."""

    async def live(line: Wire) -> None:
        store = await open_postgres(through(url, line), writer="w")
        await store.commit(make.start(make.run_row()))
        row = await make.the_run(store)
        told = []
        for n in range(20):
            line.cut_next = cut
            try:
                await store.commit(make.append_message(make.message_row(payload=b"%d" % n)))
                told.append(b"%d" % n)
            except Unavailable:
                pass  # cut before it, or ended by us before the server had come to it
        found = [message.payload for message in await make.messages(store)]
        assert line.cuts == 20
        assert found == told
        assert bool(found) == (cut == "after")
        await moves(store, await make.the_run(store), 3)
        assert (await make.the_run(store)).version == row.version + 3
        await store.close()

    with wire(server.url()) as line:
        asyncio.run(live(line))


def test_a_commit_whose_result_cannot_be_found_is_uncertain(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outlast.store.postgres.session.RESOLVE_S", 0.5)
    monkeypatch.setattr(statements, "END", "SELECT 1 WHERE $1::bigint > 0 AND $2::timestamptz IS NOT NULL")

    async def live(line: Wire) -> None:
        store = await open_postgres(through(url, line), writer="w")
        await store.commit(make.start(make.run_row()))
        line.cut_next = "after"
        with pytest.raises(Uncertain):
            await store.commit(make.append_message(make.message_row()))
        await store.close()

    with wire(server.url()) as line:
        asyncio.run(live(line))


def test_every_connection_may_be_cut_at_any_time(url: str) -> None:
    """After many cuts under load, each acknowledged message is there once, and no refused one is."""

    async def live(line: Wire) -> None:
        store = await open_postgres(through(url, line), writer="w")
        await store.commit(make.start(make.run_row()))
        told: list[bytes] = []
        unknown: list[bytes] = []

        async def post(n: int) -> None:
            payload = b"%d" % n
            try:
                await store.commit(make.append_message(make.message_row(payload=payload)))
                told.append(payload)
            except Unavailable:
                pass
            except Uncertain:
                unknown.append(payload)

        for n in range(30):
            posts = [asyncio.create_task(post(n * 10 + i)) for i in range(10)]
            await asyncio.sleep(0.003 * (n % 7))
            await asyncio.to_thread(line.cut_all)
            await asyncio.gather(*posts)
        found = [message.payload for message in await make.messages(store)]
        assert len(found) == len(set(found))
        assert set(told) <= set(found) <= set(told) | set(unknown)
        assert told, "some got through"
        await store.close()

    with wire(server.url()) as line:
        asyncio.run(live(line))


@pytest.mark.req("RT-5")
def test_the_server_dies_and_comes_back_and_nothing_acknowledged_is_lost(schema: str) -> None:
    """The server crashes while two writers commit, and recovers every acknowledged commit from its log."""
    own = server.Server()
    try:
        asyncio.run(_through_crashes(own, f"{own.url}?schema={schema}"))
    finally:
        own.close()


async def _through_crashes(own: server.Server, url: str) -> None:
    stores = [await open_postgres(url, writer=f"w{n}") for n in range(2)]
    for n in range(2):
        await stores[n].commit(make.start(make.run_row(f"run-{n}")))
    told: set[tuple[int, bytes]] = set()
    unknown: set[tuple[int, bytes]] = set()
    over = False

    async def keep_posting(which: int) -> None:
        n = 0
        while not over:
            n += 1
            payload = b"%d" % n
            try:
                await stores[which].commit(make.append_message(make.message_row(f"run-{which}", payload=payload)))
                told.add((which, payload))
            except Unavailable:
                await asyncio.sleep(0.02)
            except Uncertain:
                unknown.add((which, payload))

    tasks = [asyncio.create_task(keep_posting(which)) for which in range(2)]
    for _ in range(3):
        before = len(told)
        while len(told) < before + 50:  # noqa: ASYNC110 - no event reports the acknowledgements
            await asyncio.sleep(0.01)
        await asyncio.to_thread(own.kill)
        await asyncio.to_thread(own.start)
    over = True
    await asyncio.gather(*tasks)
    found = {
        (which, message.payload) for which in range(2) for message in await make.messages(stores[which], f"run-{which}")
    }
    assert told <= found <= told | unknown
    for store in stores:
        await store.close()


@pytest.mark.req("RT-5")
def test_a_commit_that_no_standby_has_is_not_acknowledged(schema: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A COMMIT that waits for a dead standby is Uncertain until the standby has it (S-9).

    Ending its session leaves the commit on this server alone, where a failover would lose it.
    """
    monkeypatch.setattr("outlast.store.postgres.session.RESOLVE_S", 2.0)
    own = server.Server()

    async def names(db: "asyncpg.Connection[Any]", standbys: str) -> None:
        await db.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{standbys}'")
        await db.execute("SELECT pg_reload_conf()")
        while await db.fetchval("SHOW synchronous_standby_names") != standbys:  # noqa: ASYNC110 - the server reads it soon
            await asyncio.sleep(0.01)

    async def waits(db: "asyncpg.Connection[Any]", other: "asyncpg.Connection[Any]") -> "asyncio.Task[Any]":
        """Start a commit that waits for a standby. The checkpointer applies the setting after a session shows it."""
        for n in itertools.count():
            commit = asyncio.create_task(other.execute(f"CREATE TABLE probe_{n} ()"))
            while not commit.done():
                if await db.fetchval("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"):
                    return commit
        raise AssertionError("unreachable")

    async def live() -> None:
        store = await open_postgres(f"{own.url}?schema={schema}", writer="w")
        store._session._answer_s = 1.0
        await store._session.drop()
        await store.commit(make.start(make.run_row()))
        db, other = await asyncpg.connect(own.url), await asyncpg.connect(own.url)
        await names(db, "nobody")
        commit = await waits(db, other)
        with pytest.raises(Uncertain):
            await store.commit(make.append_message(make.message_row(payload=b"here alone")))
        await names(db, "")
        await commit
        await other.close()
        await db.close()
        await store.commit(make.append_message(make.message_row(payload=b"later")))
        assert [message.payload for message in await make.messages(store)] == [b"here alone", b"later"]
        await store.close()

    try:
        asyncio.run(live())
    finally:
        own.close()


# --- the fence -----------------------------------------------------------------------------
def test_an_expected_row_is_locked(url: str) -> None:
    """Two commits that each move one run and expect the other: one is refused (S-8)."""
    assert asyncio.run(_crossed(url)) == 1


def test_without_that_lock_both_commits_land(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Removed safeguard: without the lock on expected rows, both commits land."""
    remove("expected_rows_not_locked", monkeypatch)
    both = [asyncio.run(_crossed(f"{url}{n}")) for n in range(12)]
    for n in range(12):
        asyncio.run(server.drop(f"{url.rpartition('=')[2]}{n}"))
    assert 2 in both


async def _crossed(url: str) -> int:
    stores = [await open_postgres(url, writer=f"w{n}") for n in range(2)]
    rows = [make.run_row(f"run-{n}") for n in range(2)]
    for row in rows:
        await stores[0].commit(make.start(row))
    commits = [
        Commit((Put(RUN, make.moved(rows[n], status_label=f"by {n}"), 1),), expects=(make.expect_run(rows[1 - n]),))
        for n in range(2)
    ]
    start = threading.Barrier(2)
    outcomes: list[object] = []

    def land(n: int) -> None:
        start.wait()
        try:
            outcomes.append(asyncio.run(stores[n].commit(commits[n])))
        except Stale as stale:
            outcomes.append(stale)

    threads = [threading.Thread(target=land, args=(n,)) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join)
    for store in stores:
        await store.close()
    return sum(not isinstance(outcome, StoreError) for outcome in outcomes)


def test_a_locked_row_does_not_delay_other_commits(url: str) -> None:
    """With a foreign lock on one run, commits of other runs land, and its own lands after the release."""

    async def live() -> None:
        store = await open_postgres(url, writer="w")
        for n in range(2):
            await store.commit(make.start(make.run_row(f"run-{n}")))
        stranger = await asyncpg.connect(server.url())
        await stranger.execute("BEGIN")
        await stranger.execute(f"SELECT 1 FROM {url.rpartition('=')[2]}.run WHERE run = 'run-0' FOR UPDATE")
        held = asyncio.ensure_future(store.commit(make.append_message(make.message_row("run-0"))))
        await store.commit(make.append_message(make.message_row("run-1")))
        assert not held.done()
        await stranger.execute("ROLLBACK")
        await stranger.close()
        await held
        assert len(await make.messages(store, "run-0")) == 1
        await store.close()

    asyncio.run(live())


def test_one_refused_commit_refuses_no_other(url: str) -> None:
    async def live() -> None:
        store = await open_postgres(url, writer="w")
        await store.commit(make.start(make.run_row()))
        event = Put(EVENT, make.event_row(seq=1), 0)  # there already
        outcomes = await asyncio.gather(
            store.commit(make.append_message(make.message_row(payload=b"1"))),
            store.commit(Commit((event,))),
            store.commit(make.append_message(make.message_row(payload=b"2"))),
            return_exceptions=True,
        )
        assert [isinstance(outcome, StoreError) for outcome in outcomes] == [False, True, False]
        rows = await store.rows(MESSAGE, (make.TENANT, "run-1"))
        assert [row.payload for row in rows if isinstance(row, Message)] == [b"1", b"2"]
        await store.close()

    asyncio.run(live())


# --- waking --------------------------------------------------------------------------------
@pytest.mark.req("GATE-2")
def test_a_listener_hears_of_a_due_run_after_its_connection_was_cut(url: str) -> None:
    async def live(line: Wire) -> None:
        one = await open_postgres(url, writer="one")
        two = await open_postgres(through(url, line), writer="two")
        heard = asyncio.Event()
        two.on_change(heard.set)
        await asyncio.wait_for(heard.wait(), 10)  # it listens
        heard.clear()
        await one.commit(make.start(make.run_row()))
        await asyncio.wait_for(heard.wait(), 10)
        await asyncio.to_thread(line.cut_all)
        heard.clear()
        await asyncio.wait_for(heard.wait(), 20)  # it listens again
        heard.clear()
        await one.commit(make.start(make.run_row("run-2")))
        await asyncio.wait_for(heard.wait(), 10)
        await one.close()
        await two.close()

    with wire(server.url()) as line:
        asyncio.run(live(line))


def test_a_renewal_does_not_wait_for_a_batch(url: str) -> None:
    """The renewal lands while a foreign lock on the writer's receipt blocks the batch."""

    async def live() -> None:
        store = await open_postgres(url, writer="w")
        await store.commit(make.start(make.run_row()))
        stranger = await asyncpg.connect(server.url())
        await stranger.execute("BEGIN")
        await stranger.execute(f"SELECT 1 FROM {url.rpartition('=')[2]}.writer WHERE id = 'w' FOR UPDATE")
        waits = asyncio.ensure_future(store.commit(make.append_message(make.message_row())))
        await asyncio.wait_for(asyncio.to_thread(store.urgent_sync, Commit(make.puts(make.worker_row()))), 20)
        assert not waits.done()
        await stranger.execute("ROLLBACK")
        await stranger.close()
        await waits
        await store.close()

    asyncio.run(live())
