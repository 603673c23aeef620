"""A child in a lane that no live worker serves: it is started, and the tree says which lane lacks a worker."""

import asyncio
from pathlib import Path

import pytest

import outlast
from outlast import Context, workflow
from outlast.core.durations import Liveness
from outlast.runtime.operations import Operations
from outlast.upkeep.deploy_check import check
from outlast.upkeep.whole_store import examine

LIVE = Liveness(heartbeat_window=900, heartbeat_every=300, drain_grace=5_000)


@workflow(name="lane-child")
async def unserved(ctx: Context) -> str:
    return "done"


@workflow(name="lane-parent")
async def parent(ctx: Context, engine: str) -> str:
    return await ctx.run(unserved, unserved.arguments(), key="c", scheduler=engine or None)


@pytest.mark.req("RUN-13")
@pytest.mark.parametrize(("engine", "lane"), [("", "lane-child@1"), ("temporal", "temporal:lane-child@1")])
def test_a_child_whose_lane_nobody_serves_waits_for_a_worker(tmp_path: Path, engine: str, lane: str) -> None:
    async def go() -> None:
        async with outlast.connect(f"sqlite:{tmp_path / 'o.db'}", workflows=[parent, unserved]) as client:
            assert isinstance(client, Operations)
            async with client.worker([parent], live=LIVE):
                run = await client.start(parent, parent.arguments(engine=engine))

                async def started() -> str | None:
                    found = await client.tree(run.id)
                    return found.children[0].run if found.children else None

                child = await client.until(started, within_s=20)
                assert child

                async def waits() -> bool | None:
                    return (await client.run_summary(run.id)).status == "waiting" or None

                assert await client.until(waits, within_s=20)
                summary = await client.run_summary(child)
                assert [wait.kind for wait in summary.waiting_for] == ["worker"]
                assert lane in summary.waiting_for[0].what and not summary.served
                told = await client.explain(run.id)
                assert f"no live worker serves {lane}" in told.sentence and told.facts["path"] == f"{run.id} → {child}"
                assert any(command.startswith("outlast worker") for command in told.unblock)
                assert (await check(client.store, [parent])).elsewhere == {lane: 1}
                assert lane in [each.found for each in await examine(client) if each.what == "unserved"]
            if not engine:
                async with client.worker([parent, unserved], live=LIVE):
                    assert await run.result() == "done"

    asyncio.run(go())
