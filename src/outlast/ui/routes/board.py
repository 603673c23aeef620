"""The board: everything that needs a person, and the answers to it, in place."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple, cast, get_args

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from outlast.core.approver_rule import identity
from outlast.core.assignments import ME, Assignments
from outlast.core.limits import NAME
from outlast.core.machine import CHOICES, Choice, Reason, consequence_of
from outlast.core.rows.run_columns import What
from outlast.errors import Conflict, InvalidInput, LimitExceeded
from outlast.insight.attention_reads import choice_commands_for_all
from outlast.models.approvals import ApprovalSummary
from outlast.models.attention import AnswerFor, AnswerList, AttentionList, RunAttention
from outlast.models.service import ReasonCount, StatusSummary
from outlast.operations.attention_operations import ListAttention
from outlast.runtime.operations import Operations
from outlast.service.problems import status_of
from outlast.service.request_parts import RunId
from outlast.service.service_state import Ops, PageRequest, Pages, State
from outlast.ui.page_route import PageRoute, form_of, see_other, whole_number
from outlast.ui.rendering import render, stamp
from outlast.ui.routes.bulk_pages import offered
from outlast.ui.routes.cause_pages import answers_for, sparkline
from outlast.ui.routes.run_actions import MORE_TIME, answer_one, answered, member, typed_answer
from outlast.ui.routes.run_pages import overview

router = APIRouter(prefix="/ui", route_class=PageRoute)
DAY: Final = timedelta(days=1)
OF_ONE_REASON: Final = 10
"""Items of a reason that the board shows at most; the others are behind a link."""
ITEMS: Final = 8
"""Items of all reasons that the board shows, because of its size, but LEAST of each."""
LEAST: Final = 3
CAUSES: Final = 10
"""Causes that the board shows, because of its size: those with an uncertain effect first, then the most frequent."""
DEADLINES_MAX: Final = 100
"""Pending approvals that the board reads, the earliest deadline first."""
NEXT: Final = 3
"""Approvals that the board shows if none is due within a day."""
AT_MOST: Final = 75
"""Runs that one answer is for: as many as a page of 60 KB lists."""
FEW: Final = 20
"""Items of a list that have a form to assign them; in a longer one the page of the run has it, because of its size."""


class Deadlines(NamedTuple):
    """Pending approvals by their deadline. `later`: the next ones, if no other is due within a day."""

    overdue: list[ApprovalSummary]
    today: list[ApprovalSummary]
    later: list[ApprovalSummary]


class ReasonGroup(NamedTuple):
    """One reason with its nearest consequence and its first items.

    `more`: further items are behind a link. `for_all`: one answer for all is offered. `shown`: it has runs; breakers
    and webhooks have their own part of the board.
    """

    reason: str
    counted: ReasonCount
    if_ignored: str
    until: Any
    items: list[RunAttention]
    follows: dict[str, str]
    more: bool
    for_all: bool
    shown: bool


@router.get("/", operation_id="ui:list_attention")
async def show_board(ops: Ops, request: Request) -> Response:
    """Show the items that need a person, nearest consequence first."""
    return await _board(ops, request)


async def _board(ops: Operations, request: Request, *, status_code: int = 200, **refused: Any) -> Response:
    summary = await ops.summary()
    pending, groups, listed = await asyncio.gather(
        ops.approvals(sort="deadline", limit=DEADLINES_MAX), groups_of(ops, summary), ops.causes()
    )
    groups.sort(key=lambda each: each.reason != Reason.EFFECT_UNCERTAIN)
    causes = listed.causes[:CAUSES]
    due = by_deadline(pending.approvals, summary.now)
    seen = [
        (each.run, each.reason, each.version, each.assigned_to, each.assigned_at, each.assigned_note)
        for group in groups
        for each in group.items
    ]
    alike = [(each.cause, each.runs, each.last) for each in causes]
    version = stamp(summary.version, seen, alike, [[each.approval for each in some] for some in due])
    return await render(
        request,
        "board.html",
        title="Attention",
        live="attention",
        versions={"board": version},
        groups=groups,
        causes=[(each, sparkline(each.bars), answers_for(each)) for each in causes],
        bars_at_least=listed.bars_at_least,
        more_causes=listed.more or len(listed.causes) > CAUSES,
        counts=summary,
        summary=summary,
        due=due,
        refused=refused,
        status_code=status_code,
        nothing=_nothing(summary),
    )


async def groups_of(ops: Operations, summary: StatusSummary) -> list[ReasonGroup]:
    """Return each reason of a summary with its first items."""
    most = max(LEAST, min(OF_ONE_REASON, ITEMS // max(1, len(summary.reasons))))
    assigned = await ops.assignments()  # once, and not for each reason
    pages = await asyncio.gather(*(_items(ops, each.reason, assigned, most) for each in summary.reasons))
    return [
        ReasonGroup(
            each.reason,
            each,
            each.if_ignored,
            each.until,
            items,
            _follows(items),
            more,
            each.count > 1 or each.at_least,
            _of_runs(each.reason),
        )
        for each, (items, more) in zip(summary.reasons, pages, strict=True)
    ]


def _follows(items: Sequence[RunAttention]) -> dict[str, str]:
    """Return the consequence of each choice of these items of one reason, said once for all of them."""
    offered = {way.choice for each in items for way in each.choices}
    calls, nodes = {each.name if each.key else "" for each in items}, {each.node for each in items}
    call, node = (next(iter(names)) if len(names) == 1 else "" for names in (calls, nodes))
    return {
        choice.value: consequence_of(choice, reason, call=call, node=node)
        for reason in {Reason(each.reason) for each in items}
        for choice in CHOICES[reason]
        if choice.value in offered
    }


def by_deadline(pending: Sequence[ApprovalSummary], now: datetime) -> Deadlines:
    """Split pending approvals, of which the earliest deadline is first, into those that the board shows."""
    dated = [(each.within_until, each) for each in pending if each.within_until is not None]
    overdue = [each for at, each in dated if at <= now]
    today = [each for at, each in dated if now < at <= now + DAY]
    later = [] if overdue or today else [each for _, each in dated]
    return Deadlines(overdue[:OF_ONE_REASON], today[:OF_ONE_REASON], later[:NEXT])


def _nothing(summary: StatusSummary) -> bool:
    return not (
        summary.attention or summary.approvals_pending or summary.uncertain or summary.unserved or summary.pauses
    )


def _of_runs(reason: str) -> bool:
    """Return True if runs have this reason."""
    return reason in set(Reason) and reason != Reason.WEBHOOK_DEAD


async def _items(ops: Operations, reason: str, assigned: Assignments, most: int) -> tuple[list[RunAttention], bool]:
    """Return the first items of a reason, at most `most`, and whether there are more."""
    if not _of_runs(reason):
        return [], False
    items, more = items_shown(
        await ops.attention_page(ListAttention(reason=Reason(reason), limit=most), assigned), most
    )
    return _mine_first(ops, items), more


def items_shown(found: AttentionList, most: int) -> tuple[list[RunAttention], bool]:
    """Return the items of runs, at most `most`, and whether there are more. A run has an item for each effect."""
    items = _of_any_run(found)
    return items[:most], bool(found.next_cursor) or len(items) > most


def _mine_first(ops: Operations, items: Sequence[RunAttention]) -> list[RunAttention]:
    """Return the items with those of the caller first, else in their order."""
    return sorted(items, key=lambda each: each.assigned_to != identity(ops.me))


# Before the routes with a reason in their path. No version: it informs people, and a later one replaces it.
@router.post("/attention/assign", operation_id="ui:assign_attention")
async def assign(ops: Ops, state: State, request: Request) -> Response:
    """Assign one item, or remove its assignment, and lead to the page that sent the form."""
    form = form_of(request)
    page, name, run, key = [*form.text("item").split(" ", 3), *[""] * 4][:4]
    reason = member(Reason, "reason", name)
    if not NAME.fullmatch(run):
        raise InvalidInput("the form names no run", f"it names {run[:100]!r}", "reload the page")
    kept = {"key": key, **{name: form.text(name) for name in ("to", "note")}}
    try:
        who = form.text("who")
        if not who and not kept["to"]:
            raise InvalidInput("the name of a person is required", "", "write one, or press “Assign to me”")
        to = {"": kept["to"], ME: ME}.get(who, "")
        await ops.assign(run, to, reason=reason, key=key, note=kept["note"] if to else "")
    except (Conflict, InvalidInput, LimitExceeded) as error:
        refused = {"form": "assign", "error": error, "reason": reason.value, **kept}
        if page == "run":
            return await overview(ops, state, request, run, status_code=status_of(error), **refused)
        if page == "reason":
            return await _reason(ops, request, reason, error=error, refused={"run": run, **refused})
        return await _board(ops, request, status_code=status_of(error), run=run, **refused)
    there = {"run": f"/ui/runs/{run}", "reason": f"/ui/attention/{reason.value}"}
    whom = f"assigned to {'you' if to == ME else to}" if to else "no longer assigned"
    done = f"The item {reason.value.replace('_', ' ')} of run {run} is {whom}."
    return see_other(request, there.get(page, "/ui/"), done)


@router.post("/attention/{run}/answer", operation_id="ui:resolve_attention")
async def answer_on_board(ops: Ops, request: Request, run: RunId) -> Response:
    """Answer one reason of one run, and lead back to the board."""
    form = form_of(request)
    try:
        await answer_one(ops, run, form)
    except (Conflict, InvalidInput) as error:
        kept = typed_answer(form)
        return await _board(ops, request, status_code=status_of(error), form="answer", run=run, error=error, **kept)
    return see_other(request, "/ui/", answered(run, form))


# No version: a pause that was ended already is not found.
@router.post("/resume", operation_id="ui:resume")
async def resume(ops: Ops, request: Request) -> Response:
    """End a pause or close a circuit breaker, and lead back to the page that showed it."""
    form = form_of(request)
    what, _, name = form.text("paused").partition(" ")
    if what not in get_args(What):
        raise InvalidInput("the form names no pause", f"it names {what[:100]!r}", "reload the page")
    ended = await ops.resume(cast(What, what), name)
    page, runs = form.text("page"), f"{ended.runs:,} run{'' if ended.runs == 1 else 's'}"
    done = f"Resumed. {runs} that waited for it continue{'s' if ended.runs == 1 else ''}."
    return see_other(request, f"/ui/workflows/{page}" if NAME.fullmatch(page) else "/ui/", done)


@router.get("/attention/{reason}", operation_id="ui:list_attention")
async def show_reason(ops: Ops, pages: Pages, request: Request, reason: Reason) -> Response:
    """List the runs of one reason, to choose those that one answer is for."""
    return await _reason(ops, request, reason, pages=pages)


@router.post("/attention/{reason}", operation_id="ui:resolve_attention")
async def answer_many(ops: Ops, pages: Pages, request: Request, reason: Reason) -> Response:
    """Answer the chosen runs alike, and show the outcome of each, with the page that the form was on."""
    form = form_of(request)
    try:
        choice = member(Choice, "choice", form.text("choice"))
        chosen = [_chosen(each) for each in form.all("item")]
        by = (form.text("by") or MORE_TIME) if choice is Choice.EXTEND else None
        if not chosen:
            raise InvalidInput("no run is chosen", "", "choose at least one")
        if not form.text("text"):
            raise InvalidInput("a reason is required", "it is shown in the history of each run", "write why")
        outcome = await ops.answer_many(chosen, reason, choice, text=form.text("text"), by=by)
    except (Conflict, InvalidInput) as error:
        kept = {"text": form.text("text"), "items": set(form.all("item"))}
        return await _reason(ops, request, reason, pages=pages, error=error, kept=kept)
    n = sum(each.answered for each in outcome.answers)
    done = f"{n} of {len(outcome.answers)} answered: {choice.value.replace('_', ' ')}."
    return await _reason(ops, request, reason, pages=pages, outcome=outcome, done=done)


def _chosen(text: str) -> AnswerFor:
    """Return the run, version and key that a check box of the list names. Raises InvalidInput."""
    run, _, rest = text.partition(" ")
    version, _, key = rest.partition(" ")
    return AnswerFor(run=run, key=key, version=whole_number("item", version))


async def _first_items(ops: Operations, reason: Reason, after: str) -> tuple[AttentionList, list[RunAttention]]:
    """Return a page of one reason and its items. The next page begins with the run after them.

    A run has an item for each effect. A page has whole runs and at most AT_MOST items, unless one run has more.
    """
    found = await ops.attention(reason=reason, limit=AT_MOST, cursor=after)
    items = _of_any_run(found)
    if len(items) > AT_MOST:
        whole = {each.run for each in items[:AT_MOST]} - {items[AT_MOST].run}
        found = await ops.attention(reason=reason, limit=max(1, len(whole)), cursor=after)
        items = _of_any_run(found)
    return found, items


def _of_any_run(found: AttentionList) -> list[RunAttention]:
    return [each for each in found.attention if isinstance(each, RunAttention)]


async def _reason(
    ops: Operations,
    request: Request,
    reason: Reason,
    *,
    pages: PageRequest | None = None,
    error: Conflict | InvalidInput | LimitExceeded | None = None,
    outcome: AnswerList | None = None,
    kept: Mapping[str, Any] | None = None,
    refused: Mapping[str, Any] | None = None,
    done: str = "",
) -> Response:
    after = pages.after if pages is not None else ""
    found, items = await _first_items(ops, reason, after)
    more = bool(found.next_cursor) or len(items) > AT_MOST
    items = _mine_first(ops, items[:AT_MOST])
    next_cursor = (await pages.sealed(found)).next_cursor if pages is not None else ""
    return await render(
        request,
        "attention.html",
        title=reason.value.replace("_", " ").capitalize(),
        live="",
        reason=reason.value,
        items=items,
        more=more,
        paged=bool(after),
        next_cursor=next_cursor,
        cursor=request.query_params.get("cursor", "") if after else "",
        commands=choice_commands_for_all(reason),
        for_all=offered(reason),
        consequence_of=consequence_of,
        chosen_choices=[each for each in CHOICES[reason] if each not in (Choice.HAPPENED, Choice.RAISE)],
        error=error,
        outcome=outcome,
        kept=kept or {},
        refused=refused or {},
        at_most=AT_MOST,
        feedback=done,
        few=len(items) <= FEW,
        more_time=MORE_TIME,
        status_code=200 if error is None else status_of(error),
    )
