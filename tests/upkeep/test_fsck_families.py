"""Parents and children: one row of a real store is spoilt, and exactly the check of it says so."""

import asyncio
import shutil
from pathlib import Path

import pytest
from pydantic import BaseModel

from outlast import Context, Fail, activity, workflow
from outlast.runtime import InProcessRuntime, open_store
from outlast.runtime.stores import until
from tests.upkeep.test_fsck import _look, spoil

pytestmark = pytest.mark.req("RUN-13", "TEST-4")
MID = "run = (SELECT external_id FROM effect WHERE key = 'mid')"
MIDDLE = "(SELECT external_id FROM effect WHERE key = 'mid')"
ENDED = f"run = (SELECT external_id FROM effect WHERE key = 'ended' AND run = {MIDDLE})"
LEAF = "run = (SELECT external_id FROM effect WHERE key = 'leaf')"


class News(BaseModel):
    text: str = ""


@workflow
async def fsck_leaf(ctx: Context) -> str:
    return (await ctx.receive("news", News)).text


@activity(key="book/{what}", once_per="root", no_undo="it stays booked")
async def fsck_book(what: str) -> None: ...


@workflow
async def fsck_ended(ctx: Context) -> str:
    await ctx.do(fsck_book, "room")
    return "at once"


@workflow
async def fsck_middle(ctx: Context) -> str:
    await ctx.run(fsck_ended, {}, key="ended", no_undo="it stays booked")
    return await ctx.run(fsck_leaf, {}, key="leaf", no_undo="it only reads")


@workflow
async def fsck_root(ctx: Context) -> str:
    return await ctx.run(fsck_middle, {}, key="mid", no_undo="it only reads")


@activity(key="release/{what}", no_undo="it takes back")
async def fsck_release(what: str) -> None: ...


@workflow
async def fsck_undoes(ctx: Context) -> str:
    await ctx.run(fsck_ended, {}, key="ended", undo=fsck_release.plan("room"))
    raise Fail("enough")


@workflow
async def fsck_leaver(ctx: Context) -> str:
    await ctx.start(fsck_leaf, {}, key="left", no_undo="it only reads", parent_close="abandon")
    return "gone"


async def play(url: str) -> None:
    """Play a tree of depth 2 whose leaf waits, and a run that has ended and left its child alone."""
    store = await open_store(url)
    try:
        flows = [fsck_root, fsck_middle, fsck_leaf, fsck_ended, fsck_leaver, fsck_undoes]
        async with InProcessRuntime(store, flows) as runtime:
            ops = runtime.operations
            await ops.start_run("fsck_root", {}, run_id="root")
            await ops.start_run("fsck_leaver", {}, run_id="leaver")
            await ops.start_run("fsck_undoes", {}, run_id="undoes")
            await runtime.finished("leaver")
            await runtime.finished("undoes")

            async def waits() -> bool | None:
                found = (await ops.runs(workflow="fsck_leaf", waiting_for="signal")).runs
                return True if len(found) == 2 else None

            assert await until(store, waits, within_s=60)
    finally:
        await store.close()


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file of a closed store with two trees."""
    path = tmp_path_factory.mktemp("families") / "runs.db"
    asyncio.run(play(f"sqlite:{path}"))
    return path


def test_trees_and_an_abandoned_child_have_no_finding(played: Path, tmp_path: Path) -> None:
    looked = asyncio.run(_look(Path(shutil.copy(played, tmp_path / "clean.db"))))
    assert looked.findings == () and looked.runs == 8


DESCENT = "UPDATE run SET descent = json_set(descent"
CANARIES = {
    "a row names no run": ("UPDATE effect SET external_id = 'x' WHERE key = 'leaf'", {"child_living", "child_placed"}),
    "another root": (f"UPDATE run SET root = 'leaver' WHERE {LEAF}", {"child_placed"}),
    "a root that is gone": (f"UPDATE run SET root = 'x' WHERE {LEAF}", {"child_placed", "root_known"}),
    "an ended run that is gone": (
        f"DELETE FROM run WHERE {ENDED}; DELETE FROM event WHERE {ENDED}; DELETE FROM usage WHERE {ENDED}; "
        f"DELETE FROM effect WHERE by_run = (SELECT external_id FROM effect WHERE key = 'ended' AND run = {MIDDLE})",
        {"child_living"},
    ),
    "another depth": (f"UPDATE run SET depth = 5 WHERE {LEAF}", {"child_placed"}),
    "another place": (
        f"{DESCENT}, '$.called_as', '1:x') WHERE {LEAF}",
        {"child_living", "child_placed"},
    ),
    "another parent": (
        f"{DESCENT}, '$.parent', 'leaver') WHERE {LEAF}",
        {"child_living", "child_placed"},
    ),
    "an outcome of a living run": (
        "UPDATE effect SET status = 'done', response = x'31', settled_at = first_at, settled_by = 'call' "
        "WHERE key = 'leaf'",
        {"child_placed"},
    ),
    "no outcome of an ended run": (
        "UPDATE effect SET status = 'intended', response = NULL, settled_at = 0, settled_by = '' "
        "WHERE key = 'ended' AND run <> 'undoes'",
        {"child_living"},
    ),
    "a child of an ended parent": (
        "UPDATE effect SET child = replace(child, 'abandon', 'cancel') WHERE key = 'left'",
        {"child_placed", "effect_open_at_end"},
    ),
    "a call of another tree": (
        "UPDATE usage SET key = replace(key, 'tree?root/', 'tree?undone/') WHERE key LIKE 'tree?root/%'; "
        "UPDATE effect SET key = replace(key, 'tree?root/', 'tree?undone/') WHERE key LIKE 'tree?root/%'",
        {"used_in_tree"},
    ),
}


@pytest.mark.parametrize("fault", list(CANARIES))
def test_exactly_the_checks_of_a_spoilt_row_fire(fault: str, played: Path, tmp_path: Path) -> None:
    statement, expected = CANARIES[fault]
    copy = Path(shutil.copy(played, tmp_path / "spoilt.db"))
    spoil(copy, statement)
    findings = asyncio.run(_look(copy)).findings
    assert {finding.check for finding in findings} == expected, findings
