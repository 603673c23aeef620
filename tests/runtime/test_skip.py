"""`outlast.testing.skip`: business time that passes at once, on either store and on real clocks."""

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest
from pydantic import BaseModel

from outlast import Context, Workflow
from outlast.runtime import InProcessRuntime, open_store
from outlast.runtime.stores import until
from outlast.testing import skip


class Nothing(BaseModel):
    woken: bool = False


night = Workflow("night", state=Nothing)


@night.node(start=True)
async def rest(ctx: Context[Nothing]) -> None:
    await ctx.sleep(timedelta(hours=96), name="night")
    ctx.state.woken = True


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_days_pass_at_once(kind: str, tmp_path: Path) -> None:
    async def story() -> None:
        store = await open_store("memory:" if kind == "memory" else f"sqlite:{tmp_path / 'night.db'}")
        try:
            async with InProcessRuntime(store, [night]) as runtime:
                run = await runtime.start(workflow_name="night", input={}, idempotency_key="1", correlation_id="1")

                async def sleeps() -> bool | None:
                    waits = (await runtime.get(run.id)).waiting_for
                    return True if any(wait.kind == "timer" for wait in waits) else None

                await until(store, sleeps)
                before = await store.now()
                await skip(store, days=3, hours=23)
                assert (await runtime.get(run.id)).status == "waiting"
                await skip(store, minutes=60)
                done = await runtime.finished(run.id)
                assert (done.status, done.outcome) == ("completed", {"woken": True})
                after = await store.now()
                assert after.business - before.business - (after.real - before.real) == 96 * 3_600_000
        finally:
            await store.close()

    asyncio.run(story())


@pytest.mark.parametrize("span", [{}, {"hours": -1}])
def test_time_only_passes_forward(span: dict[str, float]) -> None:
    async def story() -> None:
        store = await open_store("memory:")
        with pytest.raises(ValueError, match="only passes forward"):
            await skip(store, **span)
        await store.close()

    asyncio.run(story())
