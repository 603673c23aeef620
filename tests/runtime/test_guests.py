"""A guest's worker over a real SQLite file and real time: slices, a decision by the bridge, a restart of the worker."""

import asyncio
from pathlib import Path

import pytest
from pydantic import BaseModel

import outlast
from outlast import Client, Context, Workflow, activity, role, workflow
from outlast.clocks import SystemClock
from outlast.core.durations import Liveness
from outlast.runtime.local_worker import Serving, worker_of
from outlast.runtime.operations import Operations
from outlast.runtime.run_handle import RunHandle
from tests.guests import FakeEngine

LIVE = Liveness(heartbeat_window=900, heartbeat_every=300, drain_grace=5_000)
PAID: list[str] = []
CLERKS = role("clerk")


class Bill(BaseModel):
    number: str


class Word(BaseModel):
    text: str = ""


bills = Workflow("bill", state=Bill)


@activity(key="pay/{number}", no_undo="the bank has it")
async def pay_bill(number: str) -> str:
    PAID.append(number)
    return number


@bills.node(start=True)
async def settle(ctx: Context[Bill]) -> None:
    await ctx.receive("ready", Word)
    await ctx.do(pay_bill, ctx.state.number)


@workflow(name="guest-first")
async def first_of_three(ctx: Context, number: str) -> list[str]:
    """Take a word, an answer or an hour; then a time that comes before the word."""
    said = []
    plan = pay_bill.plan(number)
    match await ctx.first(
        ctx.receive("ready", Word), ctx.sleep("1h"), ctx.approval(plan, summary="Pay", by=CLERKS, within="1d")
    ):
        case 0, word:
            said.append(word.text)
        case 1, _:
            said.append("late")
        case 2, decision:
            said.append(str(decision.approved))
    won, _ = await ctx.first({"word": ctx.receive("ready", Word, round=1), "time": ctx.sleep("200ms", name="short")})
    return [*said, won]


async def waits(client: Client, run: RunHandle[Bill]) -> None:
    """Wait until the run waits for its signal. A run that no worker has taken waits for a worker."""

    async def found() -> bool | None:
        return any(each.kind == "signal" for each in (await client.run_summary(run.id)).waiting_for) or None

    assert await client.until(found, within_s=20)


@pytest.mark.req("RT-4")
def test_a_run_continues_over_a_restart_of_its_worker(tmp_path: Path) -> None:
    """The engine keeps its loops while workers come and go, as a cluster does."""

    async def go() -> None:
        engine = FakeEngine(SystemClock())
        async with outlast.connect(f"sqlite:{tmp_path / 'o.db'}", workflows=[bills]) as client:
            assert isinstance(client, Operations)
            store = client.store

            def process() -> Serving:
                return Serving(store, lambda: worker_of(store, [bills], live=LIVE, guest=engine.guest()))

            first = process()
            serving = asyncio.create_task(first.run())
            runs = [await client.start(bills, Bill(number=f"b{i}"), scheduler="temporal") for i in range(5)]
            for run in runs:
                await waits(client, run)
            first.drain()
            await serving
            second = process()
            serving = asyncio.create_task(second.run())
            for run in runs:
                await client.signal(run.id, "ready", {})
            for run in runs:
                assert await client.ended(run.id, within_s=20)
            second.drain()
            await serving
        assert sorted(PAID) == [f"b{i}" for i in range(5)]

    asyncio.run(go())


@pytest.mark.req("RT-4")
@pytest.mark.parametrize("engine", ["temporal", "langgraph"])
def test_a_guest_goes_on_at_the_first_of_several_waits(tmp_path: Path, engine: str) -> None:
    """The worker is replaced while the run waits for a signal, a time and a person."""

    async def go() -> None:
        guest = FakeEngine(SystemClock(), engine)
        async with outlast.connect(f"sqlite:{tmp_path / 'o.db'}", workflows=[first_of_three]) as client:
            assert isinstance(client, Operations)
            store = client.store

            def process() -> Serving:
                return Serving(store, lambda: worker_of(store, [first_of_three], live=LIVE, guest=guest.guest()))

            first = process()
            serving = asyncio.create_task(first.run())
            run = await client.start(first_of_three, first_of_three.arguments(number="b9"), scheduler=engine)
            await waits(client, run)
            kinds = {each.kind for each in (await client.run_summary(run.id)).waiting_for}
            assert kinds == {"signal", "timer", "approval"}
            first.drain()
            await serving
            await client.signal(run.id, "ready", {"text": "now"})
            second = process()
            serving = asyncio.create_task(second.run())
            assert await client.ended(run.id, within_s=20), await client.explain(run.id)
            assert await run.result() == ["now", "time"]
            (approval,) = (await client.approvals(run=run.id)).approvals
            assert approval.status == "withdrawn"
            second.drain()
            await serving

    asyncio.run(go())
