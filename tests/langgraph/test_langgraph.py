"""Runs as threads of LangGraph: gates are interrupts, and the store says what has happened."""

import asyncio
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Literal

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.types import Command
from pydantic import BaseModel

from outlast import Context, Workflow, role
from outlast.core.rows.effect_rows import EFFECT
from outlast.core.rows.run_rows import RUN, Run
from outlast.errors import DefinitionError
from outlast.langgraph import LangGraphRuntime, ThreadState
from outlast.langgraph.graph_of_workflow import GATE
from outlast.langgraph.langgraph_guest import config_of
from outlast.runtime import stores
from outlast.store.port import Store
from tests.langgraph import flows
from tests.langgraph.flows import LIVE, order

pytestmark = pytest.mark.req("RT-3")
BRIEF = LIVE._replace(heartbeat_window=900)

Body = Callable[[Store, Path], Coroutine[Any, Any, None]]


def with_store(body: Body) -> Callable[[Path, pytest.MonkeyPatch], None]:
    """Run a test with a store in a file."""

    async def run(tmp_path: Path) -> None:
        store = await stores.open_store(f"sqlite:{tmp_path}/runs.db")
        try:
            async with asyncio.timeout(60):
                await body(store, tmp_path)
        finally:
            await store.close()

    def test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(flows, "log", tmp_path / "log")
        asyncio.run(run(tmp_path))

    return test


def did(tmp_path: Path) -> list[str]:
    return (tmp_path / "log").read_text().splitlines() if (tmp_path / "log").exists() else []


async def start(runtime: LangGraphRuntime, workflow: str = "order") -> str:
    run = await runtime.start(workflow_name=workflow, input={}, idempotency_key="k", correlation_id="c")
    return run.id


async def until(runtime: LangGraphRuntime, run: str, **wanted: Any) -> Run:
    """Return the row of a run once its columns have these values."""

    def has(row: Run) -> bool:
        return all(getattr(row, name) == value for name, value in wanted.items())

    row = await runtime.operations.until_row(run, has, within_s=30)
    assert row is not None, (wanted, await runtime.operations.rows.run(run))
    return row


async def interrupted(runtime: LangGraphRuntime, run: str, version: int) -> Any:
    """Return the thread of a run once it is interrupted at this version of the run."""
    while True:  # LangGraph has no notice for it
        thread = await runtime.graph(order).aget_state(config_of("default", run))
        if thread.interrupts and thread.values["run_version"] == version:
            return thread
        await asyncio.sleep(0.005)


def renamed() -> Workflow[flows.Order]:
    """Return the next version of the order, in which both later nodes have another name."""
    later = Workflow("order", state=flows.Order, version=2)
    later.migrate(from_=1, renamed={"payment": "paying", "shipping": "sending"})(lambda state: state)

    @later.node(start=True)
    async def booking(ctx: Context[flows.Order]) -> Literal["paying"]:
        return "paying"

    @later.node
    async def paying(ctx: Context[flows.Order]) -> Literal["sending"] | None:
        plan = flows.pay.plan(ctx.state.item)
        await ctx.approval(plan, summary="Pay the chair", by=role("lead"), within="4d")
        await ctx.do(plan)
        return None

    @later.node
    async def sending(ctx: Context[flows.Order]) -> None:
        await ctx.receive("packed", flows.Go)
        await ctx.do(flows.ship, ctx.state.item)

    return later


async def recorded(store: Store, run: str) -> None:
    """Wait until an effect of a run has its outcome."""

    async def look() -> bool | None:
        return any(effect.settled_at for effect in await store.rows(EFFECT, ("default", run))) or None

    await stores.until(store, look)


async def approve(runtime: LangGraphRuntime) -> None:
    [pending] = (await runtime.operations.approvals()).approvals
    await runtime.operations.approve(pending.approval)


@with_store
async def test_a_run_is_a_thread_and_its_waits_are_interrupts(store: Store, tmp_path: Path) -> None:
    """No type is allowed in the threads except LangGraph's, so no loader can be misled by them."""
    threads = InMemorySaver(serde=JsonPlusSerializer(allowed_msgpack_modules=None))
    async with LangGraphRuntime(store, [order], live=LIVE, checkpointer=threads, durability="sync") as runtime:
        run = await start(runtime)
        row = await until(runtime, run, status="waiting")
        assert row.lane == "langgraph:order@1"
        thread = await interrupted(runtime, run, row.version)
        assert thread.next == (GATE,)
        [gate] = thread.interrupts[0].value["waits_for"]
        [pending] = (await runtime.operations.approvals()).approvals
        assert (gate["kind"], gate["id"]) == ("approval", pending.approval)
        await approve(runtime)
        row = await until(runtime, run, node="shipping", status="waiting")
        thread = await interrupted(runtime, run, row.version)
        assert [gate["id"] for gate in thread.interrupts[0].value["waits_for"]] == ["packed"]
        assert set(thread.values) == {"tenant_id", "run_id", "run_version"}
        await runtime.signal(run, "packed", {})
        assert (await runtime.finished(run)).status == "completed"
    assert did(tmp_path) == ["book chair", "pay chair", "ship chair"]


@with_store
async def test_a_thread_resumed_by_someone_else_has_no_effect(store: Store, tmp_path: Path) -> None:
    async with LangGraphRuntime(store, [order], live=LIVE) as runtime:
        run = await start(runtime)
        row = await until(runtime, run, status="waiting")
        await interrupted(runtime, run, row.version)
        result = await runtime.graph(order).ainvoke(Command(resume="approved"), config_of("default", run))
        assert result["__interrupt__"][0].value["waits_for"][0]["kind"] == "approval"
        assert (await store.load(RUN, ("default", run))) == row
    assert did(tmp_path) == ["book chair"]


@with_store
async def test_a_run_goes_on_without_the_checkpoints_of_its_thread(store: Store, tmp_path: Path) -> None:
    async with LangGraphRuntime(store, [order], live=LIVE) as runtime:
        run = await start(runtime)
        await until(runtime, run, status="waiting")
    async with LangGraphRuntime(store, [order], live=LIVE, checkpointer=InMemorySaver()) as runtime:
        await approve(runtime)
        await until(runtime, run, node="shipping", status="waiting")
        await runtime.signal(run, "packed", {})
        assert (await runtime.finished(run)).status == "completed"
    assert did(tmp_path) == ["book chair", "pay chair", "ship chair"]


@with_store
async def test_a_thread_in_two_processes_and_a_caller_repeats_nothing(store: Store, tmp_path: Path) -> None:
    """The checkpointer is shared, and both wake the run at once."""
    threads = InMemorySaver()
    one = LangGraphRuntime(store, [order], live=LIVE, checkpointer=threads, durability="sync")
    other = LangGraphRuntime(store, [order], live=LIVE, checkpointer=threads, durability="sync")
    async with one, other:
        run = await start(one)
        await until(one, run, status="waiting")
        await approve(one)
        row = await until(one, run)
        thread = ThreadState(tenant_id="default", run_id=run, run_version=row.version)
        await asyncio.gather(
            one.guest.wake([row]),
            other.guest.wake([row]),
            other.graph(order).ainvoke(thread, config_of("default", run)),
        )
        await until(one, run, node="shipping", status="waiting")
        await one.signal(run, "packed", {})
        assert (await other.finished(run)).status == "completed"
    assert did(tmp_path) == ["book chair", "pay chair", "ship chair"]


@with_store
async def test_the_thread_of_a_run_that_has_ended_is_deleted(store: Store, tmp_path: Path) -> None:
    threads = InMemorySaver()
    async with LangGraphRuntime(store, [order], live=LIVE, checkpointer=threads) as runtime:
        run = await start(runtime)
        row = await until(runtime, run, status="waiting")
        await interrupted(runtime, run, row.version)
        await runtime.cancel(run, "not needed")
        assert (await runtime.finished(run)).status == "cancelled"
        async with asyncio.timeout(30):  # the run's end is seen before its thread is deleted
            while threads.storage:  # noqa: ASYNC110 - a saver announces nothing
                await asyncio.sleep(0.01)


@with_store
async def test_a_version_that_no_process_has_any_more_moves_by_its_migration(store: Store, tmp_path: Path) -> None:
    threads = InMemorySaver()
    async with LangGraphRuntime(store, [order], live=BRIEF, checkpointer=threads) as runtime:
        run = await start(runtime)
        row = await until(runtime, run, status="waiting")
        await interrupted(runtime, run, row.version)
        await approve(runtime)
        await until(runtime, run, node="shipping", status="waiting")
    async with LangGraphRuntime(store, [renamed()], live=BRIEF, checkpointer=threads) as runtime:
        await runtime.signal(run, "packed", {})
        await until(runtime, run, lane="langgraph:order@2", node="sending")
        assert (await runtime.finished(run)).status == "completed"
    assert did(tmp_path) == ["book chair", "pay chair", "ship chair"]


@with_store
async def test_a_killed_process_repeats_nothing(store: Store, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.langgraph.flows", f"sqlite:{tmp_path}/runs.db", str(tmp_path / "log")]
    async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "threads.db")) as threads:
        runtime = LangGraphRuntime(store, [order], live=LIVE, checkpointer=threads)
        run = await start(runtime)  # the worker of this process does not serve yet
        process = await asyncio.create_subprocess_exec(*command)
        await recorded(store, run)
        process.kill()
        await process.wait()
        async with runtime:
            await until(runtime, run, node="payment", status="waiting")
            await approve(runtime)
            await until(runtime, run, node="shipping", status="waiting")
            await runtime.signal(run, "packed", {})
            assert (await runtime.finished(run)).status == "completed"
    assert did(tmp_path) == ["book chair", "pay chair", "ship chair"]


class Empty(BaseModel):
    """State without a field."""


def test_a_node_cannot_have_the_name_of_a_field_of_the_thread() -> None:
    flow = Workflow("clash", state=Empty)

    @flow.node(start=True)
    async def run_id(ctx: Context[Empty]) -> Literal["run_id"] | None:
        return None

    with pytest.raises(DefinitionError, match="rename the node"):
        LangGraphRuntime(None, [flow])  # type: ignore[arg-type]
