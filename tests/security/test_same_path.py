"""Ids of other tenants and unknown ids take the same path, so timing reveals nothing (S3).

Compares the store calls, because times are unreliable on a busy machine.
"""

import asyncio
import re
from pathlib import Path
from typing import Any

import httpx2
import pytest

import outlast
from outlast.core.approvals import Actor
from outlast.models.effects import effect_id
from outlast.runtime.in_process import InProcessRuntime
from outlast.runtime.operations import Operations
from outlast.runtime.stores import open_store, until
from outlast.service.identity import Anonymous
from outlast.store.port import Store
from tests.security.flows import payments
from tests.security.test_matrix import EXAMPLES, TABLE, UNKNOWN_IDS, address, without_ids

OF_AN_ID = [row for row in TABLE if re.search("{(run|approval|effect|webhook|delivery)}", row["path"])]
ASKED = ("load", "load_many", "rows", "page", "query", "run_rows", "now", "commit", "submit", "urgent_sync")


class CallRecorder:
    """Record the calls to a store during the block."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.heard: list[tuple[str, str]] = []

    def __enter__(self) -> "CallRecorder":
        for name in ASKED:
            setattr(self._store, name, self._listening(name, getattr(self._store, name)))
        return self

    def __exit__(self, *args: object) -> None:
        for name in ASKED:
            delattr(self._store, name)

    def _listening(self, name: str, inner: Any) -> Any:
        def heard(*args: Any, **more: Any) -> Any:
            self.heard.append((name, f"{args} {more}"))
            return inner(*args, **more)

        return heard


async def theirs(store: Store) -> dict[str, str]:
    """Return ids of acme: a waiting run, its approval, an effect, a webhook and a delivery."""
    actor = Actor("ana", frozenset({"finance"}), ("finance",))
    ops = Operations(store, tenant="acme", actor=actor, workflows={"payment": payments})
    async with InProcessRuntime(store, [payments]):
        run = (await ops.start_run("payment", {"order": "path", "cents": 1, "within_ms": 3_600_000, "quorum": 1})).run

        async def asked() -> str | None:
            return next((row.id for row in await ops.rows.approvals_of(run)), None)

        approval = str(await until(store, asked, within_s=60))
    hook = (await ops.webhooks.add("https://93.184.216.34/hook")).webhook
    return {"run": run, "approval": approval, "name": "said", "effect": effect_id(run, 1, "pay"), "webhook": hook,
            "delivery": f"{hook}:{run}:1"}  # fmt: skip


@pytest.mark.req("RUN-5", "GATE-2")
def test_ids_of_other_tenants_take_the_path_of_unknown_ids(tmp_path: Path) -> None:
    """Every route with an id: the same store calls in the caller's tenant, and the same answer."""

    async def check() -> None:
        store = await open_store(f"sqlite:{tmp_path}/outlast.db")
        there = await theirs(store)
        nowhere = {**UNKNOWN_IDS, "name": "said", "effect": effect_id(UNKNOWN_IDS["run"], 1, "pay"),
                   "delivery": f"{UNKNOWN_IDS['webhook']}:{UNKNOWN_IDS['run']}:1"}  # fmt: skip
        app = outlast.asgi(store, [payments], authenticator=Anonymous("local:eve", tenant="globex"))
        local = httpx2.ASGITransport(app=app, client=("127.0.0.1", 1))
        async with httpx2.AsyncClient(transport=local, base_url="http://127.0.0.1") as client:
            for row in OF_AN_ID:
                for accept in ("application/json", "text/event-stream"):
                    found = [await _asked(client, store, row, accept, ids) for ids in (there, nowhere)]
                    assert found[0] == found[1], row["operation"]
                    status, _, heard = found[0]
                    assert status == 404 and heard, (row["operation"], found[0])
                    assert not any("acme" in what for _, what in heard), (row["operation"], heard)
        await store.close()

    asyncio.run(check())


async def _asked(
    client: httpx2.AsyncClient, store: Store, row: dict[str, str], accept: str, ids: dict[str, str]
) -> tuple[int, str, list[tuple[str, str]]]:
    given: dict[str, Any] = {"json": EXAMPLES[row["operation"]].body} if row["operation"] in EXAMPLES else {}
    headers = {"Accept": accept, "If-Match": '"v1"'}
    names = sorted(ids.values(), key=len, reverse=True)
    with CallRecorder(store) as recorder:
        answer = await client.request(row["method"], address(row["path"], ids), headers=headers, **given)
    heard = [(name, without_ids(what, *names)) for name, what in recorder.heard]
    return answer.status_code, without_ids(answer.text, *names), heard
