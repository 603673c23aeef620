"""Versions of workflows in a store: who serves them, their runs, and moving runs to another version."""

from collections import Counter
from collections.abc import Sequence
from functools import partial

from outlast.core.acts import KeyedAct
from outlast.core.commit import Commit, Expect, Instant
from outlast.core.keys import check_reason
from outlast.core.lanes import (
    SCHEDULERS,
    check_scheduler,
    is_built_in,
    lane_of,
    scheduler_of,
    version_in,
    worker_command,
    workflow_in,
)
from outlast.core.limits import FLAGGED_MAX
from outlast.core.machine import RULES, TERMINAL, Choice, Reason, RunStatus
from outlast.core.mailbox import check_unfinished
from outlast.core.paging import pages
from outlast.core.rows.run_columns import Attention
from outlast.core.rows.run_rows import RUN, Run
from outlast.core.rows.store_rows import STORE, TOPOLOGY, lanes_served
from outlast.core.version_move import UNSERVED, request_move, transfer
from outlast.engine.commands import Once, check_seen, find_run, land, nothing
from outlast.errors import Conflict, NotFound, OutlastError
from outlast.insight.run_facts import first_line
from outlast.insight.tenant_rows import TenantRows
from outlast.models import instant
from outlast.models.attention import AnsweredRuns, why_not
from outlast.models.service import VersionStatus
from outlast.store.open_rows import LaneCounts

PAGE = 200
ANSWERED_BY_MOVE = tuple(reason for reason, rule in RULES.items() if rule.on_continue is Choice.MOVE)


async def versions(of: TenantRows) -> list[VersionStatus]:
    """Return every version of authors' workflows that has been served or has unfinished runs of this tenant.

    Counts have a limit, so the cost does not grow with the number of runs: COUNT_MAX unfinished runs of a version, and
    FLAGGED_MAX runs that need a move.
    """
    flagged, at_least = await _flagged_by_lane(of)
    now = await of.store.now()
    workers = await of.workers()
    rows = {r.lane: r for r in await of.store.rows(TOPOLOGY, (STORE,))}
    known = {*rows, *flagged, *lanes_served(workers, now.real)}
    runs = await of.store.query(LaneCounts(of.tenant, tuple(sorted(known))))
    lanes = {lane for lane in (*known, *runs) if not is_built_in(lane)}
    found = []
    for lane in sorted(lanes, key=lambda each: (workflow_in(each), version_in(each), each)):
        row = rows.get(lane)
        found.append(
            VersionStatus(
                workflow=workflow_in(lane),
                version=version_in(lane),
                lane=lane,
                scheduler=scheduler_of(lane),
                runs=runs.get(lane, 0),
                flagged=flagged[lane],
                flagged_at_least=at_least,
                served_by=[w.id for w in workers if w.serves(lane, now.real)],
                topology=row.digest[:12] if row else "",
                since=instant(row.at) if row else None,
            )
        )
    return found


async def _flagged_by_lane(of: TenantRows) -> tuple[Counter[str], bool]:
    """Count the runs that need a move by lane, and return whether further ones may need one."""
    lanes: dict[str, str] = {}
    for reason in ANSWERED_BY_MOVE:
        async for page in pages(partial(of.flagged, reason=reason)):
            lanes |= {run.run: run.lane for run in page.rows}
            if page.cursor and len(lanes) >= FLAGGED_MAX:
                return Counter(lanes.values()), True
    return Counter(lanes.values()), False


async def unfinished(of: TenantRows, workflow: str, lane: str, limit: int = 0) -> list[Run]:
    """Return the unfinished runs of one version, at most `limit` of them; 0: all."""
    found: dict[str, Run] = {}
    for status in (each for each in RunStatus if each not in TERMINAL):
        where: dict[str, str | int] = {"status": status.value, "workflow": workflow, "lane": lane}
        async for page in pages(partial(of.store.page, RUN, of.tenant, where, limit=min(limit or PAGE, PAGE))):
            found |= {run.run: run for run in page.rows}
            if limit and len(found) >= limit:
                return list(found.values())[:limit]
    return list(found.values())


async def move_runs(
    of: TenantRows, actor: str, workflow: str, version: int, runs: Sequence[str], *, node: str = "", reason: str = ""
) -> AnsweredRuns:
    """Request that runs continue in another version, at a node or in their present one.

    Each run is requested separately; failures are listed. Raises NotFound if no live worker serves that version.
    """
    check_reason(reason)
    serving = await of.serving()
    if not any(lane_of(workflow, version, scheduler) in serving for scheduler in SCHEDULERS):
        check_served(lane_of(workflow, version), serving)
    done: list[str] = []
    failed: list[tuple[str, str]] = []
    for run in dict.fromkeys(runs):
        try:
            await request_version(of, actor, run, workflow, version, node=node, reason=reason)
            done.append(run)
        except OutlastError as error:
            failed.append((run, why_not(error)))
    return AnsweredRuns(tuple(done), tuple(failed), "")


def check_served(lane: str, serving: frozenset[str]) -> None:
    """Raise NotFound if no live worker serves the lane."""
    if lane not in serving:
        raise NotFound(
            f"no live worker serves {lane}",
            "only such a worker can continue runs there",
            f"start one: {worker_command(scheduler_of(lane))}",
            refusal=UNSERVED,
        )


async def request_version(
    of: TenantRows,
    actor: str,
    run: str,
    workflow: str,
    version: int,
    *,
    node: str = "",
    reason: str = "",
    shown: Expect | None = None,
    act: KeyedAct | None = None,
) -> None:
    """Request that a run continue in another version, at a node or in its present one. Raises NotFound, Conflict.

    `shown`: the run's row as it was shown; if it has changed since, the request is refused (`moved`). Only the holder
    moves a run: this stores the request, and a worker of that version carries it out.
    """
    check_reason(reason)
    serving = await of.serving()

    async def decide(now: Instant) -> tuple[Commit, None]:
        row = await find_run(of.store, of.tenant, run)
        check_seen(shown, row)
        check_served(lane_of(workflow, version, row.scheduler), serving)
        check_unfinished(row)
        why = _reason(row, workflow, version, node, serving)
        return request_move(row, why, version, node, actor=actor, text=reason), None

    await land(of.store, f"run {run}", decide, seen=shown, once=Once(act, run, nothing))


async def unmovable(of: TenantRows, run: str) -> str:
    """Return why a run cannot be asked to continue in another version now; '' if it can. Raises NotFound."""
    row, serving = await of.run(run), await of.serving()
    try:
        check_unfinished(row)
        _reason(row, row.workflow, 0, "", serving)
    except OutlastError as error:
        return why_not(error)
    return ""


def _reason(run: Run, workflow: str, version: int, node: str, serving: frozenset[str]) -> Reason:
    """Return the attention reason that the move answers. Raises Conflict if the run can continue where it is."""
    if run.workflow != workflow:
        raise Conflict(f"{run.run} is a run of {run.workflow}", f"not of {workflow}", "name the run's own workflow")
    stops: list[Attention] = [a for a in run.attention if a.stops]
    mine = [a.reason for a in stops if a.reason in ANSWERED_BY_MOVE]
    if mine:
        return mine[0]
    if stops:
        why = first_line(stops[0].detail)
        raise Conflict(f"{run.run} needs a person for {stops[0].reason.value}", why, f"outlast runs show {run.run}")
    if run.lane in serving:
        raise Conflict(
            f"{run.run} continues in {run.lane}", "a live worker serves it", "stop the workers of that version first"
        )
    return Reason.STRANDED_VERSION


async def move_to_scheduler(
    of: TenantRows,
    actor: str,
    run: str,
    scheduler: str,
    *,
    reason: str = "",
    force: bool = False,
    shown: Expect | None,
    act: KeyedAct | None = None,
) -> None:
    """Give a run to another scheduler. Raises NotFound, InvalidInput, Conflict (held, ended, moved).

    `force`: even if no live worker serves its version there. `shown`: as in `request_version`.
    """
    check_reason(reason)
    check_scheduler(scheduler)
    serving = await of.serving()

    async def decide(now: Instant) -> tuple[Commit, None]:
        row = await find_run(of.store, of.tenant, run)
        check_seen(shown, row)
        check_unfinished(row)
        if row.scheduler == scheduler:
            raise Conflict(f"{scheduler} schedules {run} already", "", f"outlast explain {run}")
        if row.owner:
            raise Conflict(
                f"{row.owner} executes {run} now",
                "only a run that waits, or that no worker has taken yet, can move",
                "try again when it waits",
            )
        if not force:
            check_served(lane_of(row.workflow, version_in(row.lane), scheduler), serving)
        return transfer(row, scheduler, now=now, by=actor, reason=reason), None

    await land(of.store, f"run {run}", decide, seen=shown, once=Once(act, run, nothing))
