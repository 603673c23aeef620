"""Every query finds its rows by an index in both SQL stores, except those that declare a scan."""

import asyncio
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest

from outlast.core.machine import ENDED, RunStatus
from outlast.core.rows.all_kinds import KINDS
from outlast.core.rows.effect_rows import APPROVAL, EFFECT, MEMO, USAGE
from outlast.core.rows.graph_rows import GRAPH_CHECKPOINT
from outlast.core.rows.outbox_rows import DELIVERY
from outlast.core.rows.row_kind import AnyKind
from outlast.core.rows.run_rows import MESSAGE, RESULT, RUN
from outlast.core.rows.store_rows import STORE
from outlast.core.run_filters import Interval
from outlast.store.agent_calls import NewestCalls, NewestMemos, NewestRequests
from outlast.store.bars import (
    BarSpan,
    EndBars,
    FirstFlagged,
    FlaggedBars,
    LastFlaggings,
    OfRuns,
    RunsByEnd,
    StartBars,
    TimesOfCauses,
)
from outlast.store.budgeted_runs import SpentOfRuns, UnfinishedRuns
from outlast.store.due_runs import DueRuns
from outlast.store.measured_rows import MeasuredApprovals, MeasuredRuns, RunCourses
from outlast.store.open_calls import OpenCalls
from outlast.store.open_rows import FlaggedCounts, LaneCounts, OpenRows, Summary
from outlast.store.postgres.connection import Address, connect
from outlast.store.postgres.reads import ONE_TRIP
from outlast.store.postgres.statements import numbered
from outlast.store.postgres.store import open_postgres
from outlast.store.queries import (
    ByOrdinal,
    Census,
    CountBy,
    LastOrdinals,
    Load,
    LoadMany,
    Moving,
    Newest,
    NextDue,
    Owing,
    Owned,
    Query,
    Queued,
    RunsBelow,
    Under,
    cursor_of,
)
from outlast.store.sql import SQL
from outlast.store.sqlite.database import OFF, Database
from outlast.store.unused_threads import UnusedThreads
from outlast.store.usage_sums import RunsUsage, RunUsage, TenantDayUsage, TenantUsage, TreeUsage
from tests.conformance.subject import run_row
from tests.postgres import server

SMALL = ("run_queue_all", "run_owner")  # a scan of the few rows of a partial index, in its order
KEY = ("acme", "run-1", 1, "k", 1)
SORTS = ("by id", "by run", "by status", "by activity", "by key", "counts by status", "summary",
         "flagged of a reason", "flagged of a cause", "flagged bars", "flagged bars of causes", "bars", "starts",
         "usage of days", "newest requests", "newest calls", "newest memos", "unfinished runs of lanes")  # fmt: skip
"""Queries that sort what they found: few rows, the newest ones, or a filter that a person chose."""
TIES = "USE TEMP B-TREE FOR RIGHT PART OF ORDER BY"  # sorts the effects of one millisecond, page by page


def _key(kind: AnyKind) -> tuple[Any, ...]:
    return tuple(1 if hint is int else "x" for hint in list(kind.row.__annotations__.values())[: kind.key])


def queries_of_times() -> dict[str, Query[Any]]:
    """Return queries of flagged runs, and of runs by time."""
    return {
        "flagged": OpenRows(RUN, "acme"),
        "flagged after": OpenRows(RUN, "acme", cursor=cursor_of(RUN, run_row())),
        "flagged of a workflow": OpenRows(RUN, "acme", (("workflow", "w"),)),
        "flagged of a reason": OpenRows(RUN, "acme", reason="exception"),
        "flagged of a cause": OpenRows(RUN, "acme", reason="exception", cause="0", cursor=cursor_of(RUN, run_row())),
        "flagged counts": FlaggedCounts("acme"),
        "flagged counts of a workflow": FlaggedCounts("acme", OfRuns("w", "w@1", "/0 ")),
        "flagged bars": FlaggedBars("acme", BarSpan(0, 9, 48), of=OfRuns("w", "w@1", "/0 ")),
        "flagged bars of causes": FlaggedBars("acme", BarSpan(0, 9, 48), (("a", "b"), ("c",))),
        "times of causes": TimesOfCauses("acme"),
        "last flaggings": LastFlaggings("acme", Interval(1, 9), OfRuns("w", "w@1", "/0 ")),
        "last flaggings after": LastFlaggings("acme", Interval(1, 9), cursor=cursor_of(RUN, run_row())),
        "starts": StartBars("acme", BarSpan(0, 9, 48), OfRuns("w", "w@1")),
        "ended": RunsByEnd("acme", Interval(1, 9), OfRuns("w", "w@1", "/0 ")),
        "ended after": RunsByEnd("acme", Interval(1, 9), cursor=cursor_of(RUN, run_row())),
        "first flagged": FirstFlagged("acme", ("a", "b")),
        "bars": EndBars("acme", BarSpan(0, 9, 48), OfRuns("w", "w@1", "/0 ")),
        "measured runs": MeasuredRuns("acme", 0, 9, OfRuns("w", "w@1")),
        "measured runs of all": MeasuredRuns("acme", 0, 9),
        "decided approvals": MeasuredApprovals("acme", 0, 9, OfRuns("w", "w@1")),
        "pending approvals": MeasuredApprovals("acme", 0, 9, pending=True),
        "courses": RunCourses("acme", ("run-1", "run-2")),
    }


def queries() -> dict[str, Query[Any]]:
    """Return queries of every class, with every form of their statements."""
    found: dict[str, Query[Any]] = {
        **queries_of_times(),
        "all runs": Under(RUN, ()),
        "results in order": ByOrdinal(RESULT, KEY[:2]),
        "runs": Newest(RUN, "acme"),
        "runs after": Newest(RUN, "acme", cursor=cursor_of(RUN, run_row())),
        "runs of a lane": Newest(RUN, "acme", (("lane", "a@1"),)),
        "approvals": Newest(APPROVAL, "acme"),
        "by id": Newest(APPROVAL, "acme", (("id", "ap-1"),)),
        "by run": Newest(APPROVAL, "acme", (("run", "run-1"),)),
        "effects": Newest(EFFECT, "acme"),
        "by activity": Newest(EFFECT, "acme", (("activity", "pay"),)),
        "deliveries": Newest(DELIVERY, "acme", (("subscription", "wh"),)),
        "by key": Newest(USAGE, "acme", (("key", "k"),)),
        "counts": LastOrdinals(RESULT, (KEY[:2], KEY[:2])),
        "counts by status": CountBy(RUN, "acme", "status"),
        "census": Census(RUN, ("workflow", "status"), filled="attention"),
        "pending": OpenRows(APPROVAL, "acme"),
        "uncertain": OpenRows(EFFECT, "acme"),
        "given up": OpenRows(DELIVERY, "acme"),
        "unknown": OpenRows(EFFECT, "acme", unknown=True),
        "acts": OpenRows(MESSAGE, "acme"),
        "acts of a person": OpenRows(MESSAGE, "acme", (("actor", "ana"), ("kind", "cancel"))),
        "decided by": Newest(APPROVAL, "acme", (("decided_by", "ana"),)),
        "summary": Summary("acme", 1, ("a@1", "b@1")),
        "lanes": LaneCounts("acme", ("a@1", "b@1")),
        "owned": Owned("w"),
        "queued": Queued("acme", 9),
        "queued of all": Queued(STORE, 9),
        "moving": Moving("acme", 1, 9),
        "open calls": OpenCalls("acme", (("run-1", 1), ("run-2", 7))),
        "next due": NextDue(("a@1", "b@1")),
        "due": DueRuns("a@1", 0, 9, 9),
        "unused threads": UnusedThreads(9, (1, "acme", "t"), 9),
        "owing": Owing("acme", "wh", 9),
        "runs below a root": RunsBelow("acme", "run-1", 9),
        "usage of a run": RunUsage("acme", "run-1"),
        "usage before a claim": RunUsage("acme", "run-1", 3, 1),
        "usage of runs": RunsUsage("acme", ("run-1", "run-2")),
        "usage of a tree": TreeUsage("acme", "run-1", but="run-2"),
        "usage of a day": TenantDayUsage("acme", 20_000, "model"),
        "usage of days": TenantUsage("acme", 20_000, 20_013),
        "unfinished runs of lanes": UnfinishedRuns("acme", ("a@1", "b@1"), 9),
        "spent of runs": SpentOfRuns("acme", ("run-1", "run-2")),
        "newest requests": NewestRequests("acme", 20_000, 20_013),
        "newest calls": NewestCalls("acme"),
        "newest memos": NewestMemos("acme"),
    }
    for kind in KINDS:
        key = _key(kind)
        found[f"{kind.name} by key"] = Load(kind, key)
        found[f"{kind.name}s by key"] = LoadMany(kind, (key, key))
        found[f"{kind.name}s of a prefix"] = Under(kind, key[: min(2, kind.key - 1)])
        found[f"{kind.name}s after"] = Under(kind, key[:1], key)
    checkpoint = _key(GRAPH_CHECKPOINT)
    found["the last checkpoints"] = Under(GRAPH_CHECKPOINT, checkpoint[:3], limit=9, backwards=True)
    found["checkpoints before"] = Under(GRAPH_CHECKPOINT, checkpoint[:3], checkpoint, 9, backwards=True)
    return found


def test_every_query_is_here() -> None:
    assert {type(query).__name__ for query in queries().values()} == {kind.__name__ for kind in Query.__subclasses__()}


def scans(query: Query[Any]) -> bool:
    """Return True if a query passes over all rows of its kind on purpose."""
    return isinstance(query, Census) or (isinstance(query, Under) and not query.prefix)


def finds_by_index(plan: str) -> bool:
    """Return True if each step of SQLite's plan uses an index, and scans at most a small one."""
    made = {f"SCAN {step.split()[1]}" for step in plan.split("; ") if step.startswith(("CO-ROUTINE", "MATERIALIZE"))}
    made |= {"SCAN bars", "SCAN CONSTANT ROW"}  # numbers
    steps = [step for step in plan.split("; ") if step.startswith(("SCAN", "SEARCH")) and step not in made]
    return all(" USING " in step and (step.startswith("SEARCH") or step.endswith(SMALL)) for step in steps)


def _sqlite_plan(db: Any, query: Query[Any]) -> str:
    found = [db.execute(f"EXPLAIN QUERY PLAN {text}", values) for text, values in query.statements()]
    return "; ".join(str(row[3]) for rows in found for row in rows)


@pytest.mark.parametrize("name", ["flagged of a reason", "flagged of a cause", "flagged counts", "bars"])
def test_runs_of_a_cause_are_found_in_an_index_alone(name: str, tmp_path: Path) -> None:
    database = Database(tmp_path / "s.db", synchronous=OFF)
    database.migrate()
    assert "SEARCH run USING COVERING INDEX run_" in _sqlite_plan(database.connect(), queries()[name])


EARLIER = 20_000
"""Ended runs before the time that a query asks for."""


@pytest.mark.parametrize("name", ["bars", "moving", "measured runs"])
def test_ends_before_the_wanted_time_are_not_read(name: str, tmp_path: Path) -> None:
    database, n = Database(tmp_path / "s.db", synchronous=OFF), 0
    database.migrate()
    db = database.connect()
    old = run_row()._replace(tenant="acme", status=RunStatus.COMPLETED, owner=ENDED, ended_at=1)
    db.executemany(SQL[RUN.name].insert, [old._replace(run=f"run-{i}") for i in range(EARLIER)])

    def note() -> int:
        nonlocal n
        n += 1
        return 0

    db.set_progress_handler(note, 1)
    wanted: dict[str, Query[Any]] = {
        "bars": EndBars("acme", BarSpan(10**6, 9, 48)),
        "moving": Moving("acme", 10**6, 9),
        "measured runs": MeasuredRuns("acme", 10**6, 10**7),
    }
    for text, values in wanted[name].statements():
        db.execute(text, values).fetchall()
    db.close()
    assert n < EARLIER, f"{n} instructions of SQLite"


@pytest.mark.parametrize("name", queries())
def test_sqlite_scans_no_table(name: str, tmp_path: Path) -> None:
    database, query = Database(tmp_path / "s.db", synchronous=OFF), queries()[name]
    database.migrate()
    db = database.connect()
    found = _sqlite_plan(db, query)
    db.close()
    assert scans(query) or finds_by_index(found), found
    assert scans(query) or "TEMP B-TREE" not in found.replace(TIES, "") or name in SORTS, found
    assert name != "by id" or "approval_id" in found, found


@pytest.fixture(scope="module")
def plans() -> dict[str, str]:
    """PostgreSQL's plan of each query. Our connections disable sequential scans, so one means: no index serves."""
    schema = f"test_{token_hex(6)}"
    url = f"{server.url()}?schema={schema}"

    async def ask() -> dict[str, str]:
        await (await open_postgres(url, writer="w")).close()
        db = await connect(Address.parse(url), writes=True)
        try:
            return {name: await _postgres_plan(db, query) for name, query in queries().items()}
        finally:
            await db.close()
            await server.drop(schema)

    return asyncio.run(ask())


async def _postgres_plan(db: Any, query: Query[Any]) -> str:
    one = ONE_TRIP.get(type(query))
    texts = [one.select(query).text] if one else [numbered(text) for text, _ in query.statements()]
    plan = []
    for text in texts:
        await db.execute(f"PREPARE probe AS {text}")
        count = await db.fetchval(
            "SELECT cardinality(parameter_types) FROM pg_prepared_statements WHERE name = 'probe'"
        )
        given = f"({', '.join(['NULL'] * count)})" if count else ""
        plan += [record[0] for record in await db.fetch(f"EXPLAIN EXECUTE probe{given}")]
        await db.execute("DEALLOCATE probe")
    return "\n".join(plan)


@pytest.mark.parametrize("name", queries())
def test_postgres_scans_no_table(name: str, plans: dict[str, str]) -> None:
    assert scans(queries()[name]) or "Seq Scan" not in plans[name], plans[name]
    assert name not in ("by id", "next due") or "Index" in plans[name], plans[name]


def test_the_plan_test_can_fail(tmp_path: Path) -> None:
    database = Database(tmp_path / "s.db", synchronous=OFF)
    database.migrate()
    db = database.connect()
    assert not finds_by_index(_sqlite_plan(db, Census(RUN, ("status",))))
    assert "TEMP B-TREE" in _sqlite_plan(db, Newest(MEMO, "acme", (("activity", "a"),)))
    db.execute("DROP INDEX run_due")
    assert not finds_by_index(_sqlite_plan(db, NextDue(("a@1",))))
    db.execute("DROP INDEX cursor_due")
    assert "TEMP B-TREE" in _sqlite_plan(db, Owing("acme", "wh", 1))
    db.close()
