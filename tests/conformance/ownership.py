"""Promises about the holder of a run: taking, fencing, closing (S-2, S-8)."""

import asyncio

from outlast.core.commit import Commit, Expect, Instant, Mapping, Put
from outlast.core.rows.effect_rows import EFFECT
from outlast.core.rows.limit_rows import SLOT
from outlast.core.rows.run_rows import RUN, TOKEN, Run, Token
from outlast.errors import Ended, Stale
from outlast.store.port import Store
from outlast.store.queries import Owned
from tests.conformance.subject import (
    LANE,
    T0,
    Subject,
    claim_by,
    claimed,
    effect_row,
    ended,
    fence,
    held,
    intend,
    moved,
    outcome,
    parked,
    put_run,
    puts,
    record,
    refused,
    refused_for,
    run_row,
    slot_row,
    start,
    the_run,
    token_row,
    two,
)


async def no_run_is_taken_twice(s: Subject) -> None:
    """If several workers take at once, each due run is taken by exactly one (REC-1, REC-5)."""
    a, b = await two(s)
    await asyncio.gather(*(a.commit(start(run_row(f"run-{i:02}"))) for i in range(60)))

    async def taker(store: Store, name: str) -> list[Run]:
        mine: list[Run] = []
        while some := await store.take((LANE,), 7, claim_by(name)):
            mine += some
        return mine

    names = [(store, f"worker-{i}{store.writer}") for i in range(3) for store in (a, b)]
    taken = await asyncio.gather(*(taker(store, name) for store, name in names))
    for (_, name), mine in zip(names, taken, strict=True):
        for run in mine:
            assert await the_run(a, run.run) == run
            assert (run.owner, run.epoch) == (name, 1)
    assert sorted(run.run for mine in taken for run in mine) == [f"run-{i:02}" for i in range(60)]


async def the_oldest_due_is_taken_first(s: Subject) -> None:
    """`take` moves at most n due runs of the lanes, oldest due first, and returns the rows after the move."""
    a, b = await two(s)
    for name, due_at, lane in (
        ("late", T0 - 10, LANE), ("old", T0 - 30, "other@2"), ("new", T0, LANE), ("older", T0 - 40, LANE),
        ("not-yet", T0 + 1, LANE), ("not-ours", T0 - 50, "foreign@1"),
    ):  # fmt: skip
        await a.commit(start(run_row(name, due_at=due_at, lane=lane)))
    first = await b.take((LANE, "other@2"), 3, claim_by("worker-1"))
    assert [run.run for run in first] == ["older", "old", "late"]
    assert all(run.owner == "worker-1" for run in first)
    assert [run.run for run in await a.take((LANE, "other@2"), 9, claim_by("worker-2"))] == ["new"]
    assert await b.take((LANE, "other@2"), 9, claim_by("worker-1")) == ()


async def a_run_past_its_budget_can_be_taken(s: Subject) -> None:
    """A run whose holder has used up its budget is due. Before that it is not."""
    a, b = await two(s)
    mine = await held(a)
    assert await b.take((LANE,), 5, claim_by("worker-2")) == ()
    s.clock.time = mine.due_at or 0
    (taken,) = await b.take((LANE,), 5, claim_by("worker-2"))
    assert (taken.owner, taken.epoch) == ("worker-2", mine.epoch + 1)


async def runs_are_taken_by_owner(s: Subject) -> None:
    """If owners are named, their runs are taken, due or not, and no others."""
    a, b = await two(s)
    await held(a, "run-1", "silent")
    await held(a, "run-2", "healthy")
    await held(a, "run-3", "silent")
    taken = await b.take((LANE,), 5, claim_by("worker-2"), owners=("silent",))
    assert sorted(run.run for run in taken) == ["run-1", "run-3"]
    assert (await the_run(a, "run-2")).owner == "healthy"
    assert await a.take((LANE,), 5, claim_by("worker-3"), owners=("silent",)) == ()
    assert [run.run for run in await a.query(Owned("worker-2"))] == ["run-1", "run-3"]


async def a_step_may_decline(s: Subject) -> None:
    """A run is unchanged if its step returns None or its commit is stale. The others are taken."""
    a, b = await two(s)
    for name in ("run-1", "run-2", "run-3"):
        await a.commit(start(run_row(name)))

    def step(run: Run, now: Instant, mapping: Mapping) -> Commit | None:
        if run.run == "run-1":
            return None
        expects = (Expect(TOKEN, ("acme", "", "x"), 1),) if run.run == "run-2" else ()
        return Commit((Put(RUN, claimed(run, "worker-1", now), run.version),), expects=expects)

    assert [run.run for run in await b.take((LANE,), 5, step)] == ["run-3"]
    assert await the_run(a, "run-1") == run_row("run-1")
    assert await the_run(a, "run-2") == run_row("run-2")


async def an_error_in_a_step_affects_its_taker_only(s: Subject) -> None:
    """A step that raises takes nothing. The taker gets its error, and no other commit is refused."""
    a, _ = await two(s)
    await a.commit(start(run_row()))

    def step(run: Run, now: Instant, mapping: Mapping) -> Commit | None:
        raise ZeroDivisionError

    take = asyncio.ensure_future(a.take((LANE,), 5, step))
    await a.commit(start(run_row("run-2")))
    try:
        await take
    except ZeroDivisionError:
        pass
    else:
        raise AssertionError("the taker was not told")
    assert await the_run(a) == run_row()


async def the_replaced_holder_writes_nothing(s: Subject) -> None:
    """After a takeover, every commit under the old fence is stale, even without the run's row."""
    a, b = await two(s)
    mine = await held(a)
    effect = effect_row()
    await a.commit(intend(effect, mine))
    theirs = claimed(mine, "worker-2", await b.now())
    await b.commit(Commit((Put(RUN, theirs, mine.version),)))
    await refused_for("epoch", a.commit(record(effect, mine)))
    await refused_for("epoch", a.commit(intend(effect_row(key="invite/2"), mine)))
    await refused_for("epoch", a.commit(put_run(mine)._replace(fence=fence(mine))))
    assert await b.rows(EFFECT, ("acme", "run-1")) == (effect,)
    await b.commit(record(effect, theirs))


async def parking_and_advancing_fence_the_old_holder(s: Subject) -> None:
    """A park raises the epoch and an advance changes the visit, so the old fence is stale."""
    a, _ = await two(s)
    mine = await held(a)
    after = moved(mine, visit=2)
    await a.commit(Commit((Put(RUN, after, mine.version),), fence(mine)))
    await refused_for("epoch", a.commit(intend(effect_row(), mine)))
    await a.commit(intend(effect_row(visit=2), after))
    await a.commit(Commit((Put(RUN, parked(after), after.version),), fence(after)))
    await refused_for("epoch", a.commit(intend(effect_row(visit=2, key="late"), after)))


async def a_fence_on_a_missing_run_is_stale(s: Subject) -> None:
    """A fence on a missing run is Stale. A fence on an ended run raises Ended."""
    a, b = await two(s)
    await refused_for("missing", b.commit(intend(effect_row(), run_row())))
    mine = await held(a)
    await a.commit(Commit((Put(RUN, ended(mine), mine.version),)))
    error = await refused(b.commit(intend(effect_row(), mine)))
    assert isinstance(error, Ended), error


async def one_of_many_writers_wins(s: Subject) -> None:
    """If many writers move a row from one version, exactly one lands, on any kind of row (RUN-3)."""
    a, b = await two(s)
    await a.commit(Commit(puts(slot_row())))
    await a.commit(start(run_row()))
    await a.commit(Commit((Put(EFFECT, effect_row(), 0),)))
    for version in range(1, 8):
        again = effect_row()._replace(version=version + 1)
        effects = [store.commit(Commit((Put(EFFECT, again, version),))) for _ in range(3) for store in (a, b)]
        slots = [
            store.commit(Commit((Put(SLOT, slot_row(holder=f"run-{i}")._replace(version=version + 1), version),)))
            for i in range(3) for store in (a, b)
        ]  # fmt: skip
        row = await the_run(a)
        runs = [store.commit(put_run(row, node=f"{i}")) for i in range(3) for store in (a, b)]
        answers = await asyncio.gather(*map(outcome, [*slots, *runs, *effects]))
        for six in (answers[:6], answers[6:12], answers[12:]):
            assert [isinstance(answer, Stale) for answer in six].count(False) == 1


async def writers_may_take_turns(s: Subject) -> None:
    """A commit that names the version another writer left lands, and one that names an older version does not."""
    a, b = await two(s)
    mine = await held(a)
    await a.commit(Commit(puts(slot_row())))
    slot = slot_row()
    for store in (b, a, b, a):
        before, older = mine, slot
        mine, slot = moved(mine), slot_row(holder=store.writer)._replace(version=slot.version + 1)
        await store.commit(Commit((Put(RUN, mine, before.version),), fence(before)))
        await store.commit(Commit((Put(SLOT, slot, older.version),)))
        await refused_for("version", store.commit(Commit((Put(RUN, mine, before.version),))))
        await refused_for("version", store.commit(Commit((Put(SLOT, slot, older.version),))))


async def one_start_key_starts_one_run(s: Subject) -> None:
    """If many start a run under the same key, exactly one lands, and only its run exists."""
    a, b = await two(s)

    def begin(name: str) -> Commit:
        return Commit((*start(run_row(name)).writes, *puts(token_row(target=name))))

    names = [f"run-{i}" for i in range(6)]
    answers = await asyncio.gather(
        *(outcome((a if i % 2 else b).commit(begin(name))) for i, name in enumerate(names))
    )  # fmt: skip
    assert [isinstance(answer, Stale) for answer in answers].count(False) == 1
    token = await a.load(TOKEN, token_row()[:3])
    assert isinstance(token, Token)
    found = [name for name in names if await b.load(RUN, ("acme", name))]
    assert found == [token.target]
