"""Readers of a run whose history is a window, on each store (S-32)."""

import asyncio
import json
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest
from pydantic import BaseModel

from outlast import Context, Workflow, activity
from outlast.errors import Conflict
from outlast.insight.explanation import RunExplanation
from outlast.models.runs import RunDetail
from outlast.runtime import InProcessRuntime
from outlast.runtime.stores import open_store, until
from outlast.upkeep.export import export, verify
from outlast.upkeep.fsck import Fsck
from outlast.upkeep.recording import recording_of
from tests.runtime.spoilt_stores import STORES

VISITS, HISTORY = 60, 10


class Rounds(BaseModel):
    n: int = 0


@activity(key="round/{n}", name="window-round", no_undo="a test")
async def note(n: int) -> int:
    return n


rounds = Workflow("window-rounds", state=Rounds, history=HISTORY)


@rounds.node(start=True)
async def turn(ctx: Context[Rounds]) -> Literal["turn"]:
    ctx.state.n = await ctx.do(note, ctx.state.n + 1)
    if ctx.state.n >= VISITS:
        await ctx.sleep("1000h")
    return "turn"


class Seen(NamedTuple):
    """Answers of the readers about the run."""

    explained: RunExplanation
    detail: RunDetail
    events: list[int]
    exported: int
    points: list[int]
    not_undone: list[str]
    findings: tuple[Any, ...]


async def _play(url: str) -> Seen:
    store = await open_store(url)
    try:
        async with InProcessRuntime(store, [rounds]) as runtime:
            ops = runtime.operations
            run = (await ops.start_run("window-rounds", {}, run_id="w1")).run

            async def sleeps() -> bool | None:
                row = await ops.rows.run(run)
                return True if row.waiting_for_text and row.visit == VISITS else None

            assert await until(store, sleeps, within_s=60)
            explained, detail = await ops.explain(run), await ops.run(run)
            events = [event.seq for event in await ops.history(run)]
            document = await export(ops, run, whole=True)
            assert verify(json.dumps(document).encode()).findings == ()
            points = [point.visit for point in (await ops.fork_points(run)).points]
            with pytest.raises(Conflict, match=f"its history before visit {detail.history_from} was purged"):
                await ops.fork_preview(run, "3", approvers="anyone")
            await ops.cancel(run, reason="enough")
            end = await ops.ended(run, within_s=60)
            assert end is not None
            with pytest.raises(Conflict, match="before visit"):
                await recording_of(ops, run)
            report = await Fsck(store, chain=True).look()
            kept = list((await ops.run(run)).not_undone)
            return Seen(explained, detail, events, len(document["events"]), points, kept, report.findings)
    finally:
        await store.close()


@pytest.mark.req("RUN-15", "RT-5")
@pytest.mark.parametrize("name", ["sqlite", *STORES])
def test_readers_of_a_window_on_each_store(name: str, tmp_path: Path) -> None:
    if name == "sqlite":
        seen = asyncio.run(_play(f"sqlite:{tmp_path / 'window.db'}"))
    else:
        with STORES[name].empty() as url:
            seen = asyncio.run(_play(url))
    begins = seen.detail.history_from
    assert VISITS - 2 * HISTORY < begins <= VISITS - HISTORY
    assert seen.explained.facts["history"].startswith(f"before visit {begins} it was purged; in force: window-round")
    assert seen.events[0] == 1 and seen.events[1:] == [*range(seen.events[1], seen.events[-1] + 1)]
    assert seen.events[1] > VISITS - 2 * HISTORY and seen.exported == len(seen.events)
    assert seen.findings == () and seen.points == [*range(begins, VISITS + 1)]
    assert f"window-round: {begins - 1} calls before the window of its history" in seen.not_undone
