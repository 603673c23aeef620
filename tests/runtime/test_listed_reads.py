"""Each read over the rows of many runs replaces a row that it cannot read, and fails with that removed (0116)."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from outlast.core.approvals import Actor
from outlast.core.machine import EffectStatus, Reason
from outlast.core.rows.effect_rows import EFFECT
from outlast.engine import commands
from outlast.errors import Corrupt
from outlast.insight.run_facts import messages_of
from outlast.runtime.operations import Operations
from outlast.runtime.run_waiters import RunWaiters
from outlast.runtime.stores import open_store
from outlast.runtime.webhooks import lag_of
from outlast.service.event_poller import EventPoller
from outlast.upkeep.deploy_check import check
from outlast.upkeep.fsck import Fsck
from outlast.upkeep.whole_store import unfinished
from tests.mutants import remove
from tests.runtime.hostile_rows import execute, goods, played

TENANT = "default"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Bytes of a store with healthy and faulty runs."""
    return played(tmp_path_factory.mktemp("rows") / "rows.db").read_bytes()


async def effects_of(ops: Operations, run: str) -> Any:
    return await ops.rows.effects_of(await ops.rows.run(run))


async def of_an_open_call(ops: Operations) -> Any:
    effects = [
        each._replace(status=EffectStatus.INTENDED) for each in await ops.store.rows(EFFECT, (TENANT, "bad-lose"))
    ]
    return await ops.rows.held_runs(effects)


async def of_an_uncertain_call(ops: Operations) -> Any:
    return await ops.rows.asked_effects(await ops.store.rows(EFFECT, (TENANT, "bad-lose")))


async def of_attention(ops: Operations) -> Any:
    return await ops.rows.uncertain_evidence([await ops.rows.run("bad-lose")])


async def named_by_attention(ops: Operations) -> Any:
    run = await ops.rows.run("bad-lose")
    return await commands._effects(ops.store, [(TENANT, run.run, each.visit, each.key) for each in run.attention])


async def assigned(ops: Operations) -> Any:
    return await ops.assign("ok-lose", "ana", reason=Reason.EFFECT_UNCERTAIN)


async def waited_for(ops: Operations) -> Any:
    waiters = RunWaiters(ops.store)
    await asyncio.gather(*(waiters.wait(TENANT, f"{kind}-end", lambda row: True) for kind in ("ok", "bad")))


Read = Callable[[Operations], Awaitable[Any]]
RUN = "UPDATE run SET status = 'no_such_member' WHERE run LIKE 'bad-%'"
CASES: dict[str, tuple[str, Read]] = {
    "runs not ended": (RUN, unfinished),
    "runs of a deploy": (RUN, lambda ops: check(ops.store, [goods])),
    "runs of open calls": (RUN, of_an_open_call),
    "runs of uncertain calls": (RUN, of_an_uncertain_call),
    "runs that are assigned": (RUN, assigned),
    "runs that are waited for": (RUN, waited_for),
    "effects of others": (
        "UPDATE effect SET status = 'no_such_member' WHERE run = '' AND by_run = 'bad-end'",
        lambda ops: effects_of(ops, "bad-end"),
    ),
    "effects of attention": ("UPDATE effect SET status = 'no_such_member' WHERE run = 'bad-lose'", of_attention),
    "effects of an answer": ("UPDATE effect SET status = 'no_such_member' WHERE run = 'bad-lose'", named_by_attention),
    "late answers": ("UPDATE evidence SET at = 'x' WHERE run = 'bad-lose'", of_attention),
    "messages": (
        "UPDATE message SET at = 'x' WHERE run = 'bad-hear'",
        lambda ops: _messages(ops, "bad-hear"),
    ),
    "events of a poll": (
        "UPDATE event SET at = 'x' WHERE run LIKE 'bad-%'",
        lambda ops: EventPoller(ops.store, TENANT).moved(),
    ),
    "effects in fsck": (
        "UPDATE effect SET status = 'no_such_member' WHERE run = '' AND by_run = 'bad-end'",
        lambda ops: Fsck(ops.store, chain=True).look(),
    ),
    "users of effects in fsck": (
        "UPDATE usage SET at = 'x' WHERE run = 'bad-end'",
        lambda ops: Fsck(ops.store, chain=True).look(),
    ),
    "events not sent": ("UPDATE unpublished SET at = 'x' WHERE run LIKE 'bad-%'", lambda ops: lag_of(ops.store)),
}


async def _messages(ops: Operations, run: str) -> Any:
    return await messages_of(ops.store, await ops.rows.run(run))


@pytest.mark.parametrize("guarded", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_a_read_over_many_runs_replaces_an_unreadable_row(
    made: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, guarded: bool
) -> None:
    path = tmp_path / "rows.db"
    path.write_bytes(made)
    spoil, read = CASES[name]

    async def main() -> None:
        store = await open_store(f"sqlite:{path}", use="recover")
        try:
            ops = Operations(store, tenant=TENANT, actor=Actor("ops"), workflows={})
            if name == "runs that are assigned":
                await ops.assign("bad-lose", "ana", reason=Reason.EFFECT_UNCERTAIN)
            execute(path, spoil)
            if guarded:
                await read(ops)
                return
            remove("lists_read_strictly", monkeypatch)
            with pytest.raises(Corrupt, match="bad-"):
                await read(ops)
        finally:
            await store.close()

    asyncio.run(main())


OF_ONE: dict[str, Callable[[Operations, str], Awaitable[Any]]] = {
    "approval": Operations.approval, "attention": Operations.attention_of, "effects": Operations.effects,
    "effect": lambda ops, run: ops.effect(run, "order/x"), "run_summary": Operations.run_summary,
    "run": Operations.run, "run_input": Operations.run_input, "run_state": Operations.run_state,
    "results": Operations.results,
    "steps": Operations.steps, "timeline": Operations.timeline, "events": Operations.events,
    "explain": Operations.explain,
}  # fmt: skip


@pytest.mark.parametrize("error", [KeyError(), ValueError(), TypeError(), AttributeError(), OverflowError()])
@pytest.mark.parametrize("name", OF_ONE)
def test_a_value_of_one_run_that_cannot_be_shown_names_the_run(
    monkeypatch: pytest.MonkeyPatch, name: str, error: Exception
) -> None:
    """A reader that computed with it raised, which said that Outlast has a fault, and named no run."""

    async def fails(*args: Any, **more: Any) -> Any:
        raise error

    async def main() -> None:
        store = await open_store("memory:")
        ops = Operations(store, tenant=TENANT, actor=Actor("ops"), workflows={})
        with monkeypatch.context() as broken:
            broken.setattr(type(store), "query", fails)
            broken.setattr(type(store), "run_rows", fails)
            with pytest.raises(Corrupt, match="the rows of bad-end cannot be shown"):
                await OF_ONE[name](ops, "bad-end")
        await store.close()

    asyncio.run(main())
