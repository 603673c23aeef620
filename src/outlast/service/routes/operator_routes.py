"""Routes for operators: attention, effects, workers, versions, budgets, pauses."""

from datetime import timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query
from starlette.requests import Request
from starlette.responses import Response

from outlast.core.limits import PERSON_CHARS_MAX, RUNS_PER_READ
from outlast.core.machine import Choice, EffectStatus, Reason
from outlast.core.usage import Budget
from outlast.errors import Conflict, InvalidInput
from outlast.insight.shown_rows import after_commit
from outlast.models.attention import AnswerList, AttentionList, RunAttention
from outlast.models.effects import EffectList, EffectRecord
from outlast.models.runs import RequestRecorded
from outlast.models.service import (
    BudgetList,
    PauseCreated,
    PauseEnded,
    PauseList,
    SlotLimit,
    StatusSummary,
    VersionList,
    WorkerList,
    WorkerStatus,
)
from outlast.runtime.operations import Operations
from outlast.service.conditional import IfMatch, OnRun, etag, expected_version, stale
from outlast.service.request_parts import (
    AssignAttentionBody,
    CreatePause,
    Cursor,
    DrainWorkerBody,
    EffectId,
    EndPause,
    IdempotencyKey,
    ResolveAttentionBody,
    ResolveEffectBody,
    ResolveMany,
    SetBudgetBody,
    SetSlotsBody,
    Since,
    WorkerId,
    parse_effect_id,
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
    assigned_to: Annotated[
        str,
        Query(
            max_length=PERSON_CHARS_MAX,
            description="Only reasons of runs that this person takes care of. `me`: the caller. `none`: not assigned.",
        ),
    ] = "",
    cursor: Cursor = "",
    limit: Annotated[int, Query(ge=1, le=1_000, description="Maximum number of runs on a page.")] = RUNS_PER_READ,
) -> AttentionList:
    """List the reasons why runs require attention, with the choices and the consequence of ignoring them."""
    place = await state.cursors.open(request, ops.tenant, cursor)
    found = await ops.attention(reason=reason, workflow=workflow, assigned_to=assigned_to, cursor=place, limit=limit)
    sealed = await state.cursors.seal(request, response, ops.tenant, found.next_cursor)
    return found.model_copy(update={"next_cursor": sealed})


@router.post(
    "/attention/{run}/resolve",
    operation_id="resolve_attention",
    response_model=RequestRecorded,
    summary="Answer attention",
)
async def resolve_attention(on: OnRun, ask: ResolveAttentionBody) -> RequestRecorded:
    """Answer with one of the offered choices. To settle an uncertain effect, use POST /effects/{id}/resolve."""
    _check_extension(ask.choice, ask.by)
    return await on.apply(
        lambda seen: on.ops.answer(
            on.run, ask.choice, reason=ask.attention, key=ask.key, text=ask.reason, by=ask.by, version=seen
        )
    )


@router.post(
    "/attention/resolve",
    operation_id="resolve_attention_of_many",
    response_model=AnswerList,
    summary="Answer attention of many runs",
)
async def resolve_attention_of_many(ops: Ops, ask: ResolveMany, key: IdempotencyKey = None) -> AnswerList:
    """Give up to 100 runs the same answer to one reason. Each has its own outcome; a refused one stops no other."""
    _check_extension(ask.choice, ask.by)
    return await ops.answer_many(ask.runs, ask.attention, ask.choice, text=ask.reason, by=ask.by)


@router.post(
    "/attention/assign", operation_id="assign_attention", response_model=RunAttention, summary="Assign attention"
)
async def assign_attention(ops: Ops, ask: AssignAttentionBody, key: IdempotencyKey = None) -> RunAttention:
    """Assign one reason why a run requires attention to a person, or remove its assignment.

    It gives no right to answer and takes none. It ends when the reason does. The same person twice changes nothing.
    """
    return await ops.assign(ask.run, ask.to, reason=ask.attention, key=ask.key, note=ask.note)


def _check_extension(choice: Choice, by: timedelta | None) -> None:
    if by is not None and choice is not Choice.EXTEND:
        raise InvalidInput(f"`by` requires the choice {Choice.EXTEND.value}", "", "leave `by` out")


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
) -> EffectList:
    """List the effects of all runs, newest first, with the outcome of each call."""
    return await pages.sealed(
        await ops.ledger(status=status, activity=activity, run=run, since=since, cursor=pages.after, limit=pages.limit)
    )


@router.post(
    "/effects/{effect}/resolve",
    operation_id="resolve_effect",
    response_model=EffectRecord,
    summary="Settle an uncertain effect",
)
async def resolve_effect(
    ops: Ops,
    effect: EffectId,
    ask: ResolveEffectBody,
    response: Response,
    if_match: IfMatch = None,
    key: IdempotencyKey = None,
) -> EffectRecord:
    """Record that it happened (with its id at the receiver), that it did not, or give it up.

    An answer can be corrected until the run uses it.
    """
    after = await settle(ops, effect, ask, expected_version(if_match, what="the effect"))
    response.headers["ETag"] = etag(after.version)
    return after


async def settle(ops: Operations, effect: str, ask: ResolveEffectBody, version: int) -> EffectRecord:
    """Settle an uncertain effect at this version (0: any), and return it.

    Raises ProblemError with the current effect if the version is older, Conflict, InvalidInput, NotFound.
    """
    run, visit, name = parse_effect_id(effect)
    if ask.outcome == "happened" and not ask.external_id:
        raise InvalidInput(
            "the outcome `happened` requires external_id", "the id at the receiver is recorded", "give external_id"
        )
    if ask.outcome != "happened" and (ask.external_id or ask.response is not None):
        raise InvalidInput("external_id and response require the outcome `happened`", "", "leave them out")
    try:
        await ops.resolve_effect(
            run, name, ask.outcome, reason=ask.reason, external_id=ask.external_id, response=ask.response,
            version=version, visit=visit, correct=ask.correct,
        )  # fmt: skip
    except Conflict as error:
        if error.refusal != "moved":
            raise
        raise stale(f"effect {name}", await ops.effect(run, name, visit=visit)) from None
    return await after_commit(ops.effect(run, name, visit=visit))


@router.get(
    "/summary",
    operation_id="get_summary",
    response_model=StatusSummary,
    summary="Counts for a header",
    responses={304: {"description": "Nothing has changed since the ETag in `If-None-Match`."}},
)
async def get_summary(
    ops: Ops,
    response: Response,
    if_none_match: Annotated[
        str | None, Header(alias="If-None-Match", max_length=200, description="The ETag of the last answer.")
    ] = None,
) -> Any:
    """Count the items that need a person, and all that cannot continue.

    With `If-None-Match`, 304 if nothing has changed. A count that `at_least` names is a lower bound.
    """
    found = await ops.summary()
    tag = f'"{found.version}"'
    if if_none_match is not None and tag in (each.strip().removeprefix("W/") for each in if_none_match.split(",")):
        return Response(status_code=304, headers={"ETag": tag})
    response.headers["ETag"] = tag
    return found


@router.get("/workers", operation_id="list_workers", response_model=WorkerList, summary="List workers")
async def list_workers(
    ops: Ops, everybody: Annotated[bool, Query(alias="all", description="Include workers that have gone.")] = False
) -> WorkerList:
    """List the workers, which serve all tenants: lanes, lease, event loop delay, free capacity."""
    return WorkerList(workers=[each for each in await ops.workers() if everybody or each.lease_left_ms])


@router.post(
    "/workers/{worker}/drain", operation_id="drain_worker", response_model=WorkerStatus, summary="Drain a worker"
)
async def drain_worker(ops: Ops, worker: WorkerId, ask: DrainWorkerBody, key: IdempotencyKey = None) -> WorkerStatus:
    """Ask a worker to take no more runs and to stop. It reads the request at its next heartbeat.

    Its runs reach a boundary or are given back, as if its process were asked to end. Asking twice changes nothing.
    """
    return await ops.drain_worker(worker, reason=ask.reason)


@router.get(
    "/versions",
    operation_id="list_versions",
    response_model=VersionList,
    summary="List workflow versions",
)
async def list_versions(ops: Ops) -> VersionList:
    """List each version that is served or has unfinished runs."""
    return VersionList(versions=list(await ops.versions()))


@router.get("/budgets", operation_id="list_budgets", response_model=BudgetList, summary="List budgets")
async def list_budgets(ops: Ops) -> BudgetList:
    """List the tenant's daily budget with its usage today."""
    return BudgetList(budgets=list(await ops.budgets()))


@router.post("/budgets", operation_id="set_budget", response_model=BudgetList, summary="Set the daily budget")
async def set_budget(ops: Ops, ask: SetBudgetBody, key: IdempotencyKey = None) -> BudgetList:
    """Set or remove the tenant's daily budget. Workers comply within one heartbeat; runs that wait look again."""
    given = (ask.tokens, ask.money, ask.calls, ask.minutes)
    await ops.set_budget(None if given == (None,) * len(given) else Budget(*given), reason=ask.reason)
    return BudgetList(budgets=list(await after_commit(ops.budgets())))


@router.post("/slots", operation_id="set_slots", response_model=SlotLimit, summary="Raise the maximum of admitted runs")
async def set_slots(ops: Ops, ask: SetSlotsBody, key: IdempotencyKey = None) -> SlotLimit:
    """Raise the maximum of admitted runs of the caller's tenant, or of all tenants. Runs that are queued start."""
    return await ops.set_slots(ask.slots, everywhere=ask.everywhere)


pauses = APIRouter(prefix="/v1", tags=["pauses"], route_class=SecuredRoute)


@pauses.get("/pauses", operation_id="list_pauses", response_model=PauseList, summary="List pauses")
async def list_pauses(ops: Ops) -> PauseList:
    """List active pauses and open circuit breakers, with the number of runs that wait for each."""
    return PauseList(pauses=list(await ops.pauses()))


@pauses.post("/pauses", operation_id="pause", response_model=PauseCreated, status_code=201, summary="Pause")
async def pause(ops: Ops, ask: CreatePause, key: IdempotencyKey = None) -> PauseCreated:
    """Pause new calls. Workers comply within one heartbeat; calls in progress finish, and runs wait visibly (S-23)."""
    return await ops.pause(ask.what, ask.name, reason=ask.reason)


@pauses.post("/pauses/resume", operation_id="resume", response_model=PauseEnded, summary="Resume")
async def resume(ops: Ops, ask: EndPause, key: IdempotencyKey = None) -> PauseEnded:
    """Remove a pause or close a circuit breaker. Every run that waited for it becomes due."""
    return await ops.resume(ask.what, ask.name)
