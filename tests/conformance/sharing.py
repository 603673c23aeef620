"""Promises about effects that all runs of a tenant share: who reads them, and how long they are kept (S-18)."""

import asyncio

from outlast.core.commit import Commit, Put
from outlast.core.durations import ANSWERS_KEPT
from outlast.core.generation import LEDGERS, ledgers_of
from outlast.core.machine import EffectStatus
from outlast.core.rows.effect_rows import EFFECT, EVIDENCE, MEMO, USAGE, Effect, Evidence, Memo, Usage
from outlast.core.rows.run_rows import EVENT, RUN, TOKEN
from outlast.core.rows.store_rows import META, REQUEST, Request
from outlast.store.open_calls import OpenCalls
from outlast.store.port import LEDGER_KINDS, Store
from tests.conformance.subject import (
    T0,
    TENANT,
    Subject,
    done,
    effect_row,
    ended,
    fence,
    held,
    puts,
    refused_for,
    the_run,
    token_row,
    two,
)

DAY = 86_400_000


def _shared(key: str = "refund/7", by_run: str = "run-1", keep_ms: int = 0) -> Effect:
    return effect_row(run="", key=key, visit=0)._replace(by_run=by_run, keep_ms=keep_ms)


def _usage(run: str, key: str = "refund/7") -> Put:
    return Put(USAGE, Usage(TENANT, run, key, T0), 0)


async def a_run_reads_the_effects_it_shares(s: Subject) -> None:
    """The rows of a run include exactly the shared effects that its usage rows name."""
    a, b = await two(s)
    first, second = await held(a), await held(a, "run-2")
    for key, by in (("refund/7", "run-1"), ("refund/8", "run-1"), ("refund/9", "run-2")):
        await a.commit(Commit((Put(EFFECT, _shared(key, by), 0), _usage(by, key)), fence(first)))
    await b.commit(Commit((_usage("run-2"),), fence(second)))
    await b.commit(Commit((Put(EFFECT, effect_row("run-2"), 0),), fence(second)))
    one, two_, none = await b.run_rows(((TENANT, "run-1"), (TENANT, "run-2"), (TENANT, "run-3")))
    assert one is not None and two_ is not None and none is None
    assert ([e.key for e in one.shared], one.effects) == (["refund/7", "refund/8"], ())
    assert [(e.key, e.by_run) for e in two_.shared] == [("refund/7", "run-1"), ("refund/9", "run-2")]
    assert [e.key for e in two_.effects] == ["invite/1"]
    assert one.shared[0] == _shared() and type(one.shared[0].status) is EffectStatus
    page = await b.page(USAGE, TENANT, {"key": "refund/7"})
    assert {row[1] for row in page.rows} == {"run-1", "run-2"}


async def open_calls_are_found_by_run(s: Subject) -> None:
    """`OpenCalls` returns the lowest epoch of the open calls of each run: its visit, the run and the tenant (OBS-4)."""
    a, b = await two(s)
    own, once, shared, idle = [await held(a, f"run-{n}") for n in range(1, 5)]
    at = {row.run: row.visit for row in (own, once, shared, idle)}
    asked = OpenCalls(TENANT, (*at.items(), ("none", 1)))
    assert await b.query(asked) == {}
    for n, key in ((5, "invite/1"), (3, "invite/2")):
        row = effect_row("run-1", key, visit=own.visit)._replace(epoch=n)
        await a.commit(Commit((Put(EFFECT, row, 0),), fence(own)))
    open_ = effect_row("run-2", visit=0)
    await a.commit(Commit((Put(EFFECT, open_, 0),), fence(once)))
    await a.commit(Commit((Put(EFFECT, _shared(by_run="run-3"), 0), _usage("run-3")), fence(shared)))
    await a.commit(Commit((_usage("run-4"),), fence(idle)))  # it waits for the call of run-3
    epoch = effect_row().epoch
    assert await b.query(asked) == {"run-1": 3, "run-2": epoch, "run-3": epoch}
    assert await b.query(OpenCalls(TENANT, (("run-3", 1),))) == {"run-3": epoch}
    assert await b.query(OpenCalls(TENANT, (("run-1", own.visit + 1),))) == {}, "of another visit"
    assert await b.query(OpenCalls("globex", tuple(at.items()))) == {}
    await a.commit(Commit((Put(EFFECT, done(open_), 1),), fence(once)))
    assert "run-2" not in await b.query(asked), "settled"


async def one_of_two_runs_writes_a_shared_effect(s: Subject) -> None:
    """If two runs write the same shared effect under their claims, one lands and the other is stale."""
    a, b = await two(s)
    first, second = await held(a), await held(b, "run-2")
    row = _shared()
    await a.commit(Commit((Put(EFFECT, row, 0), _usage("run-1")), fence(first)))
    late = Commit((Put(EFFECT, row._replace(by_run="run-2"), 0), _usage("run-2")), fence(second))
    await refused_for("version", b.commit(late))
    await a.commit(Commit((Put(EFFECT, done(row), 1),), fence(first)))
    used = done(row)._replace(version=3, shared=1)
    await b.commit(Commit((Put(EFFECT, used, 2), _usage("run-2")), fence(second)))
    await refused_for("version", a.commit(Commit((Put(EFFECT, used._replace(shared=2), 2),), fence(first))))
    assert await a.load(EFFECT, row[:4]) == used


async def a_shared_effect_outlives_its_runs(s: Subject) -> None:
    """`purge` deletes a shared effect `keep_ms` after it was settled, once no run names it.

    Effects without a limit, open effects and start keys stay.
    """
    a, b = await two(s)
    mine = await held(a)
    kept = {"ever": 0, "long": 9 * DAY, "short": DAY}
    for key, keep_ms in kept.items():
        row = done(_shared(key, keep_ms=keep_ms))._replace(version=1)
        await a.commit(Commit((Put(EFFECT, row, 0), _usage("run-1", key)), fence(mine)))
    await a.commit(
        Commit((Put(EFFECT, _shared("unsettled", keep_ms=DAY), 0), Put(EFFECT, effect_row(), 0)), fence(mine))
    )
    await a.commit(Commit(puts(token_row())))
    s.clock.time = T0 + 2 * DAY
    assert await b.purge(T0, 10) == 0
    assert await _keys(b) == ["ever", "long", "short", "unsettled"], "a run that used it is still known"
    await a.commit(Commit((Put(RUN, ended(mine), mine.version),)))
    assert await b.purge(T0 + DAY, 10) == 1
    assert await b.rows(USAGE, (TENANT,)) == ()
    assert await _keys(b) == ["ever", "long", "unsettled"]
    s.clock.time = T0 + 10 * DAY
    assert await b.purge(T0 + DAY, 10) == 0
    assert await _keys(b) == ["ever", "unsettled"]
    assert await b.load(TOKEN, token_row()[:3]) == token_row()


async def a_ledger_goes_before_its_run(s: Subject) -> None:
    """`purge_ledgers` deletes effects, memos and late answers of runs that ended before an instant.

    It takes at most n runs, in the order of their ends, and each run once, unless two processes do so at once. All
    other rows of the runs stay, and so do
    the effects of unfinished runs and those that the tenant shares.
    """
    a, b = await two(s)
    for i in range(5):
        mine = await held(a, f"run-{i}")
        effect = effect_row(mine.run)
        memo = Memo(TENANT, mine.run, 1, "look/1", "look", "d", b"1", "", T0)
        late = Evidence(TENANT, mine.run, 1, effect.key, 1, "{}", T0)
        shared = done(_shared(mine.run, mine.run, keep_ms=1))._replace(version=1)
        ledger = (Put(EFFECT, effect, 0), Put(MEMO, memo, 0), Put(EVIDENCE, late, 0), Put(EFFECT, shared, 0))
        await a.commit(Commit((*ledger, *puts(token_row(mine.run)), _usage(mine.run, mine.run))))
        if i:  # they end in the order 4, 3, 2, 1
            await a.commit(Commit((Put(RUN, ended(mine)._replace(ended_at=T0 + 10 - i), mine.version),)))
    assert await b.load(META, LEDGERS) is None
    assert await b.purge_ledgers(T0 + 6, 10) == 0
    assert [await _ledger(b, f"run-{i}") for i in range(5)] == [3] * 5
    assert await b.purge_ledgers(T0 + 9, 1) == 1
    assert [await _ledger(b, f"run-{i}") for i in range(5)] == [3, 3, 3, 3, 0]
    mark, four = ledgers_of(await a.load(META, LEDGERS)), await the_run(a, "run-4")
    assert mark.last == (four.ended_at, TENANT, "run-4")
    assert mark.has(four, T0) and not any([mark.has(await the_run(a, f"run-{i}"), T0) for i in range(4)])
    assert await a.purge_ledgers(T0 + 9, 10) == 2
    assert [await _ledger(b, f"run-{i}") for i in range(5)] == [3, 3, 0, 0, 0]
    assert (await a.purge_ledgers(T0 + 9, 10), await b.purge_ledgers(T0, 10)) == (0, 0)
    mark = ledgers_of(await b.load(META, LEDGERS))
    assert [mark.has(await the_run(b, f"run-{i}"), T0) for i in range(5)] == [False, False, True, True, True]
    assert max(await asyncio.gather(a.purge_ledgers(T0 + 99, 10), b.purge_ledgers(T0 + 99, 10))) == 1
    assert [await _ledger(b, f"run-{i}") for i in range(5)] == [3, 0, 0, 0, 0]
    assert await _keys(b) == [f"run-{i}" for i in range(5)], "shared by the tenant"
    (rows,) = await b.run_rows(((TENANT, "run-4"),))
    assert rows is not None and rows.run == four and [e.key for e in rows.shared] == ["run-4"]
    assert len(await b.rows(EVENT, (TENANT, "run-4"))) == 1
    assert await b.load(TOKEN, token_row("run-4")[:3]) == token_row("run-4")
    assert await b.purge(T0 + 99, 10) == 4


async def _ledger(store: Store, run: str) -> int:
    return sum([len(await store.rows(kind, (TENANT, run))) for kind in LEDGER_KINDS])


async def a_stored_answer_is_kept_for_a_week(s: Subject) -> None:
    """`forget` deletes answers to requests after ANSWERS_KEPT, the oldest first, at most n.

    Younger answers and answers that were replaced since stay.
    """
    a, b = await two(s)
    rows = [Request(TENANT, f"key-{i}", 1, "ana", "hold", "digest", 201, "{}", b"answer", T0 + i) for i in range(5)]
    for row in rows:
        await a.commit(Commit((Put(REQUEST, row, 0),)))
    s.clock.time = T0 + ANSWERS_KEPT
    assert await b.forget(10) == 0
    assert await b.purge(T0 + ANSWERS_KEPT, 10) == 0
    assert await a.rows(REQUEST, (TENANT,)) == tuple(rows)
    s.clock.time = T0 + ANSWERS_KEPT + 4
    anew = rows[1]._replace(version=2, at=T0 + ANSWERS_KEPT)
    await a.commit(Commit((Put(REQUEST, anew, 1),)))
    assert await b.forget(2) == 2
    assert await a.rows(REQUEST, (TENANT,)) == (anew, *rows[3:])
    assert sorted(await asyncio.gather(a.forget(2), b.forget(2))) == [0, 1]
    assert await a.forget(2) == 0
    assert await a.rows(REQUEST, (TENANT,)) == (anew, rows[4])


async def _keys(store: Store) -> list[str]:
    return [str(row[3]) for row in await store.rows(EFFECT, (TENANT, ""))]
