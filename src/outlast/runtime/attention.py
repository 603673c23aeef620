"""Runs that need a person: list them page by page and answer many at once."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Literal, NamedTuple

from outlast.core.machine import CHOICES, Choice, Reason
from outlast.core.route import meant
from outlast.core.rows import EVENT, PAUSE, RUN, SLOT, STORE, WORKER, Run
from outlast.engine.commands import no_run
from outlast.errors import Conflict, OutlastError
from outlast.runtime.run_facts import RunFacts
from outlast.store.port import Store, clock_step

PAGE = 500  # runs per read
AT_ONCE = 50  # concurrent answers, because they share the store's batches
EVENTS = 50  # newest events of a run that an explanation uses

Verb = Literal["happened", "did_not_happen", "give_up"]


class AnsweredRuns(NamedTuple):
    """Result of answering one page of runs: answered runs, failed runs with the error, and the next cursor."""

    done: tuple[str, ...]
    failed: tuple[tuple[str, str], ...]
    cursor: str


async def flagged(
    store: Store, tenant: str, reason: Reason | None, workflow: str, cursor: str, limit: int
) -> tuple[tuple[Run, ...], str]:
    """Return the flagged runs of one page of runs, newest first, and the next cursor."""
    where: dict[str, str | int] = {"workflow": workflow} if workflow else {}
    page = await store.page(RUN, tenant, where, cursor=cursor, limit=limit)
    rows = [r for r in page.rows if r.attention]
    return tuple(r for r in rows if reason is None or any(a.reason is reason for a in r.attention)), page.cursor


def check_for_all(reason: Reason, choice: Choice) -> None:
    """Raise Conflict unless this choice can be made for many runs at once."""
    if meant(reason, choice) not in CHOICES[reason]:
        offered = ", ".join(c.value for c in CHOICES[reason])
        raise Conflict(f"{reason.value} does not offer {choice.value}", f"it offers {offered}", "choose one of these")
    if choice is Choice.HAPPENED:
        raise Conflict(
            "«happened» cannot be recorded for many effects at once",
            "each effect has its own id at the receiver",
            "record each one: outlast effects resolve RUN KEY --happened ID",
        )


def verb_of(choice: Choice) -> Verb:
    """Return the ledger's verb for a choice about an uncertain effect."""
    if choice is Choice.HAPPENED:
        return "happened"
    return "did_not_happen" if choice is Choice.DID_NOT_HAPPEN else "give_up"


async def answer_page(
    store: Store,
    tenant: str,
    reason: Reason,
    workflow: str,
    cursor: str,
    one: Callable[[str, str], Awaitable[None]],
) -> AnsweredRuns:
    """Call `one(run, key)` for each flagged run of a page; for uncertain effects, once for each key."""
    rows, further = await flagged(store, tenant, reason, workflow, cursor, PAGE)
    done: list[str] = []
    failed: list[tuple[str, str]] = []

    async def answer(row: Run) -> None:
        entries = [a for a in row.attention if a.reason is reason]
        keys = [a.key for a in entries] if reason is Reason.EFFECT_UNCERTAIN else [""]
        try:
            for key in keys:
                await one(row.run, key)
        except OutlastError as error:
            failed.append((row.run, f"{error.what}: {error.why}" if error.why else error.what))
            return
        done.append(row.run)

    for i in range(0, len(rows), AT_ONCE):
        await asyncio.gather(*(answer(row) for row in rows[i : i + AT_ONCE]))
    return AnsweredRuns(tuple(done), tuple(failed), further)


async def held_up(store: Store, tenant: str) -> dict[str, int]:
    """Count waiting runs by the key of the pause they wait for."""
    counts: Counter[str] = Counter()
    cursor = ""
    while True:
        page = await store.page(RUN, tenant, {}, cursor=cursor, limit=PAGE)
        for row in page.rows:
            counts.update({w.what.partition(":")[0] for w in row.waiting_for if w.kind == "pause"})
        cursor = page.cursor
        if not cursor:
            return dict(counts)


async def read_run_facts(store: Store, tenant: str, run: str) -> RunFacts:
    """Read the rows that an explanation of a run uses. Raises NotFound."""
    (rows,) = await store.run_rows([(tenant, run)])
    if rows is None:
        raise no_run(tenant, run)
    after = max(0, rows.run.seq - EVENTS)
    events = await store.rows(EVENT, (tenant, run), after=(tenant, run, after), limit=EVENTS)
    slots = [*await store.rows(SLOT, (STORE,)), *await store.rows(SLOT, (tenant,))]
    return RunFacts(
        run=rows.run,
        now=rows.now,
        events=tuple(e for e in events if e.seq <= rows.run.seq),
        effects=(*rows.effects, *(e for e in rows.shared if e.by_run == run)),
        used=tuple(e for e in rows.shared if e.by_run != run),
        waits=rows.waits,
        approvals=rows.approvals,
        messages=rows.messages,
        workers=await store.rows(WORKER, (STORE,)),
        pauses=tuple(h for h in await store.rows(PAUSE, (tenant,)) if h.up),
        slots=slots,
        evidence=rows.evidence,
        clock_step=await clock_step(store),
    )
