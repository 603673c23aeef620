"""Routes for operators: attention, effects, workers, versions, pauses."""

from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from outlast.core.machine import Choice, EffectStatus, Reason
from outlast.core.rows import Effect
from outlast.engine.commands import check_seen
from outlast.errors import Conflict, InvalidInput, NotFound
from outlast.models.attention import AttentionList
from outlast.models.effects import EffectList, EffectRecord
from outlast.models.runs import RequestRecorded
from outlast.models.service import PauseCreated, PauseEnded, PauseList, VersionList, WorkerList
from outlast.runtime.attention_answers import breaker_item, entry_of, entry_view
from outlast.runtime.operations import Operations
from outlast.runtime.tenant_rows import RUNS_PER_READ
from outlast.runtime.versions import versions
from outlast.runtime.views import effect_view, instant, pause_view, worker_view
from outlast.service.conditional import IfMatch, OnRun, etag, expected_version, stale_version
from outlast.service.problems import ProblemError
from outlast.service.requests import (
    CreatePause,
    Cursor,
    EffectId,
    EndPause,
    IdempotencyKey,
    ResolveAttention,
    ResolveEffect,
    Since,
    parse_effect_id,
    with_id,
)
from outlast.service.secured_route import SecuredRoute
from outlast.service.service_state import Ops, Pages, State

router = APIRouter(prefix="/v1", tags=["operators"], route_class=SecuredRoute)


@router.get("/attention", operation_id="list_attention", response_model=AttentionList, summary="List attention")
async def list_attention(
    state: State,
    ops: Ops,
    request: Request,
    response: Response,
    reason: Annotated[Reason | None, Query(description="Only this reason.")] = None,
    workflow: Annotated[str, Query(max_length=100, description="Only runs of this workflow.")] = "",
    cursor: Cursor = "",
    limit: Annotated[int, Query(ge=1, le=1_000, description="Maximum number of runs on a page.")] = RUNS_PER_READ,
) -> dict[str, Any]:
    """List the reasons why runs require attention, with the choices and the consequence of ignoring them."""
    place = await state.cursors.open(request, ops.tenant, cursor)
    rows, further = await ops.rows.flagged(reason=reason, workflow=workflow, cursor=place, limit=limit)
    uncertain_evidence, now = await ops.rows.uncertain_evidence(rows), await ops.store.now()
    items = [
        entry_view(row, entry, uncertain_evidence.get((row.run, entry.visit, entry.key)), now)
        for row in rows
        for entry in row.attention
        if reason in (None, entry.reason)
    ]
    away = [breaker_item(hold, n) for hold, n in await ops.rows.breakers()] if reason is None and not cursor else []
    if reason in (None, Reason.WEBHOOK_DEAD) and not cursor:
        away += await ops.webhooks.attention()
    return {
        "attention": [*away, *items],
        "next_cursor": await state.cursors.seal(request, response, ops.tenant, further),
    }


@router.post(
    "/attention/{run}/resolve",
    operation_id="resolve_attention",
    response_model=RequestRecorded,
    summary="Answer attention",
)
async def resolve_attention(on: OnRun, ask: ResolveAttention) -> RequestRecorded:
    """Answer with one of the offered choices. To settle an uncertain effect, use POST /effects/{id}/resolve."""
    if ask.by is not None and ask.choice is not Choice.EXTEND:
        raise InvalidInput(f"`by` requires the choice {Choice.EXTEND.value}", "", "leave `by` out")

    async def answer(seen: int) -> None:
        await check_seen(on.ops.store, on.ops.shown(on.run, seen))
        row = await on.ops.rows.run(on.run)
        entry = entry_of(row, ask.choice, ask.attention, ask.key)
        await on.ops.answer_entry(row, entry, ask.choice, text=ask.reason, by=ask.by, version=seen)

    return await on.apply(answer)


@router.get("/effects", operation_id="list_ledger", response_model=EffectList, summary="List effects")
async def list_ledger(
    ops: Ops,
    pages: Pages,
    status: Annotated[
        EffectStatus | None, Query(description="Only this status. `uncertain` effects wait for a person.")
    ] = None,
    activity: Annotated[str, Query(max_length=100, description="Only effects of this activity.")] = "",
    run: Annotated[str, Query(max_length=100, description="Only effects of this run.")] = "",
    since: Since = None,
) -> dict[str, Any]:
    """List the effects of all runs, newest first, with the outcome of each call."""
    rows, further = await ops.rows.ledger(
        status=status, activity=activity, run=run, since=since, cursor=pages.after, limit=pages.limit
    )
    now, held = await ops.store.now(), await ops.rows.held_runs(rows)
    return await pages.page("effects", [with_id(effect_view(row, now, held=held)) for row in rows], further)


@router.post(
    "/effects/{effect}/resolve",
    operation_id="resolve_effect",
    response_model=EffectRecord,
    summary="Settle an uncertain effect",
)
async def resolve_effect(
    ops: Ops,
    effect: EffectId,
    ask: ResolveEffect,
    response: Response,
    if_match: IfMatch = None,
    key: IdempotencyKey = None,
) -> dict[str, Any]:
    """Record that it happened (with its id at the receiver), that it did not, or give it up. Possible once."""
    run, visit, name = parse_effect_id(effect)
    before = await _effect(ops, run, visit, name)
    version = expected_version(if_match, what=f"effect {name}")
    if version not in (0, before.version):
        raise await _stale(ops, before)
    latest = (await ops.rows.effect(run, name)).effect
    if latest.visit != visit:
        raise Conflict(
            f"effect {name} of visit {visit} is not uncertain", f"that of visit {latest.visit} is", "list the effects"
        )
    if ask.outcome == "happened" and not ask.external_id:
        raise InvalidInput(
            "the outcome `happened` requires external_id", "the id at the receiver is recorded", "give external_id"
        )
    if ask.outcome != "happened" and (ask.external_id or ask.response is not None):
        raise InvalidInput("external_id and response require the outcome `happened`", "", "leave them out")
    try:
        await ops.resolve_effect(
            run, name, ask.outcome, reason=ask.reason, external_id=ask.external_id, response=ask.response,
            version=version,
        )  # fmt: skip
    except Conflict as error:
        if error.refusal != "moved":
            raise
        raise await _stale(ops, await _effect(ops, run, visit, name)) from None
    after = await _effect(ops, run, visit, name)
    response.headers["ETag"] = etag(after.version)
    return with_id(effect_view(after, await ops.store.now()))


async def _stale(ops: Operations, now: Effect) -> ProblemError:
    """Return the error (412) for a changed effect, with its current state."""
    view = with_id(effect_view(now, await ops.store.now()))
    return ProblemError(
        stale_version(f"effect {now.key}", now.version), more={"current": view}, headers={"ETag": etag(now.version)}
    )


async def _effect(ops: Operations, run: str, visit: int, key: str) -> Effect:
    """Return the effect. Raises NotFound."""
    doubt = await ops.rows.effect(run, key, visit=visit)
    if not isinstance(doubt.effect, Effect):
        raise NotFound(f"run {run} has no effect {key}")
    return doubt.effect


@router.get("/workers", operation_id="list_workers", response_model=WorkerList, summary="List workers")
async def list_workers(
    ops: Ops, everybody: Annotated[bool, Query(alias="all", description="Include workers that have gone.")] = False
) -> dict[str, Any]:
    """List the workers, which serve all tenants: lanes, lease, event loop delay, free capacity."""
    now = await ops.store.now()
    views = [worker_view(w, now, await ops.rows.held(w.id)) for w in await ops.rows.workers()]
    return {"workers": [v for v in views if everybody or v["lease_left_ms"]]}


@router.get(
    "/versions",
    operation_id="list_versions",
    response_model=VersionList,
    summary="List workflow versions",
)
async def list_versions(ops: Ops) -> dict[str, Any]:
    """List each version that is served or has unfinished runs."""
    found = [{**v._asdict(), "served_by": list(v.served_by), "since": instant(v.since)} for v in await versions(ops)]
    return {"versions": found}


pauses = APIRouter(prefix="/v1", tags=["pauses"], route_class=SecuredRoute)


@pauses.get("/pauses", operation_id="list_pauses", response_model=PauseList, summary="List pauses")
async def list_pauses(ops: Ops) -> dict[str, Any]:
    """List active pauses and open circuit breakers, with the number of runs that wait for each."""
    waiting, business = await ops.rows.held_up(), ops.store.mapping().business
    return {"pauses": [pause_view(each, waiting.get(each.key, 0), business) for each in await ops.rows.pauses()]}


@pauses.post("/pauses", operation_id="pause", response_model=PauseCreated, status_code=201, summary="Pause")
async def pause(ops: Ops, ask: CreatePause, key: IdempotencyKey = None) -> dict[str, Any]:
    """Pause new calls. Workers comply within one heartbeat; calls in progress finish, and runs wait visibly (S-23)."""
    await ops.pause(ask.what, ask.name, reason=ask.reason)
    return {"paused": f"{ask.what} {ask.name}".strip(), "by": ops.actor.name, "reason": ask.reason}


@pauses.post("/pauses/resume", operation_id="resume", response_model=PauseEnded, summary="Resume")
async def resume(ops: Ops, ask: EndPause, key: IdempotencyKey = None) -> dict[str, Any]:
    """Remove a pause or close a circuit breaker. Every run that waited for it becomes due."""
    woken = await ops.resume(ask.what, ask.name)
    return {"resumed": f"{ask.what} {ask.name}".strip(), "by": ops.actor.name, "runs": woken}
