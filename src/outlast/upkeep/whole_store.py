"""Maintenance of a whole store, all tenants: backup, recovery after a restore, deletion of old runs."""

import asyncio
import platform
from collections.abc import Awaitable, Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final, NamedTuple

from outlast.clocks import SystemClock, new_id
from outlast.core.bulk_answers import BULK
from outlast.core.commit import Instant
from outlast.core.durations import DAY, LEDGER_KEPT, RUNS_KEPT, SECOND, span
from outlast.core.generation import Generation
from outlast.core.lanes import GUESTS, worker_command, workflow_in
from outlast.core.limits import COUNT_MAX
from outlast.core.rows.row_kind import Key
from outlast.core.rows.run_rows import RUN, is_over
from outlast.core.rows.store_rows import META, STORE, TOPOLOGY, WORKER, Worker
from outlast.core.webhooks.deliveries import is_active
from outlast.engine import store_maintenance
from outlast.engine.model_text_writer import forget_unused
from outlast.engine.store_maintenance import AT_ONCE, PURGED, PURGED_AT_ONCE, Recovered, present_generation, purge_of
from outlast.engine.thread_removal import UnusedThreadPurge
from outlast.errors import Conflict, StoreUnusable, to_install
from outlast.insight.labels import count_of, counted, engine_label
from outlast.insight.run_facts import clock_step_text
from outlast.models.service import VersionStatus
from outlast.runtime.interpreter_build import build
from outlast.runtime.operations import Operations
from outlast.runtime.settings import unknown_variables
from outlast.runtime.stores import file_of, open_store
from outlast.runtime.webhooks import dispatcher_heartbeat, lag_of, unattended_ms
from outlast.store.port import AnchoredClock, OnFile, maintenance
from outlast.store.sqlite import backup as files
from outlast.upkeep.fsck import Fsck
from outlast.upkeep.fsck_checks import Finding

PAGE = 500
PAUSE_PER_WORK = 1.0  # the pause after a batch lasts as long as the batch, so that others can write


class Purged(NamedTuple):
    """Result of a purge."""

    runs: int
    ledgers: int  # of runs that were not deleted
    threads: int  # of LangGraph


async def unfinished(ops: Operations) -> int:
    """Count the unfinished runs of all tenants."""
    n = 0
    after: Key = ()
    while rows := await ops.store.rows(RUN, (), after=after, limit=PAGE, listed=True):
        n += sum(not is_over(row) for row in rows)
        after = rows[-1][: RUN.key]  # type: ignore[assignment]
    return n


async def recover(ops: Operations) -> Recovered:
    """Recover the store after a restore. Raises Stale if another process is recovering it."""
    recovered = await store_maintenance.recover(ops.store, new_id=new_id("g_"), actor=ops.actor.name)
    if isinstance(ops.store, OnFile):  # last, so that an interrupted recovery leaves a file that no worker serves
        await ops.store.adopt_file()
    return recovered


async def adopt_moved(ops: Operations) -> None:
    """Make a moved store file usable in its new place. Raises Conflict, StoreUnusable if it was not moved."""
    if isinstance(ops.store, OnFile):
        await ops.store.adopt_file(moved=True)


async def purge(
    ops: Operations, *, older_ms: int = RUNS_KEPT, ledgers_ms: int = LEDGER_KEPT, threads_ms: int | None = None
) -> Purged:
    """Delete runs that ended longer ago than this, and ledgers of other ended runs, in small transactions.

    Rows that workers expire go too. Unfinished runs are never deleted. Shared effects (`once_per="tenant"`) and start
    keys are kept. `threads_ms`: also threads of LangGraph that have not changed for so long; None = no thread.
    """
    store = maintenance(ops.store)
    now = (await ops.store.now()).business

    async def all_of(some: Callable[[], Awaitable[int]]) -> int:
        """Repeat a transaction, with pauses, until it deletes nothing, and return the number deleted."""
        done, loop = 0, asyncio.get_running_loop()
        started = loop.time()
        while n := await some():
            done += n
            await asyncio.sleep((loop.time() - started) * PAUSE_PER_WORK)
            started = loop.time()
        return done

    runs = await all_of(lambda: store.purge(now - older_ms, PURGED_AT_ONCE))
    ledgers = await all_of(lambda: store.purge_ledgers(now - ledgers_ms, PURGED_AT_ONCE))
    await all_of(lambda: store.forget(AT_ONCE))
    await forget_unused(ops.store, now - older_ms)
    threads, unused, is_done = 0, UnusedThreadPurge(ops.store), threads_ms is None
    while threads_ms is not None and not is_done:
        n, is_done = await unused.some(now, threads_ms)
        threads += n
        await asyncio.sleep(0)
    return Purged(runs, ledgers, threads)


class Backup(NamedTuple):
    """A verified backup."""

    path: Path
    bytes: int
    runs: int
    events: int
    generation: Generation | None
    findings: tuple[Finding, ...]


async def back_up(url: str, target: Path, *, replace: bool = False) -> Backup:
    """Copy the store at `url` to a file, as of one instant, and check every invariant in the copy.

    A copy with findings is kept. Raises StoreUnusable (the store is not a file), Conflict (the target exists).
    """
    source = file_of(url)
    if source is None:
        raise StoreUnusable(
            f"{url} is not a file and cannot be copied",
            "use the server's own tools; a store in memory has no backup",
            "PostgreSQL: pg_dump, or a base backup with its log; after a restore: outlast recover --after-restore",
        )
    part = await asyncio.to_thread(_copy_store, source, target, replace)
    try:
        store = await open_store(f"sqlite:{part}", use="read")
        try:
            looked = await Fsck(store).look()
            generation = await present_generation(store)
        finally:
            await store.close()
        size = await asyncio.to_thread(files.keep, part, target)
    finally:
        files.drop(part)
    return Backup(target, size, looked.runs, looked.events, generation, looked.findings)


def _copy_store(source: Path, target: Path, replace: bool) -> Path:
    if not source.exists():
        raise StoreUnusable(
            f"there is no store at {source}", "there is nothing to back up", "name a store with --store"
        )
    if target.exists() and not replace:
        raise Conflict(
            f"{target} already exists", "a backup does not overwrite a file unless told to", "name another file"
        )
    return files.copy(source, target, SystemClock().wall())


SKEW_MAX: Final = 5 * SECOND  # clock difference to the store; it affects displayed times only (REC-6)
WAL_BYTES_MAX: Final = 256 * 1024 * 1024  # beyond it, a long read keeps the log from being reset
ATTRIBUTES_SHOWN: Final = 12
PURGE_LATE: Final = 3 * DAY  # a purge runs daily
BEHIND: Final = (
    "off",
    "normal",
    "local",
    "remote_write",
)  # values of `synchronous…` that may lose an acknowledged commit


class Diagnosis(NamedTuple):
    """One checked thing, its state, and the remedy if something is wrong."""

    what: str
    found: str
    fix: str = ""
    note: str = ""
    """Advice that requires no action."""


async def examine(ops: Operations) -> list[Diagnosis]:
    """Return every diagnosis for the store of these operations; a `fix` asks for action. Raises StoreError."""
    facts = maintenance(ops.store).facts()
    lanes = await ops.versions()
    return [*_store(facts), await _clock(ops, facts), *await _workers(ops, lanes), *await _webhooks(ops),
            *await _purge(ops), await _people(ops, lanes), *await _attributes(ops), *_here()]  # fmt: skip


async def _attributes(ops: Operations) -> list[Diagnosis]:
    lanes = await ops.store.rows(TOPOLOGY, (STORE,), listed=True)
    authored = [row for row in lanes if workflow_in(row.lane) != BULK]
    names = sorted({name for row in authored for name in row.structure().get("attributes", ())})
    shown = ", ".join(names[:ATTRIBUTES_SHOWN]) + (" …" if len(names) > ATTRIBUTES_SHOWN else "")
    note = "the store, lists and exports have their values as clear text: name no secret"
    return [Diagnosis("attributes", shown, note=note)] if names else []


def _store(facts: dict[str, str | int]) -> list[Diagnosis]:
    findings = [Diagnosis("store", str(facts["store"])), Diagnosis("schema", str(facts["schema"]))]
    for name in ("journal_mode", "synchronous", "synchronous_commit", "fsync", "full_page_writes"):
        if name in facts:
            value = str(facts[name])
            weak = value in BEHIND if name.startswith("synchronous") else name == "fsync" and value == "off"
            findings.append(
                Diagnosis(name, value, "restore the default: an acknowledged commit may be lost" if weak else "")
            )
    if advice := str(facts.get("sqlite_advice", "")):
        findings.append(Diagnosis("sqlite", str(facts["sqlite"]), note=advice))
    log = int(facts.get("wal_bytes", 0))
    if log > WAL_BYTES_MAX:
        findings.append(Diagnosis("log", f"{log} bytes", "a process reads for very long: end it"))
    return findings


async def _clock(ops: Operations, facts: dict[str, str | int]) -> Diagnosis:
    if isinstance(ops.store, AnchoredClock):
        step = await ops.store.clock_step()
        fix = clock_step_text(step)
        return Diagnosis("clock", f"{span(abs(step))} from the store's", fix and f"{fix}: set this machine's clock")
    if "clock_ahead_ms" in facts:  # a process with a wrong clock has not opened the store
        off, known = abs(int(facts["clock_ahead_ms"])), int(facts["clock_known_ms"])
        return Diagnosis("clock", f"{span(off)} from DynamoDB's, known to within {span(known)}")
    before, now, after = SystemClock().wall(), (await ops.store.now()).real, SystemClock().wall()
    skew = max(before - now, now - after, 0)  # the store read its clock between the two, so a slow answer is not skew
    fix = (
        "set this machine's clock: leases follow the store's clock, but times shown here are wrong"
        if skew > SKEW_MAX
        else ""
    )
    return Diagnosis("clock", f"{span(skew)} from the store's", fix)


async def _workers(ops: Operations, lanes: Sequence[VersionStatus]) -> list[Diagnosis]:
    now = await ops.store.now()
    alive = [row for row in await ops.store.rows(WORKER, (STORE,)) if row.is_alive(now.real)]
    findings = [Diagnosis("workers", str(len(alive)), "" if alive else "start one: outlast worker MODULE")]
    findings += [
        Diagnosis("unserved", each.lane, f"no worker serves {each.lane}: {worker_command(each.scheduler)}")
        for each in lanes
        if each.runs and not each.served_by
    ]
    return [*findings, *_engines(lanes, alive, now)]


def _engines(lanes: Sequence[VersionStatus], alive: Sequence[Worker], now: Instant) -> list[Diagnosis]:
    """Return the state of each other scheduler that has runs or workers."""
    found: list[Diagnosis] = []
    for scheduler in GUESTS:
        mine = [row for row in alive if row.health.scheduler == scheduler]
        runs = sum(each.runs for each in lanes if each.scheduler == scheduler)
        trouble = [f"{row.id}: {label}" for row in mine if (label := engine_label(row, now))]
        fix = "; ".join(trouble) if len(trouble) == len(mine) else ""
        if runs and not mine:
            fix = f"no worker executes its runs: {worker_command(scheduler)}"
        if runs or mine:
            note = "" if fix else "; ".join(trouble)
            found.append(Diagnosis(scheduler, f"{len(mine)} workers, {counted(runs)} unfinished runs", fix, note=note))
    return found


async def _webhooks(ops: Operations) -> list[Diagnosis]:
    active = [row for row in await ops.webhooks.rows() if is_active(row)]
    if not active:
        return []
    lag, sender = await lag_of(ops.store, [ops.tenant]), await dispatcher_heartbeat(ops.store)
    waits = f"the oldest event has waited {span(lag.owed_ms)}" if lag.owed_ms else "no event waits"
    fix = "no dispatcher sends it: outlast dispatcher" if await unattended_ms(ops.store, ops.tenant) else ""
    seen = f"{sender.dispatcher}, seen {span(sender.seen_ms)} ago" if sender.alive else "none is alive"
    mute = await ops.webhooks.refused()
    again = [Diagnosis("webhooks", f"{name} sends no message", f"add its address again: {why}") for name, why in mute]
    return [Diagnosis("webhooks", f"{len(active)}, {waits}", fix), *again, Diagnosis("dispatcher", seen)]


async def _purge(ops: Operations) -> list[Diagnosis]:
    last = purge_of(await ops.store.load(META, PURGED))
    if last is None or not last.by:
        return [Diagnosis("purge", "no worker has deleted old runs yet")]
    ago = (await ops.store.now()).real - last.at
    fix = "no worker purges: run outlast purge, or start a worker" if ago > PURGE_LATE else ""
    threads = f" and {last.threads} threads" if last.threads else ""
    deleted = f"{last.ledgers} ledgers and {last.runs} runs{threads} deleted"
    return [Diagnosis("purge", f"{span(ago)} ago by {last.by}: {deleted}", note=fix)]


async def _people(ops: Operations, lanes: Sequence[VersionStatus]) -> Diagnosis:
    summary = await ops.summary()
    runs, least = sum(each.runs for each in lanes), ""
    if any(each.runs >= COUNT_MAX for each in lanes):  # those that need a person are counted further
        runs, least = max(runs, summary.attention_runs), "+"
    flagged = count_of(summary, "attention_runs")
    fix = "outlast attention ls" if summary.attention_runs else ""
    return Diagnosis("runs", f"{runs:,}{least} unfinished, {flagged} of them need a person", fix)


def _event_loop() -> Diagnosis:
    """Return the event loop of `worker`, `serve` and `dev`, as `cli/serving.py` chooses it."""
    try:
        return Diagnosis("event loop", f"uvloop {version('uvloop')}")
    except PackageNotFoundError:
        return Diagnosis("event loop", "asyncio", note=f"workers take less CPU on uvloop: {to_install('fast')}")


def _here() -> list[Diagnosis]:
    here = build()
    slow = "a step takes a quarter longer: use the system's or uv's Python, or build with --enable-optimizations"
    note = slow if here.optimised is False else ""
    findings = [Diagnosis("python", f"{platform.python_version()}, {here.text}", note=note), _event_loop()]
    findings += [Diagnosis("setting", name, "unknown setting: outlast config show") for name in unknown_variables()]
    return findings
