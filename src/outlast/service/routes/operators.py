"""Routes for operators: attention, effects, workers, versions, pauses."""

from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from outlast.core.machine import Choice, EffectStatus, Reason
from outlast.core.rows import Effect
from outlast.core.run_columns import attention_of
from outlast.engine.commands import check_seen
from outlast.errors import Conflict, InvalidInput, NotFound
from outlast.runtime.attention import PAGE
from outlast.runtime.attention_answers import breaker_item, entry_of, entry_view
from outlast.runtime.operations import Operations
from outlast.runtime.versions import versions
from outlast.runtime.views import effect_view, instant, pause_view, worker_view
from outlast.service import admin_responses, responses
from outlast.service.conditional import IfMatch, On, etag, named, stale
from outlast.service.problems import ProblemResponse
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
from outlast.service.service_state import In, Ops, Pages

router = APIRouter(prefix="/v1", tags=["operators"], route_class=SecuredRoute)


@router.get(
    "/attention", operation_id="list_attention", response_model=responses.AttentionList, summary="What needs a person"
)
async def list_attention(
    state: In,
    ops: Ops,
    request: Request,
    response: Response,
    reason: Annotated[Reason | None, Query(description="Only this reason.")] = None,
    workflow: Annotated[str, Query(max_length=100, description="Only runs of this workflow.")] = "",
    cursor: Cursor = "",
    limit: Annotated[int, Query(ge=1, le=1_000, description="Runs that are looked at.")] = PAGE,
) -> dict[str, Any]:
    """Every reason of one page of runs, with its choices, and what happens if it is ignored."""
    place = await state.cursors.open(request, ops.tenant, cursor)
    rows, further = await ops.flagged(reason=reason, workflow=workflow, cursor=place, limit=limit)
    doubts, now = await ops.doubts(rows), await ops.store.now()
    items = [
        entry_view(row, entry, doubts.get((row.run, entry.visit, entry.key)), now)
        for row in rows
        for entry in attention_of(row)
        if reason in (None, entry.reason)
    ]
    away = [breaker_item(hold, n) for hold, n in await ops.breakers()] if reason is None and not cursor else []
    if reason in (None, Reason.WEBHOOK_DEAD) and not cursor:
        away += await ops.webhooks.attention()
    return {
        "attention": [*away, *items],
        "next_cursor": await state.cursors.further(request, response, ops.tenant, further),
    }


@router.post(
    "/attention/{run}/resolve",
    operation_id="resolve_attention",
    response_model=responses.RequestRecorded,
    summary="Answer attention",
)
async def resolve_attention(on: On, ask: ResolveAttention) -> dict[str, Any]:
    """One choice of those that the reason offers. What «happened» is said of the effect: POST /effects/{id}/resolve."""
    if ask.by is not None and ask.choice is not Choice.EXTEND:
        raise InvalidInput(f"`by` belongs to the choice {Choice.EXTEND.value}", "", "leave it out")

    async def answer(seen: int) -> None:
        await check_seen(on.ops.store, on.ops.shown(on.run, seen))
        row = await on.ops.run(on.run)
        entry = entry_of(row, ask.choice, ask.attention, ask.key)
        await on.ops.answer_entry(row, entry, ask.choice, text=ask.reason, by=ask.by, version=seen)

    return await on.ask(answer)


@router.get("/effects", operation_id="list_ledger", response_model=responses.EffectList, summary="Calls of all runs")
async def list_ledger(
    ops: Ops,
    pages: Pages,
    status: Annotated[EffectStatus | None, Query(description="Only these; `uncertain` waits for a person.")] = None,
    activity: Annotated[str, Query(max_length=100, description="Only calls of this activity.")] = "",
    run: Annotated[str, Query(max_length=100, description="Only calls of this run.")] = "",
    since: Since = None,
) -> dict[str, Any]:
    """What was done to the world, by whatever run, newest first, and what became of each call."""
    rows, further = await ops.ledger(
        status=status, activity=activity, run=run, since=since, cursor=pages.place, limit=pages.limit
    )
    now, held = await ops.store.now(), await ops.held_runs(rows)
    return await pages.page("effects", [with_id(effect_view(row, now, held=held)) for row in rows], further)


@router.post(
    "/effects/{effect}/resolve",
    operation_id="resolve_effect",
    response_model=responses.EffectRecord,
    summary="Settle a doubt",
)
async def resolve_effect(
    ops: Ops,
    effect: EffectId,
    ask: ResolveEffect,
    response: Response,
    if_match: IfMatch = None,
    key: IdempotencyKey = None,
) -> dict[str, Any]:
    """It happened (with the receiver's id), it did not, or it is given up; once."""
    run, visit, name = parse_effect_id(effect)
    before = await _effect(ops, run, visit, name)
    version = named(if_match, what=f"effect {name}")
    if version not in (0, before.version):
        raise await _stale(ops, before)
    latest = (await ops.effect(run, name)).effect
    if latest.visit != visit:
        raise Conflict(
            f"effect {name} of visit {visit} is not the one in doubt", f"that is visit {latest.visit}'s", "list them"
        )
    if ask.outcome == "happened" and not ask.external_id:
        raise InvalidInput("what happened has an id at the receiver", "it is recorded", "give external_id")
    if ask.outcome != "happened" and (ask.external_id or ask.response is not None):
        raise InvalidInput("external_id and response belong to what happened", "", "leave them out")
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


async def _stale(ops: Operations, now: Effect) -> ProblemResponse:
    """The effect has changed since it was seen: so it stands now."""
    view = with_id(effect_view(now, await ops.store.now()))
    return ProblemResponse(
        stale(f"effect {now.key}", now.version), more={"current": view}, headers={"ETag": etag(now.version)}
    )


async def _effect(ops: Operations, run: str, visit: int, key: str) -> Effect:
    """Raises NotFound."""
    doubt = await ops.effect(run, key, visit=visit)
    if not isinstance(doubt.effect, Effect):
        raise NotFound(f"run {run} has no effect {key}")
    return doubt.effect


@router.get("/workers", operation_id="list_workers", response_model=admin_responses.WorkerList, summary="Who serves")
async def list_workers(
    ops: Ops, everybody: Annotated[bool, Query(alias="all", description="Those that have gone, too.")] = False
) -> dict[str, Any]:
    """Each worker, of all tenants: lanes, lease, loop, free places."""
    now = await ops.store.now()
    views = [worker_view(w, now, await ops.held(w.id)) for w in await ops.workers()]
    return {"workers": [v for v in views if everybody or v["lease_left_ms"]]}


@router.get(
    "/versions",
    operation_id="list_versions",
    response_model=admin_responses.VersionList,
    summary="Versions of workflows",
)
async def list_versions(ops: Ops) -> dict[str, Any]:
    """Each version that is served or has unfinished runs."""
    found = [{**v._asdict(), "served_by": list(v.served_by), "since": instant(v.since)} for v in await versions(ops)]
    return {"versions": found}


pauses = APIRouter(prefix="/v1", tags=["pauses"], route_class=SecuredRoute)


@pauses.get("/pauses", operation_id="list_pauses", response_model=admin_responses.PauseList, summary="What is held")
async def list_pauses(ops: Ops) -> dict[str, Any]:
    """Holds and circuit breakers that are up, and how many runs wait for each."""
    waiting, business = await ops.held_up(), ops.store.mapping().business
    return {"pauses": [pause_view(each, waiting.get(each.key, 0), business) for each in await ops.pauses()]}


@pauses.post(
    "/pauses", operation_id="pause", response_model=admin_responses.PauseCreated, status_code=201, summary="Hold"
)
async def hold(ops: Ops, ask: CreatePause, key: IdempotencyKey = None) -> dict[str, Any]:
    """Workers know it within one heartbeat. Calls under way end; runs that meet the hold wait for it, and say so."""
    await ops.pause(ask.what, ask.name, reason=ask.reason)
    return {"paused": f"{ask.what} {ask.name}".strip(), "by": ops.actor.name, "reason": ask.reason}


@pauses.post("/pauses/resume", operation_id="resume", response_model=admin_responses.PauseEnded, summary="Release")
async def release(ops: Ops, ask: EndPause, key: IdempotencyKey = None) -> dict[str, Any]:
    """Resume after a pause or an open circuit breaker, and make due every run that waited for it."""
    woken = await ops.resume(ask.what, ask.name)
    return {"resumed": f"{ask.what} {ask.name}".strip(), "by": ops.actor.name, "runs": woken}
