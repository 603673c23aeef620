"""Pages of effects over all runs, and the answer of a person to an uncertain one."""

import json
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal
from urllib.parse import unquote

from fastapi import APIRouter, Query
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response

from outlast.core.machine import Choice, EffectStatus, Reason, consequence_of
from outlast.core.value_problems import problems_of
from outlast.errors import InvalidInput, OutlastError
from outlast.models.effects import EffectRecord
from outlast.operations.bodies import body_of
from outlast.operations.effect_operations import RESOLVE_EFFECT, ResolveEffect
from outlast.runtime.operations import Operations
from outlast.service.problems import ProblemError, status_of
from outlast.service.request_parts import EffectId, parse_effect_id
from outlast.service.routes.operator_routes import settle
from outlast.service.service_state import Ops, Pages
from outlast.ui.page_route import PageRoute, form_of, see_other
from outlast.ui.rendering import document, render, stamp
from outlast.ui.run_words import effect_kind, folded

router = APIRouter(prefix="/ui", route_class=PageRoute)
KEPT: Final = ("outcome", "external_id", "reason", "response")
OUTCOMES: Final = tuple(choice.value for choice in (Choice.HAPPENED, Choice.DID_NOT_HAPPEN, Choice.GIVE_UP))


@router.get("/effects", operation_id="ui:list_ledger")
async def list_effects(
    ops: Ops,
    pages: Pages,
    request: Request,
    status: EffectStatus | None = None,
    every: bool = False,
    activity: Annotated[str, Query(max_length=100)] = "",
    run: Annotated[str, Query(max_length=100)] = "",
) -> Response:
    """Show the effects of all runs, newest first; uncertain ones unless another status or `every` is asked for."""
    wanted = status if status is not None or every else EffectStatus.UNCERTAIN
    found = await pages.sealed(
        await ops.ledger(status=wanted, activity=activity, run=run, cursor=pages.after, limit=pages.limit)
    )
    version = stamp([(each.id, each.version) for each in found.effects])
    return await render(
        request,
        "effects.html",
        title="Effects",
        live="attention",
        versions={"effects": version},
        found=found,
        wanted=wanted,
        every=every,
        activity=activity,
        run=run,
        statuses=list(EffectStatus),
        effect_kind=effect_kind,
    )


@router.get("/effects/{effect}", operation_id="ui:list_effects")
async def get_effect(ops: Ops, request: Request, effect: EffectId) -> Response:
    """Show one effect: the call, its outcome, late answers, and the answer that it needs."""
    return await _page(ops, request, effect)


@router.get("/effects/{effect}/{part}", operation_id="ui:list_effects")
async def get_part(ops: Ops, effect: EffectId, part: Literal["request", "answer"]) -> Response:
    """Return the arguments of the call, or its answer, whole as JSON."""
    run, visit, key = parse_effect_id(effect)
    found = await ops.effect(run, key, visit=visit)
    return document(found.arguments if part == "request" else found.response)


@router.post("/effects/{effect}/resolve", operation_id="ui:resolve_effect")
async def resolve_effect(ops: Ops, request: Request, effect: EffectId) -> Response:
    """Record the answer of a person. A refused answer shows the page again, with the typed text."""
    form = form_of(request)
    typed = {name: form.text(name) for name in KEPT}
    try:
        await settle_typed(ops, effect, typed, form.version(), correct=form.text("correct") == "yes")
    except (OutlastError, ProblemError) as error:
        refused = error.error if isinstance(error, ProblemError) else error
        if status_of(refused) >= 500:
            raise
        return await _page(ops, request, effect, typed=typed, error=refused)
    settled = typed["outcome"].replace("_", " ")
    return see_other(request, f"/ui/effects/{effect}", f"Recorded with your name: {settled}. The run goes on.")


async def settle_typed(
    ops: Operations, effect: str, typed: Mapping[str, str], version: int, *, correct: bool = False
) -> None:
    """Settle an effect by the fields KEPT as they were typed, or `correct` an answer. Raises as `settle`."""
    try:
        given = {**typed, "response": _response(typed["response"]), "correct": correct}
        ask = body_of(RESOLVE_EFFECT).model_validate(given).model_dump()
    except ValidationError as error:
        raise InvalidInput("the answer is not complete", problems=problems_of(error)) from None
    run, visit, key = parse_effect_id(effect)
    await settle(ops, ResolveEffect(run, key, ask.pop("outcome"), **ask, version=version, visit=visit))


def _response(text: str) -> Any:
    """Return the answer of the receiver as JSON; a text needs no quotes, and nothing is no answer."""
    try:
        return json.loads(text) if text else None
    except (ValueError, RecursionError):
        return text


async def _page(
    ops: Operations,
    request: Request,
    effect: str,
    *,
    typed: dict[str, str] | None = None,
    error: OutlastError | None = None,
) -> Response:
    run, visit, key = parse_effect_id(effect)
    found: EffectRecord = await ops.effect(run, key, visit=visit)
    attention = [each for each in await ops.attention_of(run) if each.key == key] if found.run == run else []
    choices = {choice.choice: choice for each in attention for choice in each.choices if choice.choice in OUTCOMES}
    uncertain = found.status == EffectStatus.UNCERTAIN
    follows = {each: consequence_of(Choice(each), Reason.EFFECT_UNCERTAIN, call=found.effect) for each in OUTCOMES}
    left = [] if uncertain else (await ops.ledger(status=EffectStatus.UNCERTAIN, limit=1)).effects
    return await render(
        request,
        "effect.html",
        title=f"{found.effect} {unquote(found.key)}",
        live=f"run:{run}",
        versions={"effect": stamp(found.version, len(found.evidence))},
        found=found,
        choices=choices,
        uncertain=uncertain,
        following=next(iter(left), None),
        follows=follows,
        typed=typed or dict.fromkeys(KEPT, ""),
        error=error,
        effect_kind=effect_kind,
        folded=folded,
        given=folded(found.arguments),
        response=folded(found.response),
        status_code=200 if error is None else status_of(error),
    )
