"""No stored value of a run makes a list, a page or a command of other runs fail (issue 29, item 7).

The rows of one kind of run are spoilt, column by column, with values that another version or another program could
have stored. Every list must answer and name the healthy runs as before. `TEST_SEED=all` plays every case, with
`-o faulthandler_timeout=0`, because one test plays them for half an hour.
"""

import asyncio
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from outlast.core.durations import Liveness
from outlast.runtime.in_process import InProcessRuntime
from outlast.runtime.stores import open_store, until
from outlast.store.port import maintenance
from tests.runtime.hostile_rows import BAD, DUE_AGAIN, GOOD, SHAPES, Case, cases, execute, goods, later, played, spoilt
from tests.runtime.row_readers import FAULTS, LISTS, OF_RUN, Answers, Site, command, commands
from tests.slices import drawn

BOARD = "/ui/"
"""It shows the first items only, so a spoilt one may take the place of a healthy one."""
READ, TAKEN, MENDED = 3, 3, 3
"""Cases of the default run: of lists and pages, of workers, and of those that were found. Each reads 150 pages."""
LOOKS_MAX, WINDOWS = 10, 8
"""Looks of a worker in two seconds that are no poll, and how often they are counted until the worker has settled."""


class World:
    """The store, its readers, and their answers before anything was spoilt."""

    def __init__(self, url: str, lists: tuple[str, ...] = LISTS, of_run: tuple[str, ...] = OF_RUN) -> None:
        """Read everything. `lists`, `of_run`: commands that are tried."""
        self.url, self.of_run, self.words = url, of_run, lists
        self.site = Site(url)
        self.lists = self.site.read(self.site.lists())
        self.commands = commands(url, lists)
        self.findings = set(self.site.fsck())


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """File with healthy and faulty runs, for the tests of this module."""
    return played(tmp_path_factory.mktemp("rows") / "rows.db")


@pytest.fixture(scope="module")
def world(path: Path) -> Iterator[World]:
    """Return the answers of the readers of the file."""
    made = World(f"sqlite:{path}")
    yield made
    made.site.close()


def changed(before: Answers, now: Answers) -> list[str]:
    """Return the reads that answer otherwise than before: with another status, or without a healthy run."""
    return [
        f"{read}: {now[read].status} instead of {was.status}, without {set(was.named() - now[read].named())}"
        for read, was in before.items()
        if now[read].status != was.status or (not was.named() <= now[read].named() and read != BOARD)
    ]


def blamed(answers: Answers) -> list[str]:
    """Return the reads of a faulty run that blame Outlast."""
    return [f"{read}: {found.text[:300]}" for read, found in answers.items() if any(f in found.text for f in FAULTS)]


def test_the_healthy_store_answers_every_read(world: World, path: Path) -> None:
    """Otherwise the cases below compare nothing."""
    healthy = {f"{GOOD}-{shape}" for shape in SHAPES}
    assert world.lists["/v1/runs"].named() == world.lists["/ui/runs"].named() == healthy
    assert world.commands["runs ls"].named() == world.commands["runs ls json"].named() == healthy
    assert {read for read, found in world.lists.items() if found.status >= 500} == set()
    assert len(world.lists) > 40 and len(cases(path)) > 1_400
    for shape in SHAPES:
        of_run = world.site.read(world.site.of_run(f"{GOOD}-{shape}"))
        assert len(of_run) > 15 and not blamed(of_run)


def faults(case: Case, found: Callable[[], Iterable[str]]) -> list[str]:
    """Return what a case finds, each with the case. An exception is a fault of its case, and the next one is played."""
    try:
        wrong = [f"{case}: {each}" for each in found()]
    except Exception:  # because the reads of a spoilt store may raise anything
        wrong = [f"{case}: {traceback.format_exc(limit=-8)}"]
    sys.stderr.writelines(f"{each}\n" for each in wrong)  # `-s` shows the faults of a long campaign at once
    return wrong


def read_otherwise(world: World, *runs: str) -> Iterator[str]:
    """Yield what the reads of a spoilt store answer otherwise than before; `runs` are some of the faulty runs."""
    yield from changed(world.lists, world.site.read([*world.lists]))
    yield from changed(world.commands, commands(world.url, world.words))
    for run in runs:
        yield from blamed(world.site.read(world.site.of_run(run)))
        yield from blamed({each: command(world.url, f"{each} {run}") for each in world.of_run})
    healthy = [each for each in set(world.site.fsck()) - world.findings if f"{GOOD}-" in each]
    yield from (f"fsck names {each}" for each in healthy)


def test_no_spoilt_row_changes_a_list_or_blames_outlast(world: World, path: Path) -> None:
    wrong: list[str] = []
    for n, case in enumerate(drawn(cases(path), READ, "rows that are read")):
        with spoilt(path, case):
            wrong += faults(case, partial(read_otherwise, world, f"{BAD}-{SHAPES[n % len(SHAPES)]}"))
    assert not wrong, "\n".join(wrong)


FOUND = [
    Case("event", "at", "year 10000"),
    Case("event", "details", "nulls"),
    Case("run", "attention", "huge numbers"),
    Case("result", "ordinal", "least"),
    Case("run", "seq", "greatest"),
    Case("run", "inbox_seq", "year 3000"),
    Case("approval", "id", "long"),
]


def test_a_case_that_a_campaign_found_stays_mended(world: World, path: Path) -> None:
    wrong: list[str] = []
    for case in drawn(FOUND, MENDED, "rows that a campaign found"):
        with spoilt(path, case):
            wrong += faults(case, partial(read_otherwise, world, f"{BAD}-lose", f"{BAD}-end"))
    assert not wrong, "\n".join(wrong)


def test_the_board_shows_an_uncertain_payment_behind_unreadable_runs(world: World, path: Path) -> None:
    """The first page of all flagged runs was filtered by reason, so newer runs of other reasons hid the only item."""
    with spoilt(path, Case("run", "attention", "deep")):
        (board,) = world.site.read([BOARD]).values()
    assert f"{GOOD}-lose" in board.named()


def test_a_page_of_a_faulty_run_says_what_is_wrong(world: World, path: Path) -> None:
    """It was answered 500, "a fault of Outlast"."""
    with spoilt(path, Case("run", "status", "unknown")):
        page = world.site.read([f"/v1/runs/{BAD}-ask"])[f"/v1/runs/{BAD}-ask"]
        shown = world.site.read([f"/ui/runs/{BAD}-ask"])[f"/ui/runs/{BAD}-ask"]
        printed = command(world.url, f"runs show {BAD}-ask")
    for answer in (page, shown, printed):
        assert "no_such_member" in answer.text and "outlast fsck" in answer.text, answer
    assert page.status == shown.status == 409 and printed.status == 7


# --- workers -----------------------------------------------------------------------------------
SHORT = Liveness(heartbeat_window=900, heartbeat_every=300, attempt_timeout=2_000, start_budget=1_000,
                 settle_margin=100, drain_grace=5_000)  # fmt: skip
OF_WORKERS = ("run", "event", "effect", "memo", "evidence", "wait", "approval", "message", "usage", "unpublished")
WELL = {f"{GOOD}-{shape}": "completed" for shape in ("ask", "hear", "later")}


async def _serve(url: str) -> dict[str, str]:
    """Let a worker with two slots serve the store until the healthy runs have ended; return their statuses."""
    store = await open_store(url)
    try:
        async with InProcessRuntime(store, [goods, later], live=SHORT, concurrency=2) as runtime:
            ops = runtime.operations
            await ops.signal(f"{GOOD}-hear", "word", {"text": "go"}, signal_id="s2")
            (asked,) = [each for each in (await ops.approvals()).approvals if each.run == f"{GOOD}-ask"]
            await ops.approve(asked.approval)

            async def ended() -> dict[str, str] | None:
                rows = [await ops.rows.run(f"{GOOD}-{shape}") for shape in ("ask", "hear", "later")]
                return {row.run: row.status.value for row in rows} if all(row.ended_at for row in rows) else None

            found = await until(store, ended, within_s=30)
            await maintenance(store).purge(0, 10)
            return found or {}
    finally:
        await store.close()


def served_otherwise(url: str, caplog: pytest.LogCaptureFixture) -> Iterator[str]:
    """Yield the ends of the healthy runs if they are others, and the log of an executor that failed."""
    caplog.clear()
    if (found := asyncio.run(_serve(url))) != WELL:
        yield str(found)
    failed = "its executor failed"
    yield from (record.getMessage() for record in caplog.records if failed in record.getMessage())


def test_no_spoilt_due_run_stops_a_worker(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A take raised for the first run that it could not read, so no run was taken again."""
    asked = [case for case in cases(played(tmp_path / "named.db")) if case.table in OF_WORKERS]
    wrong: list[str] = []
    for n, case in enumerate(drawn(asked, TAKEN, "rows that are taken")):
        path = played(tmp_path / f"{n}.db")
        with spoilt(path, case):
            if case.column != "due_at":
                execute(path, DUE_AGAIN)
            wrong += faults(case, partial(served_otherwise, f"sqlite:{path}", caplog))
        path.unlink()
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "case",
    [
        Case("run", "group_max", "minus one"),
        Case("run", "ceiling_at", "minus one"),
        Case("run", "due_at", "text"),
    ],
)
def test_a_due_run_that_a_campaign_found_stops_no_worker(
    tmp_path: Path, case: Case, caplog: pytest.LogCaptureFixture
) -> None:
    path = played(tmp_path / "rows.db")
    with spoilt(path, case):
        if case.column != "due_at":
            execute(path, DUE_AGAIN)
        assert not [*served_otherwise(f"sqlite:{path}", caplog)]


@pytest.mark.parametrize(
    ("case", "named"),
    [
        (Case("run", "waiting_for", "cut"), "cannot be read, and no worker takes it"),
        (Case("run", "status", "unknown"), "cannot be read, and no worker takes it"),
        (Case("run", "version", "greatest"), "cannot be read, and no worker takes it"),
        (Case("wait", "status", "unknown"), "needs a person"),
        (Case("event", "snapshot", "cut"), ""),
    ],
)
def test_an_unreadable_due_run_is_named_and_costs_no_looks(
    tmp_path: Path, case: Case, named: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged with its reason, or given to a person, and the worker does not poll because of it."""
    path = played(tmp_path / "rows.db")

    async def looks() -> int:
        store = await open_store(f"sqlite:{path}")
        taken = 0
        take = store.take

        async def counted(*args: Any, **more: Any) -> Any:
            nonlocal taken
            taken += 1
            return await take(*args, **more)

        try:
            vars(store)["take"] = counted
            async with InProcessRuntime(store, [goods], concurrency=2):
                async with asyncio.timeout(60):
                    while not taken:  # noqa: ASYNC110 - the store counts its looks
                        await asyncio.sleep(0.02)
                found = LOOKS_MAX
                for _ in range(WINDOWS):  # the looks of a second are allowed, until the worker knows the row
                    before = taken
                    await asyncio.sleep(2)
                    if (found := taken - before) < LOOKS_MAX:
                        break
                return found
        finally:
            await store.close()

    with spoilt(path, case):
        execute(path, DUE_AGAIN)
        assert asyncio.run(looks()) < LOOKS_MAX
        listed = command(f"sqlite:{path}", "runs ls", as_json=True).json()["runs"]
        (shown,) = [each for each in listed if each["run"] == f"{BAD}-hear"]
    lines = [record.getMessage() for record in caplog.records]
    if named:
        assert any(named in line and f"{BAD}-hear" in line for line in lines), lines
        assert len([line for line in lines if f"{BAD}-hear" in line]) <= 2, "it is logged once"
    asked = [each["reason"] for each in shown["attention"]]
    assert asked == ([] if case.column == "version" else ["contradiction"]), "a list says it, too"
