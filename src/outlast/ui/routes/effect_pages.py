"""Pages of effects over all runs, and the answer of a person to an uncertain one."""

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Annotated, Any, Final, Literal, NamedTuple
from urllib.parse import unquote

from fastapi import APIRouter, Query
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response

from outlast.core.durations import measured_span
from outlast.core.json_schema import WHOLE
from outlast.core.machine import Choice, EffectStatus, Reason, consequence_of
from outlast.core.mailbox import stated
from outlast.core.rows.run_rows import Message, is_over
from outlast.core.shown_arguments import in_one_line, main_arguments
from outlast.core.value_problems import problems_of
from outlast.errors import InvalidInput, OutlastError
from outlast.insight.labels import choice_text
from outlast.models import exact_instant, milliseconds
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
    unknown: bool = False,
    activity: Annotated[str, Query(max_length=100)] = "",
    run: Annotated[str, Query(max_length=100)] = "",
) -> Response:
    """Show the effects of all runs, newest first; uncertain ones unless another status or `every` is asked for.

    `unknown`: those that a person gave up, in place of a status.
    """
    wanted = status if status is not None or every else EffectStatus.UNCERTAIN
    wanted = None if unknown else wanted
    found = await pages.sealed(
        await ops.ledger(
            status=wanted, unknown=unknown, activity=activity, run=run, cursor=pages.after, limit=pages.limit
        )
    )
    version = stamp([(each.id, each.version) for each in found.effects])
    return await render(
        request,
        "effects.html",
        title=f"{'unknown' if unknown else wanted.value if wanted else ''} effects".strip().capitalize(),
        main_line=main_line,
        live="attention",
        versions={"effects": version},
        found=found,
        wanted=wanted,
        unknown=unknown,
        every=every,
        activity=activity,
        run=run,
        statuses=list(EffectStatus),
        effect_kind=effect_kind,
    )


def main_line(effect: EffectRecord) -> str:
    """Return the main arguments of a call on one line."""
    return in_one_line(main_arguments(effect.arguments, ())) if isinstance(effect.arguments, dict) else ""


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
    settled, (run, visit, key) = choice_text(typed["outcome"]), parse_effect_id(effect)
    found = await ops.effect(run, key, visit=visit)
    follows = consequence_of(Choice(typed["outcome"]), Reason.EFFECT_UNCERTAIN, call=found.effect)
    return see_other(request, f"/ui/effects/{effect}", f"Recorded with your name: {settled}: {follows}.")


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


class StatedBefore(NamedTuple):
    """Answer of a person about an effect, as its page shows it."""

    at: datetime
    by: str
    what: str
    reason: str
    verb: str
    version: int


def answers_about(messages: Iterable[Message], key: str, visit: int) -> list[StatedBefore]:
    """Return the answers of people about an effect, oldest first."""
    return [
        StatedBefore(
            exact_instant(message.at),
            message.actor,
            choice_text(given.verb) + (f" ({given.external_id})" if given.external_id else ""),
            given.reason,
            given.verb,
            given.version,
        )
        for message, given in stated(messages)
        if (given.key, given.visit) == (key, visit)
    ]


def since_then(found: EffectRecord, last: StatedBefore, asked_again: datetime | None, over: str) -> str:
    """Return what has become of the last answer of a person, by the row as it is now."""
    if over:
        return f"The run has ended: {over}. The answer cannot be changed."
    if found.version == last.version + 1:
        if found.reopened:
            return f"{found.effect} is called again when a worker takes the run up."
        return "Nothing has used the answer yet." if found.correctable else "The run has used the answer."
    if last.verb != Choice.DID_NOT_HAPPEN:
        return "The run has used the answer."
    at = asked_again if found.status == EffectStatus.UNCERTAIN else found.settled_at
    later = f" {measured_span(milliseconds(at) - milliseconds(last.at))} later" if at and at >= last.at else ""
    again = "uncertain again" if found.status == EffectStatus.UNCERTAIN else found.outcome
    return f"{found.effect} was called again{later}: {again}."


def _problem(error: InvalidInput) -> str:
    """Return what is wrong with the typed answer; the path of the whole is left out."""
    return " ".join(f"{'' if path == WHOLE else f'{path}: '}{text}." for path, text in error.problems)


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
    acts = await ops.acts(run)
    attention = [each for each in acts.overview.attention if each.key == key]
    choices = {choice.choice: choice for each in attention for choice in each.choices if choice.choice in OUTCOMES}
    uncertain = found.status == EffectStatus.UNCERTAIN
    follows = {each: consequence_of(Choice(each), Reason.EFFECT_UNCERTAIN, call=found.effect) for each in OUTCOMES}
    answers = answers_about(acts.messages, key, visit)
    asked_again = max((each.since for each in attention), default=None)
    left = (await ops.ledger(status=EffectStatus.UNCERTAIN, limit=2)).effects if answers or not uncertain else []
    over = acts.overview.row.status.value if is_over(acts.overview.row) else ""
    # A missing or wrong answer is said at its field: the words of the service name the option of the command.
    problem = ""
    if isinstance(error, InvalidInput) and error.problems and found.takes_response:
        problem = "The answer is required if it happened." if not (typed or {}).get("response") else _problem(error)
    return await render(
        request,
        "effect.html",
        title=f"{found.effect} {unquote(found.key)}",
        live=f"run:{run}",
        versions={
            "effect": stamp(
                found.version,
                len(found.evidence),
                bool(found.settles_in_ms),
                found.correctable,
                over,
                len(answers),
                [each.id for each in left],
                [each.version for each in attention],
            )
        },
        answers=answers,
        since_then=since_then(found, answers[-1], asked_again, over) if answers else "",
        over=over,
        problem=problem,
        found=found,
        choices=choices,
        uncertain=uncertain,
        following=next(iter(left[1:] if left and left[0].id == found.id else left), None),
        follows=follows,
        typed=typed or dict.fromkeys(KEPT, ""),
        error=error,
        effect_kind=effect_kind,
        folded=folded,
        given=folded(found.arguments),
        response=folded(found.response),
        status_code=200 if error is None else status_of(error),
    )
