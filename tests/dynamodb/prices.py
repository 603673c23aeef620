"""Cost of each query in DynamoDB's read units, in the words of docs/dynamodb.md."""

from typing import Any, Final, NamedTuple

from outlast.store.agent_calls import NewestCalls, NewestMemos, NewestRequests
from outlast.store.bars import EndBars, FirstFlagged, FlaggedBars, LastFlaggings, RunsByEnd, StartBars, TimesOfCauses
from outlast.store.budgeted_runs import SpentOfRuns, UnfinishedRuns
from outlast.store.due_runs import DueRuns
from outlast.store.measured_rows import MeasuredApprovals, MeasuredRuns, RunCourses
from outlast.store.open_calls import OpenCalls
from outlast.store.open_rows import FlaggedCounts, LaneCounts, OpenRows, Summary
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
)
from outlast.store.unused_threads import UnusedThreads
from outlast.store.usage_sums import RunsUsage, RunUsage, TenantDayUsage, TenantUsage, TreeUsage


class ReadPrice(NamedTuple):
    """Price of a query in read units, with the words of `docs/dynamodb.md`."""

    read: str
    units: str


PRICES: Final[dict[type[Query[Any]], ReadPrice]] = {
    Load: ReadPrice("a row", "1 per 4 KB"),
    LoadMany: ReadPrice("several rows", "1 per 4 KB of each"),
    Under: ReadPrice(
        "rows of a run, or all pauses, slots, workers",
        "1 per 4 KB; rows of all runs: a scan of the table per 100,000 rows, and 1 per row",
    ),
    ByOrdinal: ReadPrice("a page of a run's results", "1 per 4 KB of all results of the run"),
    LastOrdinals: ReadPrice("number of a run's results", "1 per 4 KB of all results of the run"),
    Newest: ReadPrice(
        "a page of runs, approvals, effects, deliveries",
        "1 per row, also for those that a filter passes over, and 0.5 per 30 of them",
    ),
    OpenRows: ReadPrice(
        "a page of what waits for a person: flagged runs, pending approvals, uncertain effects; of acts of callers",
        "1 per row, and 0.5 per 30",
    ),
    Summary: ReadPrice(
        "the counts in the header of a page",
        "1 per 4 KB of each flagged run, pending approval and failed delivery, up to 100 each; 5; per worker and "
        "version 1 per 4 KB; per version without a worker 0.5 per 30 of its runs, up to 100",
    ),
    LaneCounts: ReadPrice(
        "unfinished runs by version", "per version 1 per 4 KB, and 0.5 per 30 of its runs, up to 1,000"
    ),
    CountBy: ReadPrice("runs or approvals of a tenant by status", "1 per row of the tenant, and 0.5 per 30"),
    Census: ReadPrice("metrics: runs or approvals of all tenants", "1 per row, and 0.5 per 30 entries of the index"),
    Owned: ReadPrice("runs of a worker", "0.5, and 1 per run"),
    Queued: ReadPrice("runs that wait for a slot", "1 per run on the page; for the global limit, 1 per waiting run"),
    Moving: ReadPrice(
        "live page: owned runs and those that ended", "1 per run, and 0.5 per 30 owned runs of all tenants"
    ),
    NextDue: ReadPrice("when the next run is due", "1, and per lane 0.5 per clock mapping, and 1 if one will be due"),
    DueRuns: ReadPrice("due runs for another scheduler", "1, and per clock mapping 0.5, and 1 per run"),
    UnusedThreads: ReadPrice(
        "threads of LangGraph that a purge may delete",
        "1 per thread; 0.5 per 30 rows of all lists, once a day if threads are purged",
    ),
    Owing: ReadPrice("webhooks that are owed", "0.5, and 1 per cursor"),
    OpenCalls: ReadPrice("status of runs with a call in flight", "per run 3, and 1 per 4 KB of the visit's effects"),
    RunsBelow: ReadPrice("number of runs below a root", "0.5 per 30 of them"),
    RunUsage: ReadPrice("usage of a run", "1 per 4 KB, about 15 calls"),
    RunsUsage: ReadPrice("usage of the runs on a page", "per run 0.5, and 1 per 4 KB of its calls"),
    TreeUsage: ReadPrice("usage of a tree", "1 per call of the runs below, and 0.5 per 30; 1 per 4 KB of the root's"),
    TenantDayUsage: ReadPrice("usage of a tenant on a day", "0.5 per 4 KB, about 10 calls"),
    FlaggedCounts: ReadPrice("flagged runs by cause", "0.5 per 30, up to 10,000 runs"),
    FlaggedBars: ReadPrice("flaggings by time", "1 per flagging in the time, and 0.5 per 30, up to 10,000"),
    TimesOfCauses: ReadPrice(
        "the first and the last flagging of each cause", "1 per flagging, up to the newest 10,000"
    ),
    LastFlaggings: ReadPrice(
        "a page of runs by the time of a flagging", "1 per flagging in the time, up to 10,000; 1 per run"
    ),
    StartBars: ReadPrice("runs by the time of their start", "1 per run that started in the time, up to 10,000"),
    RunsByEnd: ReadPrice("a page of runs by the time of their end", "1 per run, and 0.5 per 30"),
    FirstFlagged: ReadPrice("the run that each cause flagged first", "1 per flagged run, and 0.5 per 30, up to 10,000"),
    EndBars: ReadPrice("ended runs by time", "1 per run that ended in the time, and 0.5 per 30, up to 10,000"),
    NewestRequests: ReadPrice(
        "newest requests to models", "0.5 per 4 KB, about 10 calls, up to 10,000 requests of 90 days; 1 per run"
    ),
    NewestCalls: ReadPrice("newest calls by tool", "1 per 4 KB of each call, up to 10,000, and 0.5 per 30; 1 per run"),
    NewestMemos: ReadPrice("lookups and verdicts in the newest runs", "of 200 runs 1 each, and 1 per 4 KB of memos"),
    MeasuredRuns: ReadPrice(
        "durations of runs", "1 per run that ended in the time, and 0.5 per 30, up to 1,000; 2 per run, up to 200"
    ),
    MeasuredApprovals: ReadPrice(
        "time to decision", "2 per approval that was requested in the time, and 0.5 per 30, up to 1,000 that fit"
    ),
    RunCourses: ReadPrice("durations of nodes", "per run 1 per 4 KB of its events and of its calls, up to 50 runs"),
    UnfinishedRuns: ReadPrice("unfinished runs with a budget", "1 per run, and 0.5 per 30, up to 1,000"),
    SpentOfRuns: ReadPrice(
        "what runs have spent of their budgets",
        "per run 1 per 4 KB of its usage, calls and messages, and 1 per call and run below it",
    ),
    TenantUsage: ReadPrice(
        "usage of a tenant by day and workflow", "0.5 per 4 KB, about 10 calls, up to 50,000 calls; 1 per run"
    ),
}
