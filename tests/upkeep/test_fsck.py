"""Each invariant has a canary: one row of a real store is spoilt, and exactly its check says so, with its key."""

import asyncio
import inspect
import re
import shutil
import sqlite3
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest
from pydantic import BaseModel

from outlast import Cancel, Context, Workflow, activity, role
from outlast.core.codec import digest
from outlast.core.machine import EffectStatus, RunStatus
from outlast.core.rows.effect_rows import Effect, Usage
from outlast.core.rows.row_kind import Kind
from outlast.core.rows.run_rows import EVENT, Event
from outlast.core.usage import CallUsage, day_of
from outlast.operations.run_operations import ListRuns
from outlast.runtime import InProcessRuntime, open_store
from outlast.runtime.stores import until
from outlast.store.port import OnFile, RunRows, maintenance
from outlast.upkeep import fsck, fsck_checks
from outlast.upkeep.fsck import OF_A_RUN, OF_HISTORY, READ_ALONE, Fsck, FsckReport, violations
from outlast.upkeep.fsck_checks import settings_safe
from tests.runtime import hostile_rows


class Order(BaseModel):
    what: str
    said: list[str] = []


class Word(BaseModel):
    text: str = ""


orders = Workflow("orders", state=Order)


@activity(key="order/{what}", no_undo="a test")
async def buy(what: str) -> str:
    return f"bought {what}"


@activity(key="tell/{what}", no_undo="a test")
async def tell(what: str) -> str:
    return f"told {what}"


@activity(key="pay/{what}", once_per="tenant", no_undo="a test")
async def pay(what: str) -> str:
    return f"paid {what}"


@orders.node(start=True)
async def review(ctx: Context[Order]) -> Literal["after"]:
    await ctx.do(tell, ctx.state.what)
    decision = await ctx.approval(
        buy.plan(ctx.state.what), summary="buy it", by=role("finance"), within=timedelta(hours=1)
    )
    if not decision.approved:
        raise Cancel(decision.reason)
    ctx.state.said.append(await ctx.do(buy, ctx.state.what))
    return "after"


@orders.node
async def after(ctx: Context[Order]) -> None:
    word = await ctx.receive("word", Word)
    ctx.state.said.append(word.text)
    await ctx.do(pay, ctx.state.what)


async def _play(url: str) -> None:
    """Play four runs: r-done ends, r-no is rejected, r-asks waits for a person, r-word for a signal; two slots are
    used.
    """
    store = await open_store(url)
    try:
        async with InProcessRuntime(store, [orders]) as runtime:
            ops = runtime.operations
            await ops.set_slots(10)
            for run in ("r-done", "r-no", "r-asks", "r-word"):
                await ops.start_run("orders", {"what": run}, run_id=run)

            async def waits(run: str, kind: str) -> bool | None:
                return True if f'"kind":"{kind}"' in (await ops.rows.run(run)).waiting_for_text else None

            for run in ("r-done", "r-no", "r-asks", "r-word"):
                assert await until(store, lambda run=run: waits(run, "approval"), within_s=60)  # type: ignore[misc]
            asked = {a.run: a.id for a in (await ops.rows.approvals())[0]}
            await ops.reject(asked["r-no"], reason="no")
            await ops.approve(asked["r-done"])
            await ops.approve(asked["r-word"])
            for run in ("r-done", "r-word"):
                assert await until(store, lambda run=run: waits(run, "signal"), within_s=60)  # type: ignore[misc]
            await ops.signal("r-done", "word", {"text": "go"}, signal_id="s1")
            await runtime.finished("r-done")
            await runtime.finished("r-no")
    finally:
        await store.close()


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file of a closed store in which runs ended, wait and hold slots."""
    path = tmp_path_factory.mktemp("fsck") / "orders.db"
    asyncio.run(_play(f"sqlite:{path}"))
    return path


async def _look(path: Path) -> FsckReport:
    store = await open_store(f"sqlite:{path}", use="read")
    try:
        return await Fsck(store, chain=True).look()
    finally:
        await store.close()


@pytest.mark.req("TEST-4")
def test_a_clean_store_has_no_finding(played: Path, tmp_path: Path) -> None:
    looked = asyncio.run(_look(Path(shutil.copy(played, tmp_path / "clean.db"))))
    assert looked.findings == ()
    assert looked.runs == 4 and looked.events > 20 and looked.effects >= 6


@pytest.mark.req("CKP-7")
def test_a_purged_ledger_is_no_finding_and_a_lost_one_is(played: Path, tmp_path: Path) -> None:
    path = Path(shutil.copy(played, tmp_path / "purged.db"))

    async def purge() -> int:
        store = await open_store(f"sqlite:{path}", use="recover")
        try:
            assert isinstance(store, OnFile)
            await store.adopt_file()
            return await maintenance(store).purge_ledgers((await store.now()).business + 1, 10)
        finally:
            await store.close()

    def spoil(statement: str) -> None:
        db = sqlite3.connect(path)
        with db:
            assert db.execute(statement).rowcount == 1
        db.close()

    assert asyncio.run(purge()) == 2
    spoil("UPDATE effect SET status = 'undone' WHERE run = '' AND key = 'pay/r-done'")  # its undo was the run's own
    looked = asyncio.run(_look(path))
    assert looked.findings == () and looked.runs == 4 and looked.effects == 3, "those of the other two runs"
    spoil("DELETE FROM meta WHERE key = 'ledgers'")
    assert {f.check for f in asyncio.run(_look(path)).findings} == {"approval_consumed", "effect_undone"}


class Canary(NamedTuple):
    """Statements that spoil one row in one transaction, and the key of the expected finding."""

    spoil: str
    key: tuple[Any, ...] | None = None  # None: the key is made while the store is played
    kind: str = "run"


RUN_DONE, RUN_ASKS, RUN_WORD = ("default", "r-done"), ("default", "r-asks"), ("default", "r-word")
DONE = "tenant = 'default' AND run = 'r-done'"
ASKS = "tenant = 'default' AND run = 'r-asks'"
WORD = "tenant = 'default' AND run = 'r-word'"
FLAGGED = '[{"reason":"exception","since":7,"cause":"0"}]'
CANARIES: dict[str, Canary] = {
    "run_row": Canary(f"UPDATE run SET owner = '' WHERE {DONE}", RUN_DONE),
    "row_columns": Canary(f"UPDATE run SET attention = '[{{' WHERE {ASKS}", RUN_ASKS),
    "run_causes": Canary(f"UPDATE run SET causes = ' exception/0 ' WHERE {ASKS}", RUN_ASKS),
    "run_visits": Canary(f"UPDATE run SET visits = '{{\"review\":3}}' WHERE {ASKS}", RUN_ASKS),
    "run_clocks": Canary(f"UPDATE run SET due_at = NULL WHERE {ASKS}", RUN_ASKS),
    "run_mail": Canary(f"DELETE FROM message WHERE {DONE} AND n = 1", (*RUN_DONE, 1), "message"),
    "wait_bound": Canary(f"UPDATE wait SET binding = '[9]' WHERE {DONE} AND name = 'word'", None, "wait"),
    "wait_visit": Canary(f"UPDATE wait SET visit = 9 WHERE {WORD} AND name = 'word'", None, "wait"),
    "evidence_of_effect": Canary(
        "INSERT INTO evidence VALUES ('default', 'r-done', 1, 'order/nothing', 1, '{\"status\":\"done\"}', 1)",
        (*RUN_DONE, 1, "order/nothing", 1),
        "evidence",
    ),
    "effect_row": Canary(
        f"UPDATE effect SET settled_by = '' WHERE {DONE} AND key = 'order/r-done'",
        (*RUN_DONE, 1, "order/r-done"),
        "effect",
    ),
    "effect_digest": Canary(
        f"UPDATE effect SET args = CAST('{{\"what\":\"x\"}}' AS BLOB) WHERE {DONE} AND key = 'tell/r-done'",
        (*RUN_DONE, 1, "tell/r-done"),
        "effect",
    ),
    "effect_order": Canary(
        f"UPDATE effect SET ordinal = 2 WHERE {DONE} AND key = 'tell/r-done'", (*RUN_DONE, 1, "tell/r-done"), "effect"
    ),
    "effect_claim": Canary(
        f"UPDATE effect SET epoch = 99 WHERE {DONE} AND key = 'tell/r-done'", (*RUN_DONE, 1, "tell/r-done"), "effect"
    ),
    "effect_open_at_end": Canary(
        f"UPDATE effect SET status = 'intended', settled_at = 0 WHERE {DONE} AND key = 'tell/r-done'",
        (*RUN_DONE, 1, "tell/r-done"),
        "effect",
    ),
    "effect_undone": Canary(
        f"UPDATE effect SET status = 'undone' WHERE {DONE} AND key = 'tell/r-done'",
        (*RUN_DONE, 1, "tell/r-done"),
        "effect",
    ),
    "run_restored": Canary(f"UPDATE run SET restored = 7 WHERE {ASKS}", RUN_ASKS),
    "approval_decided": Canary(f"UPDATE approval SET decided_by = '' WHERE {DONE}", None, "approval"),
    "approval_plans": Canary(
        f"UPDATE approval SET plans = replace(plans, 'order/r-asks', 'order/other') WHERE {ASKS}", None, "approval"
    ),
    "approval_consumed": Canary(
        f"UPDATE effect SET approval = '' WHERE {DONE}; UPDATE approval SET consumed_by = '1:tell/r-done' WHERE {DONE}",
        None,
        "approval",
    ),
    "approval_in_time": Canary(
        f"UPDATE effect SET covered_until = covered_until + 1 WHERE {DONE} AND key = 'order/r-done'",
        (*RUN_DONE, 1, "order/r-done"),
        "effect",
    ),
    "approval_at_end": Canary(
        "UPDATE approval SET status = 'pending', decided_by = '', decided_at = 0 WHERE run = 'r-no'", None, "approval"
    ),
    "history_numbers": Canary(f"DELETE FROM event WHERE {ASKS} AND seq = 2", (*RUN_ASKS, 2), "event"),
    "history_head": Canary(f"UPDATE run SET event_hash = 'x' WHERE {ASKS}", RUN_ASKS),
    "history_chain": Canary(
        f"UPDATE event SET at = at + 1 WHERE {ASKS} AND seq = 2",
        (*RUN_ASKS, 2),
        "event",
    ),
    "history_columns": Canary(f"UPDATE run SET workflow = 'x' WHERE {ASKS}", None, "event"),
    "history_versions": Canary(f"UPDATE run SET version = version + 1 WHERE {ASKS}", RUN_ASKS),
    "history_moves": Canary(f"UPDATE run SET status = 'queued' WHERE {ASKS}", RUN_ASKS),
    "effect_settled": Canary(
        f"UPDATE effect SET settled_at = settled_at + 3600000 WHERE {DONE} AND key = 'tell/r-done'",
        (*RUN_DONE, 1, "tell/r-done"),
        "effect",
    ),
    "floor_kept": Canary(
        "INSERT INTO floor VALUES ('default', 'r-asks', 1, 99, '', 9, 1, '', 1, 0)", RUN_ASKS, "floor"
    ),
    "checkpoint_kept": Canary(
        f"UPDATE event SET snapshot = NULL WHERE {WORD} AND kind LIKE '%checkpoint'", None, "event"
    ),
    "slot_held": Canary(
        "UPDATE slot SET holder = 'r-gone', holder_tenant = 'default', version = version + 1 "
        "WHERE i = (SELECT max(i) FROM slot WHERE holder = '')",
        None,
        "slot",
    ),
    "attributes_kept": Canary(f'UPDATE run SET attributes = \'{{"customer":["acme",1]}}\' WHERE {ASKS}', RUN_ASKS),
    "flaggings_kept": Canary(
        f"UPDATE run SET attention = '{FLAGGED}', causes = ' exception/0 ', flagged_at = 7 WHERE {ASKS}", RUN_ASKS
    ),
    "slot_named": Canary(f"UPDATE run SET slots = slots || ' default/9' WHERE {ASKS}", RUN_ASKS),
    "worker_lease": Canary("UPDATE worker SET lease_until = 1", None, "worker"),
    "token_target": Canary(
        f"DELETE FROM run WHERE {WORD}; UPDATE slot SET holder = '', holder_tenant = '' WHERE holder = 'r-word'",
        None,
        "token",
    ),
    "generation_kept": Canary("UPDATE meta SET value = '{' WHERE key = 'generation'", ("*", "generation"), "meta"),
}
"""By the name of the check. A fault that the schema forbids, or no row here can show, has a separate test."""
ELSEWHERE = {
    "event_delivered",
    "cursor_due",
    "state_whole",
    "undo_order",
    "usage_of",
    "usage_known",
    "usage_counted",
    "copies_match",
    "child_living",
    "child_placed",
    "used_in_tree",
    "root_known",
    "map_known",
    "map_inputs",
    "map_decided",
    "map_calls",
    "outcomes_counted",
    "all_counted",
    "fork_started",
    "fork_noted",
    "results_counted",
    "owner_known",
    "row",
    "history_end",
    "settings_safe",
}


def test_every_check_has_a_canary() -> None:
    one_by_one = re.findall(r'_named\(\s*"(\w+)"', inspect.getsource(fsck))
    named = {*one_by_one, *(check.__name__ for check in (*OF_A_RUN, *OF_HISTORY)), settings_safe.__name__}
    assert len(one_by_one) >= 10
    assert named <= {*CANARIES, *ELSEWHERE}, named - {*CANARIES, *ELSEWHERE}
    assert not set(CANARIES) & set(ELSEWHERE)


def spoil(path: Path, statements: str) -> None:
    """Change rows with SQL in a copy that no store has open."""
    db = sqlite3.connect(path)
    for statement in statements.split("; "):
        assert db.execute(statement).rowcount > 0, statement
    db.commit()
    db.close()


@pytest.fixture
def found(played: Path, tmp_path: Path) -> Callable[[str], list[tuple[str, str, tuple[Any, ...]]]]:
    """Return the findings in a copy after some statements."""

    def look(statements: str) -> list[tuple[str, str, tuple[Any, ...]]]:
        copy = Path(shutil.copy(played, tmp_path / "spoilt.db"))
        spoil(copy, statements)
        return [(f.check, f.kind, f.key) for f in asyncio.run(_look(copy)).findings]

    return look


@pytest.mark.req("TEST-4")
@pytest.mark.parametrize("check", list(CANARIES))
def test_exactly_the_check_of_a_spoilt_row_fires(check: str, found: Any) -> None:
    canary = CANARIES[check]
    told = found(canary.spoil)
    assert {name for name, _, _ in told} == {check}, told
    assert {kind for _, kind, _ in told} == {canary.kind}, told
    if canary.key is not None:
        assert canary.key in {key for _, _, key in told}, told


async def _rows(path: Path, run: str) -> tuple[RunRows, tuple[Event, ...]]:
    store = await open_store(f"sqlite:{path}", use="read")
    try:
        (rows,) = await store.run_rows([("default", run)])
        events = await store.rows(EVENT, ("default", run))
        assert rows is not None
        return rows, tuple(e for e in events if isinstance(e, Event))
    finally:
        await store.close()


def checks(rows: RunRows, history: tuple[Event, ...] | None = None) -> list[tuple[str, str]]:
    return [(f.check, str(f.key[-1])) for f in violations(rows, history)]


STRUCTURED = [
    *(("run", name) for name in ("attention", "waiting_for", "timers", "visits", "slots", "ending")),
    *(("approval", name) for name in ("plans", "votes", "claims", "editable")),
    ("effect", "error"),
    ("wait", "binding"),
]


@pytest.mark.req("TEST-4")
@pytest.mark.parametrize(("table", "column"), STRUCTURED)
def test_each_unreadable_column_is_reported(table: str, column: str, found: Any) -> None:
    told = found(f"UPDATE {table} SET {column} = '[{{'")
    assert {kind for check, kind, _ in told if check == "row_columns"} == {table}


def _subscription(id_: str) -> str:
    """Return the columns of a subscription whose status is unknown."""
    return (
        f"('default', '{id_}', 1, 'no_such_member', 'https://x.example', '', '', '', '', '', 0, 0,"
        " '', '', 0, '', 0, '', '', 0)"
    )


@pytest.mark.req("TEST-4")
@pytest.mark.parametrize(
    ("kind", "statement"),
    [
        ("worker", "UPDATE worker SET lease_until = 'x'"),
        ("slot", "UPDATE slot SET holder = x'ff'"),
        ("subscription", f"INSERT INTO subscription VALUES {_subscription('wh_1')}, {_subscription('wh_2')}"),
    ],
)
def test_an_unreadable_row_of_no_run_is_reported_and_ends_nothing(kind: str, statement: str, found: Any) -> None:
    """It ended the check with the advice to run the check."""
    told = found(statement)
    assert told and {(check, of) for check, of, _ in told} == {("row", kind)}, told
    assert len({key for _, _, key in told}) == {"worker": 1, "slot": 10, "subscription": 2}[kind], "each of them"


def test_a_worker_whose_row_cannot_be_read_is_still_a_known_owner(played: Path, tmp_path: Path) -> None:
    path = Path(shutil.copy(played, tmp_path / "worker.db"))
    spoil(path, "UPDATE worker SET lease_until = 'x'")

    async def known() -> frozenset[str]:
        store = await open_store(f"sqlite:{path}", use="read")
        try:
            fsck = Fsck(store)
            await fsck._wide()
            return fsck._workers
        finally:
            await store.close()

    assert len(asyncio.run(known())) == 1


@pytest.mark.req("TEST-4", "EFF-7")
def test_undo_goes_back(played: Path) -> None:
    """Undone in the order of the effects, so the second undo is reported."""
    rows, _ = asyncio.run(_rows(played, "r-done"))
    one, two = sorted(rows.effects, key=lambda e: e.ordinal)[:2]
    undone = [e._replace(status=EffectStatus.UNDONE) for e in (one, two)]

    def undo(of: Effect, ordinal: int) -> Effect:
        key = f"undo/{of.key}"
        return of._replace(
            key=key,
            ordinal=ordinal,
            undoes=f"{of.visit}:{of.key}",
            digest=digest("undo", of.key, of.digest),
            approval="",
        )

    right = rows._replace(effects=(*undone, undo(two, 8), undo(one, 9)))
    wrong = rows._replace(effects=(*undone, undo(one, 8), undo(two, 9)))
    assert checks(right) == []
    assert checks(wrong) == [("undo_order", f"undo/{two.key}")]


@pytest.mark.req("TEST-4")
def test_effects_are_not_compared_across_a_clock_that_was_set_back(played: Path) -> None:
    """An event is earlier than its predecessor, so effects are not compared with it."""
    rows, history = asyncio.run(_rows(played, "r-done"))
    late = rows._replace(effects=tuple(e._replace(settled_at=history[-1].at + 1) for e in rows.effects))
    assert {name for name, _ in checks(late, history)} == {"effect_settled"}
    back = (*history[:-1], history[-1]._replace(at=history[0].at - 1))
    assert "effect_settled" not in {name for name, _ in checks(late, back)}


@pytest.mark.req("TEST-4")
def test_an_end_is_the_last(played: Path) -> None:
    """The row of a run continues after its history recorded the end."""
    rows, history = asyncio.run(_rows(played, "r-done"))
    assert checks(rows, history) == []
    run = rows.run._replace(seq=rows.run.seq + 1)
    told = [name for name, _ in checks(rows._replace(run=run), history)]
    assert told == ["history_numbers", "history_end"]


@pytest.mark.req("TEST-4")
def test_usage_rows_match_shared_effects(played: Path) -> None:
    rows, _ = asyncio.run(_rows(played, "r-done"))
    usage = Usage("default", "r-done", "pay/x", 1)
    shared = rows.effects[0]._replace(run="", by_run="r-done")
    assert not list(fsck_checks.usage_of(usage, known=True))
    assert [key for _, key, _ in fsck_checks.usage_of(usage, known=False)] == [("default", "r-done", "pay/x")]
    assert not list(fsck_checks.usage_known(shared, rows.run, usage))
    assert [key for _, key, _ in fsck_checks.usage_known(shared, rows.run, None)] == [shared[:4]]


@pytest.mark.req("TEST-4", "RUN-10")
@pytest.mark.parametrize(
    ("changes", "finding"),
    [
        ({}, ""),
        ({"epoch": 100}, "of visit 1"),
        ({"visit": 100}, "of visit 100"),
        ({"day": 1}, "its day is 1"),
        ({"tokens": -1}, "its day is"),
    ],
)
def test_usage_of_calls_fits_its_run(played: Path, changes: dict[str, Any], finding: str) -> None:
    rows, history = asyncio.run(_rows(played, "r-done"))
    at = history[-1].at
    usage = CallUsage(
        tenant="default", run="r-done", epoch=1, n=1, visit=1, key="ask", attempt=1, activity="ask", day=day_of(at),
        model="m", tokens=3, input_tokens=1, output_tokens=2, money=5, calls=1, at=at,
    )._replace(**changes)  # fmt: skip
    said = [text for _, _, text in fsck_checks.usage_counted(rows.run, [usage])]
    assert [text.startswith(finding) for text in said] == ([True] if finding else [])


@pytest.mark.req("TEST-4", "REC-1")
def test_an_owner_without_a_row(played: Path) -> None:
    rows, _ = asyncio.run(_rows(played, "r-asks"))
    owned = rows.run._replace(owner="w-1", status=RunStatus.RUNNING)
    assert not list(fsck_checks.owner_known(owned, frozenset({"w-1"})))
    assert [key for _, key, _ in fsck_checks.owner_known(owned, frozenset())] == [("default", "r-asks")]


@pytest.mark.req("TEST-4")
def test_settings_that_lose_what_was_acknowledged() -> None:
    assert list(settings_safe({"journal_mode": "wal", "synchronous": "full", "schema": 3}, 3)) == []
    assert list(settings_safe({"journal_mode": "wal", "synchronous": "normal"}, 3)) == [
        "synchronous is normal; it has to be extra or full"
    ]
    assert list(settings_safe({"schema": 2}, 3)) == ["schema 2; this version writes 3"]


@pytest.mark.req("TEST-4")
def test_a_changing_store_has_no_finding(tmp_path: Path) -> None:
    """Repeated checks report no intermediate state while runs start, wait and end."""

    async def live() -> None:
        store = await open_store(f"sqlite:{tmp_path / 'live.db'}")
        reader = await open_store(f"sqlite:{tmp_path / 'live.db'}")
        async with InProcessRuntime(store, [orders]) as runtime:
            await runtime.operations.set_slots(3)

            async def drive() -> None:
                for n in range(30):
                    await runtime.operations.start_run("orders", {"what": str(n)}, run_id=f"r{n}")
                rows = runtime.operations.rows
                while len((await rows.runs(ListRuns(status="cancelled")))[0]) < 30:
                    for approval in (await rows.approvals(status="pending"))[0]:
                        await runtime.operations.reject(approval.id, reason="no")
                    await asyncio.sleep(0.01)

            driven = asyncio.create_task(drive())
            looks = 0
            while not driven.done():
                assert (await Fsck(reader, chain=True).look()).findings == ()
                looks += 1
            await driven
            assert looks >= 2
        await reader.close()
        await store.close()

    asyncio.run(asyncio.wait_for(live(), 60))


@pytest.mark.req("TEST-4")
@pytest.mark.parametrize(
    "case",
    [
        hostile_rows.Case("token", "digest", "blob"),
        hostile_rows.Case("usage", "at", "text"),
    ],
    ids=lambda case: case.table,
)
def test_an_unreadable_row_of_no_single_run_is_found(case: hostile_rows.Case, tmp_path: Path) -> None:
    """Lists show a row in place of one that they cannot read, and fsck read start keys and usage as a list does."""
    path = hostile_rows.played(tmp_path / "rows.db")
    with hostile_rows.spoilt(path, case) as changed:
        found = [each for each in asyncio.run(_look(path)).findings if each.kind == case.table]
    assert len({each.key for each in found}) == changed > 0


@pytest.mark.parametrize("kind", READ_ALONE, ids=lambda kind: str(kind.name))
def test_an_unreadable_row_that_no_other_check_reads_is_found(kind: Kind[Any], played: Path, tmp_path: Path) -> None:
    """Fsck passed a store in which the service could read no pause, no budget and no stored answer."""
    path = Path(shutil.copy(played, tmp_path / "spoilt.db"))
    db = sqlite3.connect(path)
    values = [b"\xff"] * len(kind.columns)
    places = ", ".join("?" * len(values))
    db.execute(f"INSERT INTO {kind.name} ({', '.join(kind.columns)}) VALUES ({places})", values)
    db.commit()
    db.close()
    assert [(each.check, each.kind) for each in asyncio.run(_look(path)).findings] == [("row", kind.name)]
