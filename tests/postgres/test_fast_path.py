"""A holder's batch lands in one round trip if its runs are known, with the same refusals as any other."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from outlast.core.commit import Commit, Done, Put
from outlast.core.machine import LeaseStatus
from outlast.core.rows.effect_rows import EFFECT, Effect
from outlast.core.rows.outbox_rows import UNPUBLISHED
from outlast.core.rows.run_rows import EVENT, RUN, Run
from outlast.core.rows.store_rows import META, STORE, WRITER, Writer
from outlast.core.webhooks.deliveries import subscribed_tenants_row
from outlast.errors import Stale, Unavailable
from outlast.store.postgres import session as landing
from outlast.store.postgres.store import PostgresStore, open_postgres
from tests.conformance import subject as make
from tests.mutants import remove
from tests.postgres import server
from tests.postgres.proxy import wire

MARK = "marks-this-row"  # the text at which the proxy cuts


@contextlib.asynccontextmanager
async def opened(*urls: str) -> AsyncIterator[list[PostgresStore]]:
    stores = [await open_postgres(url, writer=f"w{n}") for n, url in enumerate(urls)]
    try:
        yield stores
    finally:
        for store in stores:
            await store.close()


async def taken(store: PostgresStore, run: str = "run-1") -> Run:
    """Start and take a run through this store."""
    await store.commit(make.start(make.run_row(run)))
    (row,) = await store.take((make.LANE,), 1, make.claim_by(f"worker of {store.writer}"))
    return row


def advance(row: Run, label: str = "on") -> Commit:
    """Return the commit by which a holder advances."""
    seq = row.seq + 1
    return Commit(
        (
            Put(RUN, make.moved(row, status_label=label, seq=seq), row.version),
            Put(EVENT, make.event_row(row.run, seq), 0),
        ),
        make.fence(row),
        label=f"{row.run} advance",
    )


class Spoken:
    """The statements sent over the writing connection of a store."""

    def __init__(self, store: PostgresStore, patch: pytest.MonkeyPatch) -> None:
        self.said: list[str] = []
        for name in ("execute", "fetch", "fetchrow", "fetchval"):
            self._hear(store, patch, name)

    def _hear(self, store: PostgresStore, patch: pytest.MonkeyPatch, name: str) -> None:
        say: Any = getattr(landing.asyncpg.Connection, name)

        async def heard(db: Any, statement: str, *args: Any, **more: Any) -> Any:
            if db is store._session._db:
                self.said.append(statement)
            return await say(db, statement, *args, **more)

        patch.setattr(landing.asyncpg.Connection, name, heard)


def test_the_moves_of_known_runs_are_one_statement(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def live() -> None:
        async with opened(url) as (store,):
            rows = [await taken(store, f"run-{n}") for n in range(3)]
            spoken = Spoken(store, monkeypatch)
            effects = [make.effect_row(row.run) for row in rows]
            before = (await store.now()).real
            told = await asyncio.gather(*(store.commit(make.intend(e, r)) for e, r in zip(effects, rows, strict=True)))
            await asyncio.gather(
                *(store.commit(c) for e, r in zip(effects, rows, strict=True) for c in (make.record(e, r), advance(r)))
            )
            assert len(spoken.said) == 2, spoken.said
            after = (await store.now()).real
            assert all(before <= done.now.real <= after for done in told)
            for row in rows:
                assert (await make.the_run(store, row.run)).status_label == "on"
                (effect,) = await store.rows(EFFECT, (row.tenant, row.run))
                assert isinstance(effect, Effect) and effect.response == b'"ok"'

    asyncio.run(live())


@pytest.mark.req("RT-5")
def test_a_message_of_another_process_is_kept(url: str) -> None:
    """The known inbox_seq is outdated: the batch notices, and the move does not overwrite it (S-1)."""

    async def live() -> None:
        async with opened(url, url) as (mine, other):
            row = await taken(mine)
            await other.commit(make.append_message(make.message_row()))
            assert (await mine.commit(advance(row))).inbox_seq == 1
            found = await make.the_run(other)
            assert (found.inbox_seq, found.status_label) == (1, "on")

    asyncio.run(live())


@pytest.mark.req("REC-1")
def test_a_holder_that_was_replaced_writes_nothing(url: str) -> None:
    async def live() -> None:
        async with opened(url, url) as (mine, other):
            row = await taken(mine)
            (theirs,) = await other.take(
                (), 1, make.claim_by("worker of the other"), owners=(f"worker of {mine.writer}",)
            )
            for commit in (make.intend(make.effect_row(), row), advance(row)):
                with pytest.raises(Stale):
                    await mine.commit(commit)
            assert await make.the_run(other) == theirs and not await other.rows(EFFECT, (row.tenant, row.run))
            await other.commit(advance(theirs))

    asyncio.run(live())


def test_a_refused_commit_refuses_no_other(url: str) -> None:
    async def live() -> None:
        async with opened(url) as (store,):
            rows = [await taken(store, f"run-{n}") for n in range(3)]
            await store.commit(make.intend(make.effect_row("run-1"), rows[1]))
            asked = [store.commit(make.intend(make.effect_row(row.run), row)) for row in rows]
            answers = await asyncio.gather(*asked, return_exceptions=True)
            assert [type(answer) for answer in answers] == [Done, Stale, Done]

    asyncio.run(live())


def test_a_closed_writer_lands_nothing(url: str) -> None:
    async def live() -> None:
        async with opened(url, url) as (mine, other):
            row = await taken(mine)
            writer = await other.load(WRITER, (STORE, mine.writer))
            assert isinstance(writer, Writer)
            closed = writer._replace(status=LeaseStatus.CLOSED, version=writer.version + 1)
            await other.commit(Commit((Put(WRITER, closed, writer.version),)))
            with pytest.raises(Unavailable, match="closed"):
                await mine.commit(advance(row))
            assert await make.the_run(other) == row

    asyncio.run(live())


@pytest.mark.req("RT-5")
@pytest.mark.parametrize("when", ["before", "after"])
def test_the_result_of_a_statement_with_a_cut_connection_is_found(url: str, when: Any) -> None:
    """The receipt decides: cut after the statement it landed, cut before it did not (S-9)."""

    async def live() -> None:
        with wire(server.url()) as line:
            line.only = MARK.encode()
            async with opened(f"{line.url}?{url.partition('?')[2]}") as (store,):
                row = await taken(store)
                first = await store.commit(advance(row))
                row = await make.the_run(store)
                line.cut_next = when
                if when == "after":
                    done = await store.commit(advance(row, MARK))
                    assert done.now.real >= first.now.real
                else:
                    with pytest.raises(Unavailable):
                        await store.commit(advance(row, MARK))
                assert line.cuts == 1
                now = await make.the_run(store)
                assert now.status_label == (MARK if when == "after" else "on")
                await store.commit(advance(now, "later"))

    asyncio.run(live())


# --- each safeguard removed --------------------------------------------------------------------------
async def a_note_is_kept(url: str) -> bool:
    """Where another process leaves it after this one has last seen the run, which it then moves."""
    async with opened(url, url) as (mine, other):
        row = await taken(mine)
        await other.commit(make.append_message(make.message_row()))
        await mine.commit(advance(row))
        return (await make.the_run(other)).inbox_seq == 1


async def one_that_was_replaced_is_refused(url: str) -> bool:
    """Where it only inserts, so that no version of a row written tells."""
    async with opened(url, url) as (mine, other):
        row = await taken(mine)
        await other.take((), 1, make.claim_by("worker of the other"), owners=(f"worker of {mine.writer}",))
        with contextlib.suppress(Stale):
            await mine.commit(make.intend(make.effect_row(), row))
        return not await other.rows(EFFECT, (row.tenant, row.run))


async def an_event_is_noted_for_a_new_subscription(url: str) -> bool:
    """Where another process has subscribed after this one has last looked who does."""
    async with opened(url, url) as (mine, other):
        row = await taken(mine)
        await other.commit(Commit((Put(META, subscribed_tenants_row(None, (row.tenant,)), 0),)))
        await mine.commit(advance(row))
        return bool(await other.rows(UNPUBLISHED, (row.tenant, row.run)))


GUARDS: dict[str, Callable[[str], Coroutine[Any, Any, bool]]] = {
    "statement_without_inbox": a_note_is_kept,
    "statement_without_version": one_that_was_replaced_is_refused,
    "statement_without_owner": one_that_was_replaced_is_refused,
    "statement_without_subscriptions": an_event_is_noted_for_a_new_subscription,
}
"""Conditions of the statement, by the id of their removal, each with the check that fails without it."""


@pytest.mark.req("REC-1", "RT-5")
@pytest.mark.parametrize("mutant", GUARDS)
def test_each_condition_of_the_statement_is_needed(url: str, mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    holds = GUARDS[mutant]
    assert asyncio.run(holds(url))
    asyncio.run(server.drop(url.partition("schema=")[2]))
    remove(mutant, monkeypatch)
    assert not asyncio.run(holds(url))
