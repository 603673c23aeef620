"""A call that was done and whose answer cannot be stored, as people see it (issue 29, item 13)."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx2

import outlast
from outlast import Context, activity, workflow
from outlast.models.effects import effect_id
from outlast.runtime.in_process import InProcessRuntime
from outlast.runtime.stores import open_store, until
from outlast.upkeep.fsck import Fsck
from tests.runtime.row_readers import FAULTS, command


@activity(key="buy/{name}", no_undo="a test")
async def buy(name: str) -> str:
    return "head of it " + "x" * 300_000


@workflow
async def shopping(ctx: Context[Any], name: str) -> str:
    """Buy, with an answer that is too large."""
    return await ctx.do(buy, name)


async def _play(url: str) -> dict[str, str]:
    store = await open_store(url)
    try:
        async with InProcessRuntime(store, [shopping]) as runtime:
            await runtime.operations.start_run("shopping", {"name": "a"}, run_id="r1")

            async def flagged() -> bool | None:
                return True if (await runtime.operations.rows.run("r1")).attention_text else None

            assert await until(store, flagged, within_s=60)
        assert (await Fsck(store, chain=True).look()).findings == ()
        local = httpx2.ASGITransport(app=outlast.asgi(store, [shopping]), client=("127.0.0.1", 1))
        effect = effect_id("r1", 1, "buy/a")
        async with httpx2.AsyncClient(transport=local, base_url="http://127.0.0.1") as client:
            paths = ("/v1/runs/r1/effects", "/ui/runs/r1", "/ui/runs/r1/effects", f"/ui/effects/{effect}")
            return {path: (await client.get(path)).text for path in paths}
    finally:
        await store.close()


def test_a_call_that_was_done_without_an_answer_says_so_everywhere(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'rows.db'}"
    pages = asyncio.run(_play(url))
    (effect,) = json.loads(pages["/v1/runs/r1/effects"])["effects"]
    assert (effect["status"], effect["code"], effect["response"]) == ("done", "answer_not_stored", None)
    for text in pages.values():
        assert not any(fault in text for fault in FAULTS[:1]) and "buy" in text
    shown = command(url, "effects show r1 buy/a")
    assert shown.status == 0 and "too large" in shown.text and "head of it" in shown.text, shown.text
    for words in ("effects ls", "runs show r1", "explain r1", "runs effects r1", "attention show r1"):
        found = command(url, words)
        assert found.status == 0 and "buy/a" in found.text, f"{words}: {found.text}"
    file = tmp_path / "r1.json"
    assert command(url, f"export r1 --to {file}").status == 0
    assert command(url, f"verify {file}").status == 0
