"""Reads change nothing: no link decides, and none is issued (S9)."""

import asyncio
from pathlib import Path
from typing import Any

import httpx2
import pytest

import outlast
from outlast.core.approvals import Actor
from outlast.core.machine import ApprovalStatus
from outlast.core.rows.all_kinds import KINDS
from outlast.models.effects import effect_id
from outlast.runtime.in_process import InProcessRuntime
from outlast.runtime.operations import Operations
from outlast.runtime.stores import open_store, until
from tests.security.flows import payments
from tests.security.test_matrix import TABLE, UNKNOWN_IDS, address

READS = [row for row in TABLE if row["method"] == "GET"]


@pytest.mark.req("GATE-2")
def test_no_read_writes_anything(tmp_path: Path) -> None:
    """Every GET of the application, and HEAD and OPTIONS of every path, without a commit."""

    async def check() -> None:
        store = await open_store(f"sqlite:{tmp_path}/outlast.db")
        actor = Actor("ana", frozenset({"finance"}), ("finance",))
        ops = Operations(store, tenant="default", actor=actor, workflows={"payment": payments})
        async with InProcessRuntime(store, [payments]):
            given = {"order": "reads", "cents": 1, "within_ms": 3_600_000, "quorum": 1}
            run = (await ops.start_run("payment", given)).run

            async def asked() -> str | None:
                return next((row.id for row in await ops.rows.approvals_of(run)), None)

            approval = str(await until(store, asked, within_s=60))
        hook = (await ops.webhooks.add("https://93.184.216.34/hook")).webhook
        ids = {**UNKNOWN_IDS, "run": run, "approval": approval, "name": "payment", "webhook": hook,
               "effect": effect_id(run, 1, "x")}  # fmt: skip
        written: list[Any] = []
        for name in ("commit", "submit", "take", "purge", "forget"):
            setattr(store, name, lambda *args, _name=name, **more: written.append((_name, args)))
        local = httpx2.ASGITransport(app=outlast.asgi(store, [payments]), client=("127.0.0.1", 1))
        async with httpx2.AsyncClient(transport=local, base_url="http://127.0.0.1") as client:
            for row in TABLE:
                path = address(row["path"], ids)
                for method in ("HEAD", "OPTIONS", *(["GET"] if row in READS else [])):
                    try:
                        query = {"decision": "approve", "reason": "x", "token": "x"}
                        streams = method == "GET" and "events" in path
                        answer = await asyncio.wait_for(
                            client.request(method, path, params=query), 2 if streams else 30
                        )
                    except TimeoutError:
                        assert streams, f"{method} {path}"  # it goes on
                        continue
                    assert answer.status_code < 500 and not written, f"{method} {path}: {answer.text} {written}"
            await client.post(f"/v1/runs/{run}/cancel", json={"reason": "x"})
            assert written, "a write would have been seen"
        seen = await ops.rows.approval(approval)
        assert seen.status is ApprovalStatus.PENDING
        del store.commit, store.submit, store.take, store.purge, store.forget
        await store.close()

    asyncio.run(check())


def test_no_link_decides_and_no_row_contains_one() -> None:
    """No row and no path contains a token for a link."""
    columns = {column for kind in KINDS for column in kind.columns}
    assert not {column for column in columns if "link" in column}
    assert all("{token" not in row["path"] and "link" not in row["path"] for row in TABLE)
    assert [row["method"] for row in TABLE if row["path"].endswith("/decision")] == ["POST"]
