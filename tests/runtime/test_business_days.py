"""Deadlines in business days on each kind of store: written with the wait and the approval, and read back (RUN-11)."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from outlast import Context, Workflow, activity, business_days, role
from outlast.core.rows.effect_rows import WAIT
from outlast.runtime import InProcessRuntime, open_store
from outlast.runtime.stores import until
from tests.runtime.spoilt_stores import STORES

SOON = business_days(2, zone="Europe/Berlin")


class State(BaseModel):
    name: str = "a"


class Word(BaseModel):
    text: str


flow = Workflow("due", state=State)


@activity(key="pay/{name}", no_undo="a test undoes nothing")
async def pay(name: str) -> str:
    return name


@flow.node(start=True, within=business_days(9, zone="Europe/Berlin"))
async def begin(ctx: Context[State]) -> None:
    await ctx.receive("word", Word, timeout=SOON)
    plan = pay.plan(name=ctx.state.name)
    decision = await ctx.approval(plan, summary="pay", by=role("lead"), within=SOON, valid_for=SOON)
    if decision.chosen is not None:
        await ctx.do(decision.chosen)


async def _play(url: str) -> tuple[Any, str, str, str]:
    store = await open_store(url)
    try:
        async with InProcessRuntime(store, [flow]) as runtime:
            ops = runtime.operations
            run = (await ops.start_run("due", {}, run_id="due-1")).run

            async def waits() -> Any:
                rows = await store.rows(WAIT, ("default", run))
                return rows[0] if rows and (await ops.run_summary(run)).status == "waiting" else None

            wait = await until(store, waits, within_s=30)
            explained = (await ops.explain(run)).model_dump_json()
            await ops.signal(run, "word", {"text": "go"})

            async def asked() -> str | None:
                listed = (await ops.approvals()).approvals
                return listed[0].approval if listed else None

            approval = await until(store, asked, within_s=30)
            assert approval is not None
            shown = await ops.approval(approval)
            await ops.approve(approval)
            assert await ops.ended(run, within_s=30)
            return wait, explained, shown.due, (await ops.run_summary(run)).status
    finally:
        await store.close()


@pytest.mark.req("RUN-11", "RT-5")
@pytest.mark.parametrize("name", ["sqlite", *STORES])
def test_deadlines_in_business_days_are_kept_by_each_store(name: str, tmp_path: Path) -> None:
    if name == "sqlite":
        found = asyncio.run(_play(f"sqlite:{tmp_path / 'due.db'}"))
    else:
        with STORES[name].empty() as url:
            found = asyncio.run(_play(url))
    wait, explained, due, status = found
    assert wait.due is not None and wait.due.ms == wait.deadline and wait.due == SOON.due(wait.since)
    assert wait.due.when in explained
    assert "Europe/Berlin" in due and status == "completed"
