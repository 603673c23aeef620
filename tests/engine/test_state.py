"""Large states across crashes, waits and deploys: written once, read back whole, never used incomplete."""

import asyncio
import random
from collections.abc import Callable
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from outlast.core.commit import Commit, Put
from outlast.core.limits import INPUT_BYTES_MAX, OUTCOME_BYTES_MAX, STATE_BYTES_MAX
from outlast.core.machine import Choice
from outlast.core.rows.run_rows import STATE_CHUNK
from outlast.core.state.snapshot_codec import CHUNK_BYTES, MARK, WHOLE_BELOW, StateChunk, chunks_in, unpack
from outlast.engine import commands
from outlast.engine.snapshots import SnapshotStore
from outlast.errors import LimitExceeded
from outlast.flow import Context, Workflow
from outlast.upkeep.fsck import violations
from tests.engine.world import MINUTE, QUIET, Go, Receiver, Slow, World, write
from tests.mutants import remove

pytestmark = pytest.mark.req("CKP-3")

CARGO = 300_000


class Large(BaseModel):
    n: int = 0
    cargo: list[str] = []
    log: list[str] = []
    seen: int = 0


def text(seed: int, size: int = CARGO) -> str:
    return random.Random(seed).randbytes(size // 2).hex()


def values(world: World, run: str = "r1") -> list[StateChunk]:
    return [row for row in world.core.rows.under(STATE_CHUNK, ("t", run)) if isinstance(row, StateChunk)]


def all_named(world: World, run: str = "r1") -> bool:
    """Does every snapshot, of any moment, name values that are there?"""
    there = {value.hash: unpack(value.packed, value.body, value.hash) for value in values(world, run)}
    return all({*chunks_in(event.snapshot or b"", there)} <= there.keys() for event in world.events(run))


async def sound(world: World) -> list[str]:
    (rows,) = await world.store.run_rows([("t", "r1")])
    assert rows is not None
    return [f.check for f in violations(rows, world.events(), values=values(world))]


Change = Callable[[Large], None]


def rounds(
    most: int, change: Change, act: Any = None, *, version: int = 1, first: Change | None = None
) -> Workflow[Any]:
    """A node that makes the cargo, and one that goes round `most` times over it."""
    flow = Workflow("large", state=Large, version=version, outcome=lambda s: [s.n, len(s.cargo), s.seen])

    @flow.node(start=True)
    async def fill(ctx: Context[Large]) -> Literal["turn"]:
        if first is None:
            ctx.state.cargo = [text(i, CARGO // 3) for i in range(3)]
        else:
            first(ctx.state)
        return "turn"

    @flow.node(max_visits=1_000)
    async def turn(ctx: Context[Large]) -> Literal["turn"] | None:
        ctx.state.n += 1
        ctx.state.seen = sum(map(len, ctx.state.cargo))
        if act is not None:
            ctx.state.log.append(await ctx.do(act, str(ctx.state.n)))
        change(ctx.state)
        return "turn" if ctx.state.n < most else None

    return flow.validate()


def nothing(state: Large) -> None:
    pass


def wrote(world: World) -> int:
    return sum(len(v.body) for v in values(world)) + sum(len(e.snapshot or b"") for e in world.events())


async def test_an_unchanged_field_writes_nothing(world: World) -> None:
    flow = rounds(50, nothing, write(Receiver()))
    world.worker(flow)
    await world.start(flow)
    assert world.status() == "completed" and world.outcome() == [50, 3, CARGO]
    assert len(values(world)) == -(-CARGO // CHUNK_BYTES), "the cargo, once"
    assert wrote(world) < CARGO + 52 * 4_000
    assert await sound(world) == []


@pytest.mark.req("RUN-5")
async def test_two_runs_and_two_tenants_share_nothing(world: World) -> None:
    flow = rounds(2, nothing)
    world.worker(flow)
    await world.start(flow, "r1")
    await world.start(flow, "r2")
    await world.start(flow, "r1", tenant="other")
    for place in (("t", "r1"), ("t", "r2"), ("other", "r1")):
        assert len(world.core.rows.under(STATE_CHUNK, place)) == len(values(world))


async def test_a_small_state_costs_neither_a_row_nor_a_read(world: World) -> None:
    asked: list[Any] = []

    def few(state: Large) -> None:
        state.cargo = [text(1, 1_500)]

    flow = rounds(20, nothing, write(Receiver()), first=few)
    process = world.worker(flow)
    read = process.wire.load_many

    async def counted(*args: Any) -> Any:
        asked.append(args)
        return await read(*args)

    process.wire.load_many = counted  # type: ignore[method-assign]
    await world.start(flow)
    assert world.status() == "completed" and values(world) == [] and asked == []
    snapshots = [e.snapshot for e in world.events() if e.snapshot is not None]
    assert all(s[:1] != MARK and len(s) < WHOLE_BELOW for s in snapshots)


async def test_a_value_of_an_earlier_state_is_named_again(world: World) -> None:
    """A → B → A: the store has the first one yet, and is asked before it would refuse a second."""
    one, two = (b'["%s"]' % text(seed, 60_000).encode() for seed in (1, 2))
    diet = SnapshotStore(world.store, "t", "r1")
    for state, new in ((one, 1), (two, 1), (one, 0), (two, 0)):
        snapshot, rows = await diet.write(state, at=0)
        assert len(rows) == new
        if rows:
            await world.store.commit(Commit(tuple(Put(STATE_CHUNK, row, 0) for row in rows)))
        assert await SnapshotStore(world.store, "t", "r1").read(snapshot) == state


@pytest.mark.req("REC-3", "CKP-2")
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_holder_dies_around_a_checkpoint(world: World, when: str) -> None:
    """The next one reads the state whole and writes none of it again."""
    shop = Receiver(dedupes=True)
    flow = rounds(6, nothing, write(shop, mode="reconcile"))
    first = world.worker(flow)
    getattr(first.wire, when)("advance turn#4", first.kill)
    await world.start(flow)
    world.worker(flow)
    await world.pass_(QUIET + MINUTE)
    assert world.status() == "completed" and world.outcome() == [6, 3, CARGO]
    assert len(shop.did) == len(set(shop.did)) == 6
    assert len(values(world)) == -(-CARGO // CHUNK_BYTES)
    assert all_named(world) and await sound(world) == []


@pytest.mark.parametrize("part", ["keep", "advance fill"])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_holder_dies_between_the_values_of_a_state_larger_than_one_commit(
    world: World, part: str, when: str
) -> None:
    """5 MB: values go before the move that names them; the successor finds what its predecessor left."""

    def much(state: Large) -> None:
        state.cargo = [text(i, 1_000_000) for i in range(5)]

    flow = rounds(2, nothing, first=much)
    first = world.worker(flow)
    getattr(first.wire, when)(part, first.kill)
    await world.start(flow)
    assert all_named(world)
    left = len(values(world))
    assert (left > 0) == (when == "after" or part != "keep")
    world.worker(flow)
    await world.pass_(QUIET)
    assert world.status() == "completed" and world.outcome() == [2, 5, 5_000_000]
    assert sum(len(v.body) for v in values(world)) < 5_200_000
    assert await sound(world) == []


@pytest.mark.parametrize("fault", ["away", "lost"])
@pytest.mark.parametrize("part", ["keep", "advance"])
async def test_the_store_is_away_or_its_answer_lost(world: World, part: str, fault: str) -> None:
    def much(state: Large) -> None:
        state.cargo = [text(i, 1_000_000) for i in range(3)]

    flow = rounds(3, nothing, first=much)
    process = world.worker(flow)
    getattr(process.wire, fault).append(part)
    await world.start(flow)
    await world.pass_(MINUTE)
    assert world.status() == "completed" and world.outcome() == [3, 3, 3_000_000]
    assert all_named(world) and await sound(world) == []


async def test_the_values_land_with_the_move_that_names_them(world: World) -> None:
    """At no instant does a snapshot name a value that is not there: this is what a death between two commits shows."""
    flow = rounds(3, lambda s: s.cargo.append(text(s.n, 20_000)), write(Receiver()))
    process = world.worker(flow)
    found: list[bool] = []
    inner = process.wire._inner.submit

    def watched(*args: Any, **kwargs: Any) -> Any:
        answer = inner(*args, **kwargs)
        found.append(all_named(world))
        return answer

    process.wire._inner.submit = watched  # type: ignore[method-assign]
    await world.start(flow)
    assert world.status() == "completed" and len(found) > 5 and all(found)


async def test_a_wait_and_a_signal(world: World) -> None:
    """Parked, nothing stays in the process; the next claim reads the state that was written."""
    flow = Workflow("waits", state=Large, outcome=lambda s: [s.n, len(s.cargo[0])])

    @flow.node(start=True)
    async def fill(ctx: Context[Large]) -> Literal["wait"]:
        ctx.state.cargo = [text(1)]
        return "wait"

    @flow.node
    async def wait(ctx: Context[Large]) -> None:
        ctx.state.n = len((await ctx.receive("go", Go)).word)

    world.worker(flow)
    await world.start(flow)
    await world.off_duty()
    before = values(world)
    world.worker(flow)
    await world.signal("go", word="now")
    assert world.status() == "completed" and world.outcome() == [3, CARGO]
    assert values(world) == before


@pytest.mark.req("RUN-8")
async def test_a_migration_converts_a_large_state(world: World) -> None:
    slow = Slow()
    old = rounds(9, nothing, write(Receiver(slow)))
    new = rounds(9, nothing, write(Receiver()), version=2)

    @new.migrate(from_=1)
    def step(state: dict[str, Any]) -> dict[str, Any]:
        return {**state, "n": 7, "log": [*state["log"], "came over"]}

    first = world.worker(old)
    await world.start(old)
    await slow.begun.wait()
    first.kill()
    kept = len(values(world))
    world.worker(new)
    await world.pass_(20 * MINUTE)
    for entry in world.attention():
        await world.resolve("order/1", Choice.HAPPENED, response=b'"did it"') if entry.key else None
    assert "moved" in world.verbs() and all_named(world) and await sound(world) == []
    moved = next(e for e in world.events() if e.type.endswith("moved"))
    assert (moved.snapshot or b"")[:1] == MARK and len(values(world)) == kept, "its cargo is named, not written"


# --- what is not there ---------------------------------------------------------------------------
def a_missing_value(world: World) -> None:
    world.core.rows.drop(STATE_CHUNK, values(world)[0][:3])


def another_body(world: World) -> None:
    value = values(world)[0]
    world.core.rows.put(STATE_CHUNK, value[:3], value._replace(packed=0, body=b"x" * CHUNK_BYTES))


@pytest.mark.req("CKP-6")
@pytest.mark.parametrize("spoil", [a_missing_value, another_body])
async def test_a_node_is_not_executed_with_an_incomplete_state(world: World, spoil: Callable[[World], None]) -> None:
    """A person gets the missing chunk's name; no call is made; with the chunk restored the run continues."""
    shop = Receiver(dedupes=True)
    flow = rounds(4, nothing, write(shop, mode="reconcile"))
    first = world.worker(flow)
    first.wire.before("advance turn#3", first.kill)
    await world.start(flow)
    whole = values(world)
    spoil(world)
    assert await sound(world) != []
    calls = len(shop.attempts)
    world.worker(flow)
    await world.pass_(QUIET)
    (entry,) = world.attention()
    assert entry.reason.value == "contradiction" and whole[0].hash in entry.detail
    assert len(shop.attempts) == calls and world.status() == "waiting"
    await world.go_on()
    assert world.reasons() == ["contradiction"], "saying so does not make it whole"
    for value in whole:
        world.core.rows.put(STATE_CHUNK, value[:3], value)
    await world.go_on()
    await world.pass_(QUIET)
    assert world.status() == "completed" and world.outcome() == [4, 3, CARGO]


async def test_a_run_whose_state_is_gone_can_be_ended(world: World) -> None:
    flow = rounds(4, nothing, write(Receiver(), mode="reconcile"))
    first = world.worker(flow)
    first.wire.before("advance turn#3", first.kill)
    await world.start(flow)
    a_missing_value(world)
    world.worker(flow)
    await world.pass_(QUIET)
    await world.cancel()
    await world.pass_(QUIET)
    assert world.status() == "cancelled"


async def test_fsck_names_what_is_missing(world: World) -> None:
    flow = rounds(3, nothing)
    world.worker(flow)
    await world.start(flow)
    assert await sound(world) == []
    (rows,) = await world.store.run_rows([("t", "r1")])
    assert rows is not None
    whole = values(world)
    found = violations(rows, world.events(), values=whole[1:])
    assert {f.check for f in found} == {"state_whole"} and whole[0].hash in found[0].text
    spoilt = [whole[0]._replace(body=b"x"), *whole[1:]]
    found = violations(rows, world.events(), values=spoilt)
    assert [(f.check, f.kind) for f in found] == [("state_whole", "state_chunk")]


# --- how large -----------------------------------------------------------------------------------
class Given(BaseModel):
    what: str
    n: int = 0


async def test_a_large_input(world: World) -> None:
    """A megabyte lands with the start, once; the same start again is the same run; too much is refused."""
    flow = Workflow("given", state=Given, outcome=lambda s: len(s.what))

    @flow.node(start=True)
    async def only(ctx: Context[Given]) -> None:
        ctx.state.n += 1

    world.worker(flow.validate())
    for _ in range(2):
        await world.start(flow, what=text(1, 1_000_000))
    assert world.outcome() == 1_000_000
    assert 15 <= len(values(world)) <= 16 and wrote(world) < 1_010_000
    with pytest.raises(LimitExceeded, match=f"{INPUT_BYTES_MAX:,}"):
        await world.start(flow, "r2", what=text(1, INPUT_BYTES_MAX + 10))


@pytest.mark.parametrize(
    ("size", "says", "outcome"),
    [(STATE_BYTES_MAX, f"{STATE_BYTES_MAX:,}", True), (OUTCOME_BYTES_MAX, "outcome=", False)],
)
async def test_a_state_that_is_too_large_is_named(world: World, size: int, says: str, outcome: bool) -> None:
    flow = Workflow("too-large", state=Large, outcome=(lambda s: s.n) if outcome else None)

    @flow.node(start=True)
    async def only(ctx: Context[Large]) -> None:
        ctx.state.cargo = [text(1, size)]

    world.worker(flow.validate())
    await world.start(flow)
    (entry,) = world.attention()
    assert entry.reason.value == "exception"
    assert says in entry.detail and 'its largest field, "cargo", takes' in entry.detail


# --- the safeguards -------------------------------------------------------------------------------
async def test_without_the_values_in_the_commit_it_would_be_seen(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The watch of this file can fail: a move without its values is noticed, and the run does not continue."""
    remove("state_without_chunks", monkeypatch)
    flow = rounds(3, nothing, write(Receiver(), mode="reconcile"))
    first = world.worker(flow)
    first.wire.before("advance turn#2", first.kill)
    await world.start(flow)
    assert not all_named(world) and await sound(world) != []
    world.worker(flow)
    await world.pass_(QUIET)
    assert world.reasons() == ["contradiction"]


async def test_starting_twice_at_once(world: World) -> None:
    flow = Workflow("given", state=Given, outcome=lambda s: len(s.what))

    @flow.node(start=True)
    async def only(ctx: Context[Given]) -> None:
        ctx.state.n += 1

    flow.validate()
    given = {"what": text(1, 100_000)}
    begun = await asyncio.gather(
        *(commands.start(world.store, flow, given, tenant="t", actor="me", run="r1") for _ in range(3))
    )
    assert sorted(s.created for s in begun) == [False, False, True]
