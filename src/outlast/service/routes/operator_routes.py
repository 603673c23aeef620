"""Routes for operators: attention, effects, workers, versions, budgets, pauses."""

from typing import Annotated, Any

from fastapi import Header
from starlette.responses import Response

from outlast.core.machine import Choice
from outlast.errors import Conflict, InvalidInput
from outlast.insight.shown_rows import after_commit
from outlast.models.attention import AnswerList
from outlast.models.effects import EffectRecord
from outlast.models.runs import RequestRecorded
from outlast.models.service import BudgetList, StatusSummary
from outlast.operations.attention_operations import (
    RESOLVE_ATTENTION,
    RESOLVE_ATTENTION_OF_MANY,
    ResolveAttention,
    ResolveAttentionOfMany,
)
from outlast.operations.effect_operations import RESOLVE_EFFECT, ResolveEffect
from outlast.operations.service_operations import (
    GET_SUMMARY,
    SET_BUDGET,
    SetBudget,
)
from outlast.runtime.operations import Operations
from outlast.service.conditional import etag, stale
from outlast.service.declared_routes import DeclaredRouter, ServedCall
from outlast.service.service_state import Ops

router = DeclaredRouter()


@router.answers(RESOLVE_ATTENTION)
async def resolve_attention(call: ServedCall[ResolveAttention]) -> RequestRecorded:
    """Answer with one of the offered choices. To settle an uncertain effect, use POST /effects/{id}/resolve."""
    _check_extension(call.asked)
    recorded: RequestRecorded = await call.whole()
    return recorded


@router.answers(RESOLVE_ATTENTION_OF_MANY)
async def resolve_attention_of_many(call: ServedCall[ResolveAttentionOfMany]) -> AnswerList:
    """Give up to 100 runs the same answer to one reason. Each has its own outcome; a refused one stops no other."""
    _check_extension(call.asked)
    return await call.ops.perform(call.asked)


def _check_extension(asked: ResolveAttention | ResolveAttentionOfMany) -> None:
    if asked.by is not None and asked.choice is not Choice.EXTEND:
        raise InvalidInput(f"`by` requires the choice {Choice.EXTEND.value}", "", "leave `by` out")


@router.answers(RESOLVE_EFFECT)
async def resolve_effect(call: ServedCall[ResolveEffect]) -> EffectRecord:
    """Record that it happened (with its id at the receiver), that it did not, or give it up.

    An answer can be corrected until the run uses it.
    """
    after = await settle(call.ops, call.asked)
    call.response.headers["ETag"] = etag(after.version)
    return after


async def settle(ops: Operations, asked: ResolveEffect) -> EffectRecord:
    """Settle an uncertain effect at a version (0: any), and return it.

    Raises ProblemError with the current effect if the version is older, Conflict, InvalidInput, NotFound.
    """
    if asked.answer == "happened" and not asked.external_id:
        raise InvalidInput(
            "the outcome `happened` requires external_id", "the id at the receiver is recorded", "give external_id"
        )
    if asked.answer != "happened" and (asked.external_id or asked.response is not None):
        raise InvalidInput("external_id and response require the outcome `happened`", "", "leave them out")
    try:
        await ops.perform(asked)
    except Conflict as error:
        if error.refusal != "moved":
            raise
        now = await ops.effect(asked.run, asked.key, visit=asked.visit)
        raise stale(f"effect {asked.key}", now) from None
    return await after_commit(ops.effect(asked.run, asked.key, visit=asked.visit))


@router.get(
    "/summary",
    operation_id="get_summary",
    response_model=StatusSummary,
    summary=GET_SUMMARY.summary,
    tags=[GET_SUMMARY.tag],
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


@router.answers(SET_BUDGET)
async def set_budget(call: ServedCall[SetBudget]) -> BudgetList:
    """Set or remove the tenant's daily budget. Workers comply within one heartbeat; runs that wait look again."""
    await call.ops.perform(call.asked)
    return BudgetList(budgets=list(await after_commit(call.ops.budgets())))
