"""The deploy gate against a corpus of edits, and against what a worker of the edited code then really does."""

import asyncio
import shutil
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from outlast.core.durations import Liveness
from outlast.core.machine import TERMINAL
from outlast.core.rows.run_rows import Run
from outlast.engine import commands
from outlast.flow import workflows_of
from outlast.flow.registry import ACTIVITIES
from outlast.runtime.in_process import InProcessRuntime
from outlast.runtime.stores import open_store, until
from outlast.upkeep.deploy_check import DeployReport, check
from tests import copies
from tests.deploys.code import BASE, Edit, load
from tests.deploys.edits import ALL, BREAKING, SAFE

SHORT = Liveness(heartbeat_window=300, heartbeat_every=100, attempt_timeout=2_000, start_budget=1_000,
                 settle_margin=100, drain_grace=2_000)  # fmt: skip
PATIENCE_S = 60.0
STRANDS = {"node_gone", "stranded_version", "contradiction", "node_diverged", "exception"}
SEEN_LATER = {"undo", "approval"}
"""Findings that no re-run of the node shows: an undo is needed only by a cancel; a changed plan is requested again."""


def rows(kind: str) -> Any:
    return {"plan": "signal", "busy": "retry", "lost": "attention", "review": "approval", "settle": "timer"}[kind]


async def stand_everywhere(url: str, module: ModuleType) -> None:
    """Bring runs of version 1 to every place, with their waits as rows and no process left."""
    store = await open_store(url)
    try:
        async with InProcessRuntime(store, workflows_of(module), live=SHORT) as runtime:
            ops = runtime.operations
            for where in sorted(ALL - {"queued"}):
                await ops.start_run("order", {"order_id": where}, run_id=where)
            for where, kind in (("plan", "signal"), ("review", "signal"), ("settle", "signal")):
                await arrived(runtime, where, kind)
            for where in ("review", "settle"):
                await ops.signal(where, "go", {})
                await arrived(runtime, where, "approval")
            (asked,) = [a for a in (await ops.rows.approvals(status="pending"))[0] if a.run == "settle"]
            await ops.approve(asked.id)
            for where in sorted(ALL - {"queued"}):
                await arrived(runtime, where, rows(where))
        await ops.start_run("order", {"order_id": "queued"}, run_id="queued")
    finally:
        await store.close()


async def arrived(runtime: InProcessRuntime, run: str, kind: str) -> None:
    async def look() -> bool | None:
        row = await runtime.operations.rows.run(run)
        return True if kind in [w.kind for w in row.waiting_for] and not row.owner else None

    assert await until(runtime.store, look, within_s=PATIENCE_S), (run, kind, await runtime.operations.rows.run(run))


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store with a run in every place."""
    folder = tmp_path_factory.mktemp("base")
    before = dict(ACTIVITIES._by_name)
    module = load(folder, "deployed_base", BASE)
    asyncio.run(stand_everywhere(f"sqlite:{folder / 'outlast.db'}", module))
    assert len(module.WORLD) == 4, module.WORLD
    ACTIVITIES._by_name.clear()
    ACTIVITIES._by_name.update(before)
    return folder


@pytest.fixture
def copy(base: Path, tmp_path: Path) -> str:
    """Copy that store for one edit."""
    for path in base.glob("outlast.db*"):
        shutil.copy(path, tmp_path / path.name)
    copies.adopt(tmp_path / "outlast.db")
    return f"sqlite:{tmp_path / 'outlast.db'}"


async def looked_at(url: str, module: ModuleType) -> DeployReport:
    store = await open_store(url)
    try:
        return await check(store, workflows_of(module))
    finally:
        await store.close()


@pytest.mark.req("TEST-3")
@pytest.mark.parametrize("edit", [*BREAKING, *SAFE], ids=lambda edit: edit.name)
def test_the_check_names_exactly_the_runs_that_would_not_continue(edit: Edit, copy: str, tmp_path: Path) -> None:
    module = load(tmp_path, "deployed_edit", edit.change(BASE))
    found = asyncio.run(looked_at(copy, module))
    assert found.looked_at == len(ALL)
    assert set(found.stranded) == edit.breaks, [v[1:] for v in found.verdicts]
    if edit.kind:
        assert {v.kind for v in found.verdicts} == {edit.kind}
    assert all(len(v.why.splitlines()[0]) > 20 for v in found.verdicts)


async def woken(url: str, module: ModuleType, stranded: Sequence[str], answer: bytes) -> dict[str, Run]:
    """Wake every run under a worker of this code, answer its waits, and let it come to rest."""
    store = await open_store(url)
    try:
        async with InProcessRuntime(store, workflows_of(module), live=SHORT) as runtime:
            ops = runtime.operations
            for run in ALL:
                await ops.signal(run, "go" if run in ("plan", "lost") else "nudge", {})
            await commands.resolve_effect(
                store,
                tenant="default",
                run="lost",
                key="reserve/lost",
                verb="happened",
                actor="op",
                reason="asked",
                encode=lambda effect: answer,
            )

            async def look() -> dict[str, Run] | None:
                now = {run: await ops.rows.run(run) for run in ALL}
                at_rest = all(row.status in TERMINAL or (not row.owner and _read(row)) for row in now.values())
                called = all(reasons(now[run]) & STRANDS for run in stranded)
                return now if at_rest and called else None

            left = await until(store, look, within_s=PATIENCE_S)
            assert left is not None, {run: (await ops.rows.run(run)) for run in ALL}
            return left
    finally:
        await store.close()


def _read(row: Run) -> bool:
    """Return True if the run was executed since it was woken and is at rest."""
    waits = [w.kind for w in row.waiting_for]
    return bool(waits) and "worker" not in waits and (row.seq > 3 or bool(row.attention))


def reasons(row: Run) -> set[str]:
    return {a.reason.value for a in row.attention}


@pytest.mark.req("RUN-8")
@pytest.mark.req("TEST-3")
@pytest.mark.parametrize("edit", [*BREAKING, *SAFE], ids=lambda edit: edit.name)
def test_the_findings_of_the_check_come_true(edit: Edit, copy: str, tmp_path: Path) -> None:
    """A worker of the edited code takes every run.

    The reported runs need a person and the others do not. No run ends silently, and no effect happens twice.
    """
    module = load(tmp_path, "deployed_edit", edit.change(BASE))
    found = asyncio.run(looked_at(copy, module))
    sure = {v.run for v in found.verdicts if v.kind not in SEEN_LATER}
    sure -= {"busy"} if edit.kind == "edge" else set()  # between two attempts, it is far from its return
    left = asyncio.run(woken(copy, module, sorted(sure), b"7" if edit.kind == "answer" else b'"R-lost"'))
    for run, row in left.items():
        if run in sure:
            assert reasons(row) & STRANDS, (run, row)
        elif run not in edit.breaks:
            assert not reasons(row) & STRANDS, (run, row.attention)
        assert row.status not in TERMINAL, "no run ends: each has a wait, an approval or a person before its end"
    done_before = {"plan", "review", "settle"}
    again = [key for key in module.WORLD if any(f":reserve/{run}" in key for run in done_before) or "pay/settle" in key]
    assert again == [], "it was done before the deploy"
