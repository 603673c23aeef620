"""Each query of a DynamoDB store has a plan, which finds the same answer as memory, however its pages are cut."""

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from outlast.core.commit import AppendMessage, Commit, Put
from outlast.core.machine import RunStatus
from outlast.core.rows.all_kinds import KINDS, Row
from outlast.core.rows.effect_rows import EFFECT
from outlast.core.rows.row_kind import AnyKind, key_of
from outlast.core.rows.run_rows import EVENT, FLAGGING, MESSAGE, RUN, Flagging
from outlast.core.rows.store_rows import META, WRITER
from outlast.errors import StoreError
from outlast.store.bars import BarSpan, EndBars, FlaggedBars
from outlast.store.dynamodb import plans, reads
from outlast.store.dynamodb.plans import PLANS
from outlast.store.dynamodb.store import DynamoStore, open_dynamodb
from outlast.store.memory import MemoryCore, MemoryStore
from outlast.store.queries import ORDER, Newest, Owing, Owned, Query, Queued, Under
from tests.conformance import subject as make
from tests.conformance.subject import T0, HandClock
from tests.dynamodb import server
from tests.dynamodb.prices import PRICES
from tests.store.test_query_plans import queries

TENANTS = ("acme", "ac#me", "b$")
RUNS = ("run-1", "run-2", "run-2#3", "räu")
TEXTS = ("w", "wh", "x", "k", "k#1", "model", "a@1")
NUMBERS = (1, 2, 7, 10, 20_000, T0)


def test_every_query_has_a_plan_and_a_price() -> None:
    assert set(PLANS) == set(PRICES)
    assert {kind.__name__ for kind in PLANS} == {kind.__name__ for kind in Query.__subclasses__()}


def test_the_page_shows_every_price() -> None:
    page = (Path(__file__).parents[2] / "docs/dynamodb.md").read_text(encoding="utf-8")
    shown = page.partition("| read | read units |\n|---|---|\n")[2].partition("\n\n")[0]
    assert [f"| {each.read} | {each.units} |" for each in PRICES.values()] == shown.splitlines()


def _value(hint: Any, dice: random.Random) -> Any:
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return dice.choice(list(hint))
    if hint is str:
        return dice.choice(TEXTS)
    if hint in (bytes, bytes | None):
        return b"{}"
    return dice.choice(NUMBERS)


def _row(kind: AnyKind, dice: random.Random) -> Row:
    """Return a row of any kind with values that collide with those of other rows."""
    tenant, run = dice.choice(TENANTS), dice.choice(RUNS)
    if kind is RUN:
        row = make.run_row(run, tenant, created_at=T0 + dice.randrange(3), lane=dice.choice(("a@1", "b@1")))
        how = dice.randrange(4)
        if how == 0:
            return row._replace(owner="w", status=RunStatus.RUNNING, due_at=T0 + 9, epoch=1)
        if how == 1:
            return row._replace(queue=dice.choice(("acme", "*")), due_at=dice.choice((T0, T0 + 1)))
        return make.ended(row)._replace(version=1, ended_at=T0 + dice.randrange(3)) if how == 2 else row
    if kind is EVENT:
        return make.event_row(run, dice.randrange(1, 30), tenant)
    if kind is EFFECT:
        effect = make.effect_row(run, dice.choice(("k", "k#1")), tenant, dice.choice((0, 1, 7)))
        effect = effect._replace(epoch=dice.choice((1, 2)), first_at=T0 + dice.randrange(3))
        return effect._replace(run="", visit=0, by_run=run) if dice.random() < 0.3 else effect
    hints = list(get_type_hints(kind.row).values())
    row = kind.row._make([_value(hint, dice) for hint in hints])
    names = {"tenant": tenant} | ({"run": run} if "run" in kind.row._fields else {})
    names |= {"version": 1} if kind.versioned else {}
    return row._replace(**names)  # type: ignore[no-any-return]


@asynccontextmanager
async def worlds(env: str, seed: int, rows: int) -> AsyncIterator[tuple[MemoryCore, DynamoStore]]:
    """Write the same rows of all kinds to a memory store and to one in DynamoDB."""
    dice = random.Random(seed)
    core = MemoryCore(HandClock())
    memory = MemoryStore(core, "memory")
    store = await open_dynamodb(server.url(env), writer="w", clock=HandClock())
    try:
        kinds = [kind for kind in KINDS if kind not in (WRITER, META)]
        landing = []
        for kind in kinds * rows:
            if kind is MESSAGE:
                message = make.message_row(dice.choice(RUNS), tenant=dice.choice(TENANTS))
                commit = Commit((AppendMessage(message),))
            else:
                commit = Commit((Put(kind, _row(kind, dice), 0),))
            try:
                await memory.commit(commit)
            except StoreError:
                continue  # the row exists, or the run of the message does not
            landing.append(store.submit(commit))
        await asyncio.gather(*landing)
        yield core, store
    finally:
        await store.close()


def _more() -> Iterator[Query[Any]]:
    for tenant in TENANTS:
        yield from (Newest(kind, tenant, limit=3) for kind in KINDS if kind.name in ORDER and kind is not WRITER)
        yield from (Under(kind, (tenant,)) for kind in KINDS if kind is not WRITER)
        yield from (Queued(tenant, 2), Owing(tenant, "wh", 2), Newest(RUN, tenant, (("status", "running"),), limit=1))
        yield Newest(EFFECT, tenant, (("run", "run-1"),))
    yield from (Under(kind, ()) for kind in KINDS if kind is not WRITER)
    yield from (Owned("w"), Queued("*", 3))


async def _pages(store: DynamoStore, query: Newest[Any]) -> list[Row]:
    found: list[Row] = []
    while True:
        page = await store.query(query)
        found += page.rows
        if not page.cursor:
            return found
        query = Newest(query.kind, query.tenant, query.where, page.cursor, query.limit)


@pytest.mark.parametrize("page_limit", [None, 3])
def test_every_answer_is_that_of_memory(page_limit: int | None, env: str) -> None:
    async def live() -> None:
        async with worlds(env, 7, 6) as (core, store):
            store._reads.items.page_limit = page_limit
            asked = [query for query in (*queries().values(), *_more()) if getattr(query, "kind", None) is not WRITER]
            found = await asyncio.gather(*map(store.query, asked))
            for query, answer in zip(asked, found, strict=True):
                assert answer == query.find(core.rows), query

    asyncio.run(live())


def test_ends_beyond_the_limit_are_not_all_counted(env: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "FLAGGED_MAX", 1)

    async def live() -> None:
        async with worlds(env, 7, 6) as (_, store):
            store._reads.items.page_limit = 1
            for n in (1, 2):
                row = make.ended(make.run_row(f"end-{n}", "fresh"))._replace(version=1, status=RunStatus.FAILED)
                await store.commit(make.start(row))
                found = await store.query(EndBars("fresh", BarSpan(T0, 10, 1)))
                assert (sum(found.counts[1]), found.all) == (n, n == 1)
                await store.commit(
                    Commit((Put(FLAGGING, Flagging("fresh", f"end-{n}", 2, T0, " a/b ", "w", "w@1"), 0),))
                )
                flags = await store.query(FlaggedBars("fresh", BarSpan(T0, 10, 1)))
                assert (flags.counts, flags.all) == (((n,),), n == 1)

    asyncio.run(live())


def test_pages_together_are_the_whole_list(env: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list goes on after its cursor, a read of all rows after the last key, also if one scan does not find all."""
    monkeypatch.setattr(reads, "WALK_MAX", 5)

    async def live() -> None:
        async with worlds(env, 8, 6) as (core, store):
            for kind in (RUN, EFFECT, EVENT):
                for tenant in TENANTS:
                    found = await _pages(store, Newest(kind, tenant, limit=2))
                    assert found == list(Newest(kind, tenant, limit=999).find(core.rows).rows), (kind.name, tenant)
                walked: list[Row] = []
                while page := await store.rows(kind, (), after=key_of(kind, walked[-1]) if walked else (), limit=3):
                    walked += page
                assert walked == core.rows.under(kind, ()), kind.name

    asyncio.run(live())
