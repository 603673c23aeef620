"""Runs that go over: never from a worker that has their code, by a migration or a person, once (S-22)."""

import json
from typing import Any, Literal

import pytest

from outlast.core.machine import Reason
from outlast.core.rows.run_rows import RUN
from outlast.core.rows.store_rows import STORE, TOPOLOGY, Topology
from outlast.core.version_move import request_move
from outlast.flow import Context, Workflow
from tests.engine.world import MINUTE, SECOND, Go, Receiver, State, World, write

Ctx = Context[State]


def version(n: int, order: Any, node: str = "only") -> Workflow[State]:
    """Return a version that makes one order, then waits for a signal."""
    flow = Workflow("flow", state=State, version=n)

    async def body(ctx: Context[State]) -> Literal["last"]:
        ctx.state.said.append(await ctx.do(order, "a"))
        await ctx.receive("go", Go)
        return "last"

    body.__name__ = node
    flow.node(start=True)(body)

    @flow.node
    async def last(ctx: Context[State]) -> None:
        return None

    return flow


async def waiting(world: World, flow: Workflow[State]) -> Any:
    """Run a worker of `flow` and one of its runs until that waits."""
    process = world.worker(flow)
    await world.start(flow)
    await world.pass_(SECOND)
    assert world.waiting() == [("signal", "go")]
    return process


@pytest.mark.req("RUN-8")
async def test_runs_of_a_worker_with_the_code_are_not_taken_within_a_window(world: World) -> None:
    receiver = Receiver()
    order = write(receiver)
    old, new = version(1, order), version(2, order)
    new.migrate(from_=1)(lambda state: state)
    process = await waiting(world, old)
    world.worker(new)
    await world.pass_(5 * MINUTE)
    assert world.run().lane == "flow@1"
    process.worker.drain()
    await world.pass_(5 * SECOND)
    await world.signal("go")
    await world.pass_(5 * SECOND)
    assert (world.run().lane, world.status()) == ("flow@1", "waiting"), "its workers may come back"
    await world.pass_(20 * SECOND)
    assert (world.run().lane, world.status()) == ("flow@2", "completed")
    assert len(receiver.did) == len(receiver.attempts) == 1
    assert world.verbs().count("moved") == 1
    moved = next(e for e in world.events() if e.type.endswith("moved"))
    assert moved.visit == 1, "the visit is the same, so the ledger answers"


@pytest.mark.req("RUN-8")
async def test_a_migration_that_raises_changes_nothing_and_a_move_retries_it(world: World) -> None:
    order = write(Receiver())
    old, new = version(1, order), version(2, order)
    broken = [True]

    @new.migrate(from_=1)
    def step(state: dict[str, Any]) -> dict[str, Any]:
        if broken:
            raise RuntimeError("no currency at postgres://ana:canary-77AQ@db")
        return {**state, "n": 7}

    await waiting(world, old)
    await world.off_duty()
    world.worker(new)
    await world.signal("go")
    await world.pass_(MINUTE)
    (entry,) = world.attention()
    assert entry.reason is Reason.STRANDED_VERSION and "no currency" in entry.detail and "Traceback" in entry.detail
    assert "ana:[redacted]@db" in entry.detail and "canary" not in entry.detail
    assert (world.run().lane, world.run().node, world.run().visit) == ("flow@1", "only", 1)
    assert not [e for e in world.events()[1:] if e.snapshot is not None]
    broken.clear()
    await world.answer("stranded_version", "move")
    await world.pass_(MINUTE)
    assert (world.status(), world.run().lane) == ("completed", "flow@2")
    assert world.outcome()["n"] == 7


async def stranded(world: World) -> tuple[Workflow[State], Workflow[State]]:
    """Return a run of version 1 that version 2 cannot take, because no migration exists."""
    order = write(Receiver())
    old, new = version(1, order), version(2, order)
    await waiting(world, old)
    await world.off_duty()
    world.worker(new)
    await world.signal("go")
    await world.pass_(MINUTE)
    assert world.reasons() == ["stranded_version"]
    return old, new


@pytest.mark.req("RUN-8")
async def test_a_stranded_run_continues_once_a_worker_of_its_version_is_back(world: World) -> None:
    """No person answers; the history states why it continued."""
    old, _ = await stranded(world)
    world.worker(old)
    await world.pass_(SECOND)
    assert (world.status(), world.run().lane, world.reasons()) == ("completed", "flow@1", [])
    said = next(json.loads(e.body)["data"] for e in world.events() if e.type.endswith("answered"))
    (answer,) = said["answers"]
    assert (answer["by"], answer["text"]) == ("outlast", "a worker serves flow@1 again")


@pytest.mark.req("RUN-8")
async def test_a_run_stranded_just_after_its_worker_returned_continues(world: World) -> None:
    """Version 2's worker had not seen the other yet, so the run is checked again after a heartbeat window."""
    old, _ = await stranded(world)
    kept = world.run()
    world.core.rows.put(RUN, kept[:2], kept._replace(attention_text=""))
    world.worker(old)
    await world.settle()
    world.core.rows.put(RUN, kept[:2], kept)
    await world.pass_(20 * SECOND)
    assert (world.status(), world.reasons()) == ("completed", [])


@pytest.mark.req("RUN-8", "GATE-3")
@pytest.mark.parametrize("ask", ["continue", "move"])
async def test_continue_of_a_stranded_run_is_the_same_in_cli_and_http(world: World, ask: str) -> None:
    """The CLI refused a `continue` that the HTTP API accepted."""
    _, new = await stranded(world)
    new.migrate(from_=1)(lambda state: state)
    await world.answer("stranded_version", ask)
    await world.pass_(MINUTE)
    assert (world.status(), world.run().lane) == ("completed", "flow@2")


@pytest.mark.req("RUN-8")
async def test_a_person_moves_a_run_whose_node_was_removed(world: World) -> None:
    """The request applies to the run's position at that time, and only once."""
    receiver = Receiver()
    order = write(receiver)
    await waiting(world, version(1, order))
    await world.off_duty()
    world.worker(version(1, order, node="another"))
    await world.signal("go")
    await world.pass_(SECOND)
    assert world.reasons() == ["node_gone"] and "outlast versions move flow 1 r1 --at another|last" in (
        world.attention()[0].detail
    )
    said = request_move(world.run(), Reason.NODE_GONE, 1, "another", actor="op", text="it was renamed")
    await world.store.commit(said)
    await world.settle()
    assert world.status() == "completed" and world.reasons() == []
    assert len(receiver.did) == 1, "in the same visit its ledger answers"
    assert world.verbs().count("moved") == 1


@pytest.mark.req("TEST-3")
async def test_a_worker_stores_the_topology_of_its_lanes_once(world: World) -> None:
    order = write(Receiver())
    flow = version(1, order)
    process = world.worker(flow)
    await world.pass_(SECOND)
    row = world.core.rows.get(TOPOLOGY, (STORE, "flow@1"))
    assert isinstance(row, Topology) and '"order"' in row.body and row.version == 1
    process.worker.drain()
    world.worker(flow)
    await world.pass_(SECOND)
    assert world.core.rows.get(TOPOLOGY, (STORE, "flow@1")) == row, "nothing has changed"
    world.worker(version(1, order, node="another"))
    await world.pass_(SECOND)
    after = world.core.rows.get(TOPOLOGY, (STORE, "flow@1"))
    assert isinstance(after, Topology) and after.version == 2
    assert after.at == row.at, "when this version was first served"
