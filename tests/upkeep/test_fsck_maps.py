"""Maps: one row of a real store is spoilt, and exactly the check of it says so."""

import asyncio
import shutil
from pathlib import Path

import pytest

from outlast import Context, Fail, activity, workflow
from outlast.runtime import InProcessRuntime, open_store
from outlast.runtime.stores import until
from tests.upkeep.test_fsck import _look, spoil

pytestmark = pytest.mark.req("RUN-14", "TEST-4")


@activity(key="dig/{what}", no_undo="a hole stays")
async def fsck_fills(what: str) -> None: ...


@workflow
async def fsck_digs(ctx: Context, what: str) -> str:
    if what == "slow":
        await ctx.sleep("1d")
    if what.startswith("bad"):
        raise Fail("nothing there")
    return what


@workflow
async def fsck_mapped(ctx: Context) -> list[str]:
    found = {each: fsck_digs.arguments(each) for each in ("tin", "bad", "gold")}
    undone = await ctx.map(fsck_digs, found, key="undone", undo={each: fsck_fills.plan(each) for each in found})
    done = await ctx.map(fsck_digs, found, at_most=2, no_undo="it only looks")
    return [*undone.completed, *done.completed]


@workflow
async def fsck_mapping(ctx: Context) -> bool:
    found = {each: fsck_digs.arguments(each) for each in ("tin", "slow", "bad", "slower")}
    return (await ctx.map(fsck_digs, found, at_most=2, tolerated_failures=0, no_undo="it only looks")).enough


@workflow
async def fsck_waiting(ctx: Context) -> bool:
    found = {each: fsck_digs.arguments(each) for each in ("lead", "slow")}
    return (await ctx.map(fsck_digs, found, no_undo="it only looks")).enough


async def play(url: str) -> None:
    """Play two runs whose maps have ended, of which one had too few, and one whose map waits for a child."""
    store = await open_store(url)
    try:
        async with InProcessRuntime(store, [fsck_digs, fsck_mapped, fsck_mapping, fsck_waiting]) as runtime:
            ops = runtime.operations
            await ops.start_run("fsck_mapped", {}, run_id="done")
            await ops.start_run("fsck_mapping", {}, run_id="few")
            await ops.start_run("fsck_waiting", {}, run_id="waits")
            await runtime.finished("done")
            await runtime.finished("few")

            async def counted() -> bool | None:
                waits = (await ops.run("waits")).waiting_for
                return True if waits and "1 of 2 have ended" in waits[0].what else None

            assert await until(store, counted, within_s=60)
    finally:
        await store.close()


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file of a closed store with three maps."""
    path = tmp_path_factory.mktemp("maps") / "runs.db"
    asyncio.run(play(f"sqlite:{path}"))
    return path


def test_maps_have_no_finding(played: Path, tmp_path: Path) -> None:
    looked = asyncio.run(_look(Path(shutil.copy(played, tmp_path / "clean.db"))))
    assert looked.findings == () and looked.runs == 14


GOLD = "run = 'done' AND key LIKE 'fsck_digs?%' AND place = 2"
COUNTED = f"run = (SELECT child FROM map_outcome WHERE {GOLD})"
CANARIES = {
    "no progress": ("DELETE FROM map_progress WHERE run = 'waits'", {"map_known"}),
    "no memo": ("DELETE FROM memo WHERE run = 'waits' AND activity = 'outlast.map' AND digest <> ''", {"map_known"}),
    "a letter too many": (
        "UPDATE map_progress SET states = states || '-' WHERE run = 'waits'",
        {"map_known"},
    ),
    "an unknown letter": (
        "UPDATE map_progress SET states = 'cq' WHERE run = 'waits'",
        {"map_known"},
    ),
    "a portion that is gone": ("DELETE FROM map_inputs WHERE run = 'waits'", {"map_inputs"}),
    "a portion with another input": ("UPDATE map_inputs SET data = x'5b5d' WHERE run = 'waits'", {"map_inputs"}),
    "an undecided map": (
        "UPDATE map_progress SET decided = '', settled = 0 WHERE run = 'few'",
        {"map_decided"},
    ),
    "another decision": ("UPDATE map_progress SET decided = 'enough' WHERE run = 'few'", {"map_decided"}),
    "settled while a child lives": (
        "UPDATE map_progress SET states = 'cf', decided = 'too_few', settled = 1 WHERE run = 'waits'",
        {"map_decided", "map_calls", "all_counted"},
    ),
    "an outcome that is gone": (f"DELETE FROM map_outcome WHERE {GOLD}", {"all_counted", "child_placed"}),
    "an outcome that was not counted": (
        "UPDATE map_progress SET states = '--' WHERE run = 'waits'",
        {"outcomes_counted"},
    ),
    "another outcome": (
        f'UPDATE map_outcome SET error = \'{{"code": "failed", "detail": "x"}}\' WHERE {GOLD}',
        {"outcomes_counted"},
    ),
    "another child": (
        f"UPDATE map_outcome SET child = (SELECT run FROM run WHERE descent LIKE '%few%' LIMIT 1) WHERE {GOLD}",
        {"outcomes_counted", "child_placed"},
    ),
    "a row of a counted child": (
        "UPDATE effect SET child = replace(child, '\"place\": 1', '\"place\": 0') WHERE run = 'waits' AND child <> ''",
        {"map_calls"},
    ),
    "a run of another status": (
        f"UPDATE run SET status = 'cancelled' WHERE {COUNTED}",
        {"outcomes_counted", "history_moves"},
    ),
}


@pytest.mark.parametrize("fault", list(CANARIES))
def test_exactly_the_checks_of_a_spoilt_row_fire(fault: str, played: Path, tmp_path: Path) -> None:
    statement, expected = CANARIES[fault]
    copy = Path(shutil.copy(played, tmp_path / "spoilt.db"))
    spoil(copy, statement)
    findings = asyncio.run(_look(copy)).findings
    assert {finding.check for finding in findings} == expected, findings
