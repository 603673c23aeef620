"""Promises about the store's clock, conditions on time, and the mapping of business time (S-4)."""

from outlast.core.commit import Commit, Instant, Mapping, When
from outlast.core.rows.run_rows import RUN, Run
from outlast.errors import Rejected
from outlast.store.queries import NextDue
from tests.conformance.subject import (
    LANE,
    T0,
    Subject,
    append_message,
    claim_by,
    fence,
    held,
    message_row,
    messages,
    put_run,
    puts,
    refused,
    refused_for,
    run_row,
    start,
    the_run,
    token_row,
    two,
)

HOUR = 3_600_000


def _due_in_business_time(run: Run, mapping: Mapping) -> int | None:
    """Return the due_at of a run with the business instant in `timers`, its only timer."""
    return mapping.real(int(run.timers_text)) if run.timers_text else run.due_at


async def every_result_carries_store_time(s: Subject) -> None:
    """Every result carries the store's time. Without a mapping, business time is real time."""
    a, b = await two(s)
    assert await a.now() == Instant(T0, T0, 0)
    s.clock.time += 7
    assert await b.now() == Instant(T0 + 7, T0 + 7, 0)
    assert (await a.commit(start(run_row()))).now == Instant(T0 + 7, T0 + 7, 0)
    seen: list[Instant] = []

    def step(run: Run, now: Instant, mapping: Mapping) -> Commit | None:
        seen.append(now)
        return None

    await b.take((LANE,), 1, step)
    assert seen == [Instant(T0 + 7, T0 + 7, 0)]


async def time_never_goes_back(s: Subject) -> None:
    """If the wall clock is set back, store time pauses until it has caught up."""
    a, _ = await two(s)
    s.clock.time += 1_000
    await a.now()
    s.clock.time -= 600
    assert (await a.now()).real == T0 + 1_000
    assert (await a.commit(start(run_row()))).now.real == T0 + 1_000
    s.clock.time += 700
    assert (await a.now()).real == T0 + 1_100


async def a_condition_on_time_is_judged_by_the_store(s: Subject) -> None:
    """`When` holds from the named millisecond on, or up to it. Its reason is reported."""
    a, b = await two(s)
    for i, clock in enumerate(("real", "business")):
        at = s.clock.time + 100
        token = puts(token_row(f"after-{i}"))
        reached = Commit(token, whens=(When(at, True, clock, "too early"),))  # type: ignore[arg-type]
        before = Commit(puts(token_row(f"before-{i}")), whens=(When(at, False, clock, "too late"),))  # type: ignore[arg-type]
        late = before._replace(writes=puts(token_row(f"late-{i}")))
        s.clock.time = at - 1
        await refused_for("too early", a.commit(reached))
        await b.commit(before)
        s.clock.time = at
        await a.commit(reached)
        await refused_for("too late", b.commit(late))


async def a_mapping_changes_business_time_for_all_writers(s: Subject) -> None:
    """After a change, both writers see the new business time, stamp messages by it, and judge by it."""
    a, b = await two(s)
    await b.commit(start(run_row()))
    stored = await a.set_mapping(Mapping(0, T0, T0 + 96 * HOUR, 10.0), lambda run, mapping: run.due_at)
    assert (stored.version, stored.rate) == (1, 10.0)
    s.clock.time += 5
    assert await b.now() == Instant(T0 + 5, T0 + 96 * HOUR + 50, 1)
    assert a.mapping() == stored
    assert (await b.commit(append_message(message_row()))).now.mapping == 1
    assert b.mapping() == stored
    assert {message.at for message in await messages(a)} == {T0 + 96 * HOUR + 50}
    passed = When(T0 + 96 * HOUR, True, "business", "not yet")
    await b.commit(Commit(puts(token_row()), whens=(passed,)))
    slower = Mapping(stored.version, T0 + 5, T0 + 97 * HOUR, 1.0)
    again = await b.set_mapping(slower, lambda run, mapping: run.due_at)
    assert again.version == 2
    assert (await a.now()).business == T0 + 97 * HOUR


async def a_mapping_moves_due_at_of_unowned_runs(s: Subject) -> None:
    """A new mapping moves the due_at of unowned, unfinished runs without a new version. Owned runs keep it."""
    a, b = await two(s)
    at = str(T0 + 96 * HOUR)
    await a.commit(start(run_row("asleep", due_at=T0 + 96 * HOUR, timers_text=at)))
    mine = await held(a, "owned")
    mapping = await b.set_mapping(Mapping(0, T0, T0, 1_000.0), _due_in_business_time)
    asleep = await the_run(a, "asleep")
    assert asleep == run_row("asleep", due_at=mapping.real(T0 + 96 * HOUR), timers_text=at)
    assert await the_run(a, "owned") == mine
    assert await a.query(NextDue((LANE,))) == asleep.due_at
    s.clock.time = asleep.due_at or 0
    (taken,) = await a.take((LANE,), 5, claim_by("worker-2"))
    assert taken.run == "asleep"


async def a_run_that_is_due_stays_due_whatever_the_mapping(s: Subject) -> None:
    """A wake that no worker has acted on survives a change of the mapping."""
    a, b = await two(s)
    await a.commit(start(run_row("woken", due_at=T0, timers_text=str(T0 + 96 * HOUR))))
    s.clock.time = T0 + HOUR
    await b.set_mapping(Mapping(0, T0 + HOUR, T0 + HOUR, 2.0), _due_in_business_time)
    assert (await the_run(a, "woken")).due_at == T0


async def an_instant_of_an_old_mapping_is_refused(s: Subject) -> None:
    """A commit that names the mapping of its instants is stale after a change."""
    a, b = await two(s)
    mine = await held(a)
    await a.commit(Commit(puts(token_row()), fence(mine, mapping=0)))
    await b.set_mapping(Mapping(0, T0, T0, 2.0), lambda run, mapping: run.due_at)
    await refused_for("mapping", a.commit(put_run(mine)._replace(fence=fence(mine, mapping=0))))
    await a.commit(put_run(mine)._replace(fence=fence(mine, mapping=1)))
    assert (await b.load(RUN, ("acme", "run-1"))) == await the_run(a)


async def business_time_never_goes_back(s: Subject) -> None:
    """A mapping that would set business time back or stop it is rejected and changes nothing."""
    a, b = await two(s)
    await a.set_mapping(Mapping(0, T0, T0 + HOUR, 1.0), lambda run, mapping: run.due_at)
    for bad in (Mapping(1, T0, T0 + HOUR - 1, 1.0), Mapping(1, T0, T0 + HOUR, 0.0), Mapping(1, T0, T0 + HOUR, -1.0)):
        error = await refused(b.set_mapping(bad, lambda run, mapping: run.due_at))
        assert isinstance(error, Rejected), error
    assert (await b.now()) == Instant(T0, T0 + HOUR, 1)
