"""The default runtime keeps the interface's promises, on memory and on a file alike."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from outlast import Cancel, Context, Fail, Workflow, activity, role
from outlast.core.approvals import Actor
from outlast.core.durations import Liveness
from outlast.errors import Conflict, Forbidden, InvalidInput, NotFound, Unavailable, Uncertain
from outlast.flow.workflow import workflows_by_name
from outlast.insight.approval_reads import may_decide
from outlast.insight.tenant_rows import TenantRows
from outlast.models.runs import Waiting
from outlast.runtime.execution_runtime import ExecutionRuntime
from outlast.runtime.in_process import InProcessRuntime
from outlast.runtime.local_worker import Serving, worker_of
from outlast.runtime.operations import Operations
from outlast.runtime.stores import open_store, until
from outlast.store.port import Store

PATIENCE_S = 60.0
LIVE = Liveness(heartbeat_window=900, heartbeat_every=300, drain_grace=5_000)


class Claim(BaseModel):
    number: str
    cents: int
    paid: str = ""


class Said(BaseModel):
    words: str


claims = Workflow("claim", state=Claim)
payments: list[str] = []


@activity(key="pay/{number}", once_per="run", no_undo="the bank has it")
async def pay_claim(number: str, cents: int) -> str:
    payments.append(number)
    return f"paid-{number}"


@claims.node(start=True)
async def look(ctx: Context[Claim]) -> Literal["decide"]:
    if ctx.state.cents < 0:
        raise Fail("a negative claim")
    return "decide"


@claims.node(status="ON_THE_DESK")
async def decide(ctx: Context[Claim]) -> None:
    s = ctx.state
    if s.number.startswith("ask"):
        said = await ctx.receive("answer", Said)
        s.paid = said.words
        return
    plan = pay_claim.plan(s.number, s.cents)
    decision = await ctx.approval(plan, summary="Pay", by=role("lead") | role("finance"), within=timedelta(hours=1))
    if not decision.approved:
        raise Cancel(decision.reason)
    s.paid = await ctx.do(plan)


Opened = Callable[[], AbstractAsyncContextManager[Store]]


@pytest.fixture(params=["memory", "sqlite"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Opened:
    """Opens a store, and closes it afterwards."""
    url = "memory:" if request.param == "memory" else f"sqlite:{tmp_path / 'claims.db'}"

    @asynccontextmanager
    async def open_it() -> AsyncIterator[Store]:
        store = await open_store(url)
        try:
            yield store
        finally:
            await store.close()

    return open_it


def live(opened: Opened, test: Callable[[InProcessRuntime], Awaitable[None]], **more: Any) -> None:
    """Run a test inside a serving runtime."""

    async def go() -> None:
        async with opened() as store, InProcessRuntime(store, [claims], live=LIVE, **more) as runtime:
            await test(runtime)

    asyncio.run(go())


async def begin(runtime: ExecutionRuntime, number: str = "7", cents: int = 5, key: str = "k") -> str:
    """A claim, started through the interface alone."""
    handle = await runtime.start(
        workflow_name="claim", input={"number": number, "cents": cents}, idempotency_key=key, correlation_id="c-1"
    )
    return handle.id


async def waits(runtime: InProcessRuntime, run: str) -> Waiting:
    """Return the run's waits once it waits for more than a worker."""

    async def found() -> Waiting | None:
        state = await runtime.get(run)
        return next((w for w in state.waiting_for if w.kind != "worker"), None)

    waiting = await until(runtime.store, found, within_s=PATIENCE_S)
    assert waiting is not None, await runtime.get(run)
    return waiting


async def asked(runtime: InProcessRuntime, run: str) -> str:
    """The id of the approval the run waits for."""
    return str((await waits(runtime, run)).what).partition(" ")[0]


@pytest.mark.req("RT-1", "RT-2", "RUN-1")
def test_a_run_through_the_interface_alone(opened: Opened) -> None:
    async def test(runtime: InProcessRuntime) -> None:
        run = await begin(runtime, "ask-1")
        assert (await waits(runtime, run)).kind == "signal"
        standing = await runtime.get(run)
        assert (standing.status, standing.shown, standing.node) == ("waiting", "ON_THE_DESK", "decide")
        await runtime.signal(run, "answer", {"words": "yes"})
        ended = await runtime.finished(run)
        assert (ended.status, ended.shown, ended.outcome["paid"]) == ("completed", "COMPLETED", "yes")
        assert ended.version > standing.version

    live(opened, test)


@pytest.mark.req("RT-1")
def test_the_approval_and_the_call_it_allows(opened: Opened) -> None:
    async def test(runtime: InProcessRuntime) -> None:
        payments.clear()
        run = await begin(runtime)
        assert payments == []
        await runtime.operations.approve(await asked(runtime, run), reason="fine")
        ended = await runtime.finished(run)
        assert ended.outcome["paid"] == "paid-7" and payments == ["7"]

    live(opened, test)


@pytest.mark.req("RT-1", "RUN-2")
def test_ends_that_are_no_success(opened: Opened) -> None:
    async def test(runtime: InProcessRuntime) -> None:
        failed = await runtime.finished(await begin(runtime, "n", -5, key="1"))
        assert (failed.status, failed.reason, failed.outcome) == ("failed", "a negative claim", None)
        run = await begin(runtime, "r", key="2")
        await runtime.operations.reject(await asked(runtime, run), reason="no receipt")
        stopped = await runtime.finished(run)
        assert (stopped.status, stopped.reason) == ("cancelled", "no receipt")
        run = await begin(runtime, "c", key="3")
        await waits(runtime, run)
        await runtime.cancel(run, "a mistake")
        cancelled = await runtime.finished(run)
        assert cancelled.status == "cancelled" and "a mistake" in cancelled.reason
        for act in (runtime.cancel(run, "again"), runtime.signal(run, "answer", {"words": "late"})):
            with pytest.raises(Conflict, match="has ended"):
                await act

    live(opened, test)


@pytest.mark.req("RUN-4")
def test_one_key_one_run(opened: Opened) -> None:
    async def test(runtime: InProcessRuntime) -> None:
        same = await asyncio.gather(*(begin(runtime) for _ in range(8)))
        assert len(set(same)) == 1
        handle = await runtime.start(
            workflow_name="claim", input={"cents": 5, "number": "7"}, idempotency_key="k", correlation_id="other"
        )
        assert handle.id == same[0] and not handle.created
        with pytest.raises(Conflict, match="another input"):
            await begin(runtime, cents=6)
        assert await begin(runtime, key="k2") != same[0]

    live(opened, test)


class Order(BaseModel):
    shop: str
    number: str
    cents: int = 0


orders = Workflow("order", state=Order, input=Order, key="order/{shop}/{number}")


@orders.node(start=True, status="PLACING", end="PLACED")
async def place(ctx: Context[Order]) -> None:
    if ctx.state.cents < 0:
        raise Fail("a negative order")
    if ctx.state.cents == 0:
        raise Cancel("nothing to order")


@pytest.mark.req("RUN-2")
@pytest.mark.parametrize(
    ("cents", "status", "shown", "data"),
    [(1, "completed", "PLACED", "PLACED"), (-1, "failed", "FAILED", None), (0, "cancelled", "CANCELLED", None)],
)
def test_a_node_names_the_end_of_runs_that_complete_in_it(
    opened: Opened, cents: int, status: str, shown: str, data: str | None
) -> None:
    """The engine's status stays. The label is in the state, the views, the last event and the explanation."""

    async def go() -> None:
        async with opened() as store, InProcessRuntime(store, [orders], live=LIVE) as runtime:
            ops = runtime.operations
            run = (await ops.start_run("order", {"shop": "acme", "number": "1", "cents": cents})).run
            ended = await runtime.finished(run)
            assert (ended.status, ended.shown) == (status, shown)
            last = json.loads((await ops.rows.history(run))[-1].body)
            assert last["type"] == f"dev.outlast.workflow.{status}" and last["data"].get("end") == data
            assert (" as PLACED " in (await ops.explain(run)).sentence) is (data is not None)

    asyncio.run(go())


@pytest.mark.req("RUN-4")
def test_a_start_without_a_key_uses_the_one_that_the_workflow_derives(opened: Opened) -> None:
    """Equal input is the same run, another input under the derived key a conflict; an explicit key wins."""
    given = {"shop": "acme", "number": "1", "cents": 5}

    async def go() -> None:
        async with opened() as store:
            mine, other = (
                Operations(store, tenant=tenant, actor=Actor("ana"), workflows={"order": orders})
                for tenant in ("a", "b")
            )
            same = await asyncio.gather(*(mine.start_run("order", given) for _ in range(8)))
            assert len({each.run for each in same}) == 1 and sum(each.created for each in same) == 1
            repeated = await mine.start_run("order", given, run_id="mine")
            assert (repeated.run, repeated.created) == (same[0].run, False), "the key, not the id"
            with pytest.raises(Conflict, match="under the key order/acme/1 with another input") as refused:
                await mine.start_run("order", given | {"cents": 6})
            assert refused.value.why == "the workflow derives this key from its input, and another part differs"
            explicit = await mine.start_run("order", given, key="again")
            assert explicit.created and explicit.run != same[0].run
            assert (await mine.start_run("order", given | {"number": "2"})).created
            assert (await other.start_run("order", given)).created, "a key belongs to its tenant"

    asyncio.run(go())


class Placed(Order):
    receipt: str = "a field that a later release adds"


@pytest.mark.req("RUN-4")
def test_a_new_field_of_the_state_makes_no_other_input_of_the_same_one(opened: Opened) -> None:
    """The next release of the workflow keeps the input. A start that is repeated after the deploy is the same run."""
    later = Workflow("order", state=Placed, input=Order, key="order/{shop}/{number}", version=2)

    @later.node(start=True)
    async def place_later(ctx: Context[Placed]) -> None: ...

    async def go() -> None:
        async with opened() as store:
            given = {"shop": "acme", "number": "1"}
            before, after = (
                Operations(store, tenant="t", actor=Actor("ana"), workflows={"order": each}) for each in (orders, later)
            )
            first, again = await before.start_run("order", given), await after.start_run("order", given)
            assert (again.run, again.created) == (first.run, False)

    asyncio.run(go())


@pytest.mark.req("RUN-4")
def test_a_signal_with_an_id_arrives_once(opened: Opened) -> None:
    async def test(runtime: InProcessRuntime) -> None:
        run = await begin(runtime, "ask-1")
        sent = [runtime.operations.signal(run, "answer", {"words": f"w{n}"}, signal_id="s") for n in range(4)]
        assert (await asyncio.gather(*sent)).count(True) == 1
        assert (await runtime.finished(run)).outcome["paid"].startswith("w")

    live(opened, test)


def test_unknown_ids_are_not_found(opened: Opened) -> None:
    async def test(runtime: InProcessRuntime) -> None:
        for act in (runtime.get("r9"), runtime.cancel("r9", "x"), runtime.signal("r9", "answer", {})):
            with pytest.raises(NotFound):
                await act
        with pytest.raises(NotFound, match="no workflow loan"):
            await runtime.start(workflow_name="loan", input={}, idempotency_key="k", correlation_id="")
        with pytest.raises(InvalidInput) as refused:
            await runtime.start(workflow_name="claim", input={"cents": "x"}, idempotency_key="k", correlation_id="")
        assert [path for path, _ in refused.value.problems] == ["number", "cents"]

    live(opened, test)


@pytest.mark.req("RUN-5")
def test_no_call_reaches_another_tenants_rows(opened: Opened) -> None:
    async def test(runtime: InProcessRuntime) -> None:
        run = await begin(runtime)
        approval = await asked(runtime, run)
        other = Operations(runtime.store, tenant="other", actor=Actor("mallory"), workflows=workflows_by_name([claims]))
        for act in (
            other.rows.run(run), other.rows.effects(run), other.rows.evidence(run), other.rows.history(run),
            other.not_undone(run), other.signal(run, "answer", {}), other.cancel(run, reason="x"),
            other.continue_run(run), other.rows.approval(approval),
            other.approve(approval, reason="x"), other.reject(approval, reason="x"),
            other.resolve_effect(run, "pay/7", "happened", reason="x"),
        ):  # fmt: skip
            with pytest.raises(NotFound):
                await act
        assert await other.rows.runs() == ((), "") and await other.rows.approvals() == ((), "")
        started = await other.start_run("claim", {"number": "7", "cents": 9}, run_id=run, key="k")
        assert started.created  # the same id and key in another tenant are another run
        assert (await runtime.operations.rows.run(run)).requested_by == "local"

    live(opened, test)


@pytest.mark.req("GATE-2")
def test_actors_who_may_decide(opened: Opened) -> None:
    async def test(runtime: InProcessRuntime) -> None:
        run = await begin(runtime)
        approval = await asked(runtime, run)
        for roles in (set[str](), {"sales"}, {"leader", "fin"}):
            stranger = Operations(runtime.store, tenant="default", actor=Actor("bo", roles), workflows={})
            assert not may_decide(stranger.actor, await stranger.rows.approval(approval))
            for act in (stranger.approve(approval, reason="x"), stranger.reject(approval, reason="x")):
                with pytest.raises(Forbidden, match="bo may not decide"):
                    await act
        ana = Operations(runtime.store, tenant="default", actor=Actor("ana", {"lead"}, ("lead",)), workflows={})
        decided = await ana.approve(approval, reason="fine")
        assert (decided.decided_by, decided.roles, decided.reason) == ("ana", ["lead"], "fine")
        with pytest.raises(Conflict, match="cannot be decided any more"):
            await ana.reject(approval, reason="changed my mind")
        assert (await runtime.finished(run)).status == "completed"

    live(opened, test)


@pytest.mark.req("RT-2")
def test_it_serves_once_entered_and_reports_a_worker_of_an_earlier_command(opened: Opened) -> None:
    async def go() -> None:
        async with opened() as store:
            async with InProcessRuntime(store, [claims], live=LIVE) as runtime:
                assert await runtime.operations.rows.serving() == {"claim@1", "outlast.bulk@1"}
            process = Serving(store, lambda: worker_of(store, [claims], live=LIVE))
            await process.open()
            assert await runtime.operations.rows.serving() == {"claim@1", "outlast.bulk@1"}
            process.drain()
            await process.run()
            assert not await runtime.operations.rows.serving()

    asyncio.run(go())


@pytest.mark.req("RT-2")
@pytest.mark.parametrize("stays", [False, True])
def test_a_drained_worker_ends_its_process_but_not_its_service(opened: Opened, stays: bool) -> None:
    async def go() -> None:
        async with opened() as store:
            process = Serving(store, lambda: worker_of(store, [claims], live=LIVE), stays=stays)
            await process.open()
            serving = asyncio.create_task(process.run())
            ops = Operations(store, tenant="default", actor=Actor("ana"), workflows={})
            await ops.drain_worker(process.worker.id, reason="a new machine")
            async with asyncio.timeout(PATIENCE_S):
                while await ops.rows.serving():  # noqa: ASYNC110 - its row says it
                    await asyncio.sleep(0.05)
            assert not process.worker.replaced
            if stays:
                _, pending = await asyncio.wait([serving], timeout=0.5)
                assert pending, "it ended, and would have stopped the service"
                process.drain()
            await asyncio.wait_for(serving, PATIENCE_S)

    asyncio.run(go())


@pytest.mark.req("RT-2")
def test_leaving_gives_back_what_was_held(opened: Opened) -> None:
    async def go() -> None:
        async with opened() as store:
            async with InProcessRuntime(store, [claims], live=LIVE) as first:
                run = await begin(first)
                approval = await asked(first, run)
            assert not await first.operations.rows.serving()
            await first.operations.approve(approval, reason="fine")
            assert (await first.get(run)).status == "waiting"
            async with InProcessRuntime(store, [claims], live=LIVE) as second:
                assert (await second.finished(run)).status == "completed"

    asyncio.run(go())


def test_a_read_that_fails_after_a_commit_does_not_say_that_nothing_was_written(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A caller that repeated the action because of OUT-504 would do it twice."""

    async def away(self: TenantRows) -> Any:
        raise Unavailable("the store does not answer")

    async def go() -> None:
        async with opened() as store:
            ops = Operations(store, tenant="default", actor=Actor("ana"), workflows={"order": orders})
            monkeypatch.setattr(TenantRows, "serving", away)
            with pytest.raises(Uncertain, match="it is done, but"):
                await ops.start_run("order", {"shop": "acme", "number": "1", "cents": 5}, run_id="r1")
            assert (await ops.rows.run("r1")).run == "r1"

    asyncio.run(go())
