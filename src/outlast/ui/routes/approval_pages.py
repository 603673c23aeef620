"""Pages of approvals: those that wait, and one with everything that its decision needs."""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Annotated, Any, Final, Literal, NamedTuple
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Query
from starlette.requests import Request
from starlette.responses import Response

from outlast.core.durations import span
from outlast.core.machine import ApprovalStatus
from outlast.core.shown_arguments import amount_hint, amount_sent, in_one_line, main_arguments
from outlast.errors import InvalidInput, NotFound, OutlastError, Precondition
from outlast.insight.approval_reads import ROWS_PER_READ, SEARCHED_READS_MAX
from outlast.insight.labels import APPROVAL, ATTENTION, call_of
from outlast.insight.run_reads import ApprovalOfRun
from outlast.models import exact_instant
from outlast.models.approvals import ApprovalDetail, ApprovalSummary
from outlast.operations.approval_operations import ListApprovals
from outlast.runtime.operations import Operations
from outlast.service.conditional import on_approval
from outlast.service.problems import ProblemError, status_of
from outlast.service.request_parts import ApprovalId
from outlast.service.routes.approval_routes import decide
from outlast.service.service_state import Ops, Pages, ServiceState
from outlast.ui.deadline_groups import in_groups, zone_of
from outlast.ui.forms import MISSING, FormField, SchemaForm, sent_form, shown_form
from outlast.ui.page_route import REGION, Form, PageRoute, form_of, see_other
from outlast.ui.rendering import render, stamp
from outlast.ui.run_words import Argument, arguments

router = APIRouter(prefix="/ui", route_class=PageRoute)
CHANGES: Final = "changes"
"""Name of the form of editable arguments."""
ZONE_COOKIE: Final = "outlast-zone"
"""Cookie with the name of the viewer's time zone, which the script sets."""
PLACES_MAX: Final = 1_000
"""Approvals of a list that are counted, and among which the previous and the next one are found."""
INLINE: Final = frozenset({"text", "long", "whole", "number", "decimal", "yes_no", "choice", "date"})
"""Kinds of fields that are edited in the row of their argument."""
NAMED_MAX: Final = 3
"""People whose names are shown if they have an approval open."""
RUN_WORDS: Final = {ATTENTION: "requires attention", APPROVAL: "waits for an approval"}
DECISIONS: Final = ("approve", "reject", "again")
DECIDED: Final = (ApprovalStatus.APPROVED, ApprovalStatus.REJECTED, ApprovalStatus.AGAIN)
"""Status that each decision leads to."""
SHOWN_MS_MIN: Final = 1_000
"""Time for which a request must have been shown before it is decided: a double tap ends earlier."""
STRIP_MAX: Final = 3
"""Decisions that the first lines of the next page name."""

Which = Literal["mine", "undecided", "overdue", "decided", "all"]


class Listed(NamedTuple):
    """Filters of a list of approvals: they are in the address of the list, and in that of each approval of it."""

    show: Which = "mine"
    role: str = ""
    run: str = ""
    text: str = ""

    @property
    def by_deadline(self) -> bool:
        """True if the list has pending approvals, nearest deadline first."""
        return self.show in ("mine", "undecided")

    @property
    def query(self) -> str:
        """Return the filters as the end of an address, '' for the usual list."""
        given = {name: value for name, value in self._asdict().items() if value and value != self._field_defaults[name]}
        return f"?{urlencode(given)}" if given else ""

    def request(self) -> ListApprovals:
        """Return the request for the list."""
        return ListApprovals(
            status=ApprovalStatus.PENDING.value if self.by_deadline else "",
            mine=self.show == "mine",
            overdue=self.show == "overdue",
            decided_by="me" if self.show == "decided" else "",
            role=self.role,
            run=self.run,
            text=self.text,
            sort="deadline" if self.by_deadline else "newest",
        )


async def _listed(
    show: Which = "mine",
    role: Annotated[str, Query(max_length=100)] = "",
    run: Annotated[str, Query(max_length=100)] = "",
    text: Annotated[str, Query(max_length=200)] = "",
) -> Listed:
    return Listed(show, role, run, " ".join(text.split()))


OfList = Annotated[Listed, Depends(_listed)]
After = Annotated[str, Query(max_length=300)]


@router.get("/approvals", operation_id="ui:list_approvals")
async def list_approvals(ops: Ops, pages: Pages, request: Request, listed: OfList, after: After = "") -> Response:
    """Show the approvals, those of the caller first, nearest deadline first. `after`: those just decided."""
    wanted = listed.request()
    found = await pages.sealed(
        await ops.approvals(
            status=wanted.status,
            mine=wanted.mine,
            overdue=wanted.overdue,
            decided_by=wanted.decided_by,
            role=wanted.role,
            run=wanted.run,
            text=wanted.text,
            sort=wanted.sort,
            cursor=pages.after,
            limit=pages.limit,
        )
    )
    ids, more = await ops.approvals_in_order(wanted, PLACES_MAX) if listed.text else ((), False)
    present = await present_at(request, ops, [each.approval for each in found.approvals])
    zone = zone_of(request.cookies.get(ZONE_COOKIE, ""))
    groups = [("", found.approvals)]
    if listed.by_deadline:
        now = exact_instant((await ops.store.now()).business)
        groups = in_groups(found.approvals, lambda each: each.within_until, now, zone)
    version = stamp(
        [(name, [(each.approval, each.version) for each in group]) for name, group in groups], listed, present
    )
    return await render(
        request,
        "approvals.html",
        title="Approvals",
        live="approvals",
        versions={"approvals": version},
        found=found,
        groups=groups,
        present=present,
        zone_named="" if zone is not None else "UTC",
        listed=listed,
        searched=ROWS_PER_READ * SEARCHED_READS_MAX,
        stopped=bool(listed.text and found.next_cursor and len(found.approvals) < pages.limit),
        matches=f"{len(ids):,}{' or more' if more else ''}",
        decided=await _decided(ops, after),
    )


@router.get("/approvals/{approval}", operation_id="ui:get_approval")
async def get_approval(
    ops: Ops,
    request: Request,
    approval: ApprovalId,
    listed: OfList,
    seen: Annotated[int, Query(ge=0)] = 0,
    after: After = "",
) -> Response:
    """Show the consequence, the exact arguments, and the decision.

    `seen`: version that the page has. `after`: the approvals that were decided just before, latest first.
    """
    found = await ops.approval_and_run(approval)
    return await _page(ops, request, found, Draft.new(found), listed, seen=seen, after=after)


async def present_at(request: Request, ops: Operations, approvals: Sequence[str]) -> dict[str, str]:
    """Return by approval a sentence that names who else has it open.

    Only regions say so, which the script refreshes: on a page without it the sentence would stay.
    """
    if not approvals or not request.query_params.get(REGION):
        return {}
    state: ServiceState = request.app.state.service
    found = await state.presence.others(ops.tenant, approvals, request.state.principal.name)
    return {approval: open_by(people) for approval, people in found.items()}


def open_by(people: Sequence[str]) -> str:
    """Return the sentence that names these people, at least one."""
    if len(people) == 1:
        return f"{people[0]} has this open"
    if len(people) <= NAMED_MAX:
        return f"{', '.join(people[:-1])} and {people[-1]} have this open"
    return f"{people[0]} and {len(people) - 1} others have this open"


async def _decided(ops: Operations, after: str) -> list[ApprovalDetail]:
    """Return the approvals that were decided just before, as the address names them."""
    found = []
    for approval in _several(after):
        with suppress(NotFound):
            found.append(await ops.approval(approval))
    return found


def _several(after: str) -> list[str]:
    return list(dict.fromkeys(filter(None, after.split(","))))[:STRIP_MAX]


@dataclass(frozen=True)
class Draft:
    """Decision as it was typed."""

    changes: SchemaForm | None
    changed: Mapping[str, Any]
    """Arguments that differ from those shown."""
    reason: str = ""
    alternative: int = 0
    difference: str = ""
    """Digest of the changes whose difference was shown."""
    problems: tuple[tuple[str, str, str], ...] = ()

    @classmethod
    def new(cls, shown: ApprovalOfRun) -> "Draft":
        """Return the decision before anything is typed."""
        schema, values = _editable(shown.approval)
        return cls(_with_amounts(shown_form(schema, values, name=CHANGES), shown) if schema else None, {})

    @classmethod
    def sent(cls, shown: ApprovalOfRun, form: Form) -> "Draft":
        """Return the decision that was sent. An amount may be written as one: 400.00 for 40000 hundredths."""
        schema, values = _editable(shown.approval)
        amounts = {f"{CHANGES}/{each.name}": each for each in shown.named[0] if type(values.get(each.name)) is int}
        form = Form(
            [(name, amount_sent(text, amounts[name]) if name in amounts else text) for name, text in form.fields]
        )
        changes = sent_form(schema, form, values, name=CHANGES) if schema and form.text("edits") else None
        changed: dict[str, Any] = {}
        if changes is not None:
            before, after = shown_form(schema, values, name=CHANGES).value, changes.value
            changed = {name: after[name] for name in after if before.get(name, MISSING) != after[name]}
        changes = changes or (shown_form(schema, values, name=CHANGES) if schema else None)
        return cls(
            _with_amounts(changes, shown) if changes is not None else None,
            changed,
            form.text("reason"),
            form.number("alternative"),
            form.text("difference"),
            changes.problems if changes else (),
        )

    @property
    def inline(self) -> Mapping[str, FormField]:
        """Return the fields that are in the rows of their arguments, by argument: those of one control."""
        fields = self.changes.fields if self.changes is not None else ()
        return {each.path: each for each in fields if each.kind in INLINE}

    @property
    def digest(self) -> str:
        """Return the digest of the changes and the alternative they are made to, or '' without changes."""
        text = json.dumps([self.alternative, self.changed], sort_keys=True)
        return sha256(text.encode()).hexdigest()[:16] if self.changed else ""


@router.post("/approvals/{approval}/decision", operation_id="ui:decide_approval")
async def decide_approval(ops: Ops, request: Request, approval: ApprovalId, listed: OfList) -> Response:
    """Decide the version that was shown, and lead to the next request of the list.

    A late or wrong decision shows the page again, with the typed text.
    """
    form = form_of(request)
    shown = await ops.approval_and_run(approval)
    found = shown.approval
    draft = Draft.sent(shown, form)
    decision, version, after = form.text("decision"), form.version(), form.text("after")
    if draft.changes is not None and draft.changes.rows_changed:
        return await _page(ops, request, shown, draft, listed)
    if decision not in DECISIONS:
        error = InvalidInput("no decision was sent", "", "press one of the buttons")
        return await _page(ops, request, shown, draft, listed, after=after, error=error)
    if 0 <= (shown_ms := (await ops.store.now()).real - form.number("shown_at")) < SHOWN_MS_MIN:
        error = InvalidInput(
            f"The button was pressed {shown_ms / 1000:.1f} s after this request was shown",
            "A second tap of the decision before would decide a request that was not read.",
            "read the request, then press the button",
        )
        return await _page(ops, request, shown, draft, listed, after=after, error=error)
    if decision != "approve":
        draft = replace(draft, changed={}, problems=() if draft.reason else (("reason", "Reason", "is required"),))
    if draft.problems or (draft.changed and draft.difference != draft.digest):
        return await _page(ops, request, shown, draft, listed, after=after, status_code=422 if draft.problems else 200)
    then = "" if form.text("page") == "run" else (await _place(ops, approval, listed)).following
    try:
        await decide(
            ops,
            approval,
            decision,
            reason=draft.reason,
            alternative=draft.alternative,
            changes=draft.changed or None,
            version=version,
        )
        now = await ops.approval(approval)
    except (OutlastError, ProblemError) as error:
        now = await ops.approval(approval)
        if not _is_made(now, draft, decision, request.state.principal.name):
            return await _refused(ops, request, approval, draft, error, listed)
    done = _done(now, decision)
    if form.text("page") == "run":
        return see_other(request, f"/ui/runs/{found.run}", done)
    page = f"/ui/approvals/{then}" if then else "/ui/approvals"
    query = listed.query
    last = ",".join(_several(f"{approval},{after}"))
    return see_other(request, f"{page}{query}{'&' if query else '?'}{urlencode({'after': last}, safe=',')}", done)


def _is_made(found: ApprovalDetail, draft: Draft, decision: str, name: str) -> bool:
    """Return True if this decision was made already: its form was sent twice, as by a double tap."""
    if decision != DECISIONS[0] or found.quorum == 1:
        made = (found.status, found.decided_by, found.reason)
        if made != (DECIDED[DECISIONS.index(decision)], name, draft.reason):
            return False
    chosen = {vote.chosen for vote in found.votes if (vote.by, vote.reason) == (name, draft.reason)}
    chosen |= {plan.digest for plan in found.plans if plan.chosen}
    meant = {
        plan.digest
        for plan in found.plans
        if (plan.changes == draft.changed if draft.changed else plan.alternative == draft.alternative)
    }
    return decision != DECISIONS[0] or bool(chosen & meant)


@router.post("/approvals/{approval}/preview", operation_id="ui:get_approval")
async def preview_decision(ops: Ops, request: Request, approval: ApprovalId, listed: OfList) -> Response:
    """Show the difference that typed values make, and the button that approves the call with them."""
    shown = await ops.approval_and_run(approval)
    draft = Draft.sent(shown, form_of(request))
    return await _page(ops, request, shown, draft, listed, previewed=True)


def _done(found: ApprovalDetail, decision: str) -> str:
    """Return the line about a decision, with its consequence."""
    if decision == DECISIONS[0]:
        if found.status == ApprovalStatus.PENDING:
            return f"Your vote is recorded: {len(found.votes)} of {found.quorum} approve. Nothing is called yet."
        changed = " with your values" if any(plan.chosen and plan.changed_by for plan in found.plans) else ""
        valid = found.valid_days or span(found.valid_ms)
        return f"Approved by you{changed}. {call_of(found)} is called once, within {valid}."
    again = " The run goes round once more." if decision == DECISIONS[2] else ""
    return f"Rejected by you. Nothing is called.{again}"


@router.post("/approvals/{approval}/claim", operation_id="ui:claim_approval")
async def claim_approval(ops: Ops, request: Request, approval: ApprovalId, listed: OfList) -> Response:
    """Tell the other approvers that the caller reviews it."""
    done = "The others see that you review it."
    return await _act(
        ops, request, approval, listed, lambda version: ops.claim_approval(approval, version=version), done
    )


@router.post("/approvals/{approval}/reassign", operation_id="ui:reassign_approval")
async def reassign_approval(ops: Ops, request: Request, approval: ApprovalId, listed: OfList) -> Response:
    """Let other roles or persons decide."""
    form = form_of(request)
    to, reason = form.text("to"), form.text("why")
    return await _act(
        ops,
        request,
        approval,
        listed,
        lambda version: ops.reassign(approval, to, reason=reason, version=version),
        f"Reassigned: {to} decides now.",
    )


async def _act(
    ops: Operations,
    request: Request,
    approval: str,
    listed: Listed,
    act: Callable[[int], Awaitable[ApprovalSummary]],
    done: str,
) -> Response:
    version = form_of(request).version()
    try:
        await on_approval(ops, approval, lambda: act(version))
    except (OutlastError, ProblemError) as error:
        return await _refused(ops, request, approval, None, error, listed)
    return see_other(request, f"/ui/approvals/{approval}{listed.query}", done)


async def _refused(
    ops: Operations,
    request: Request,
    approval: str,
    draft: Draft | None,
    error: OutlastError | ProblemError,
    listed: Listed,
) -> Response:
    """Show the approval as it is now, why nothing was done, and the typed text."""
    refused = error.error if isinstance(error, ProblemError) else error
    if status_of(refused) >= 500:
        raise refused
    found = await ops.approval_and_run(approval)
    if refused.refusal in ("moved", "stale") and found.approval.status == ApprovalStatus.PENDING:
        why = "Nothing was decided. Read it as it is now, then press the button again."
        refused = Precondition(_moved(found.approval), why, "", refusal="moved")
    if draft is not None and isinstance(refused, InvalidInput) and draft.changes is not None and refused.problems:
        changes = draft.changes.with_problems(refused.problems)
        draft = replace(draft, changes=changes, problems=changes.problems)
    return await _page(ops, request, found, draft or Draft.new(found), listed, error=refused)


def _moved(found: ApprovalDetail) -> str:
    """Return what happened to a pending approval since its page was shown."""
    if found.claimed_by:
        return f"{found.claimed_by} began to review this request after you opened it"
    if found.votes:
        return f"{found.votes[-1].by} voted on this request after you opened it"
    return "This request was changed after you opened it"


async def _page(
    ops: Operations,
    request: Request,
    shown: ApprovalOfRun,
    draft: Draft,
    listed: Listed,
    *,
    seen: int = 0,
    after: str = "",
    previewed: bool = False,
    error: OutlastError | None = None,
    status_code: int = 200,
) -> Response:
    found, run = shown.approval, shown.run
    waits = [wait for wait in run.waiting_for if wait.kind == "approval"]
    whole = not request.query_params.get(REGION)
    version = stamp(found.version, found.you_may_not, run.version, run.shown, len(found.changed_since_asked), seen)
    pending = found.status == ApprovalStatus.PENDING
    present = await present_at(request, ops, [found.approval] if pending else [])
    return await render(
        request,
        "approval.html",
        title=found.asks or found.approval,
        live=f"approval:{found.approval}" if pending else f"run:{found.run}",
        versions={
            "now": version,
            "news": stamp(version, present),
            "outcome": stamp(found.version, found.call),
            "strip": stamp(found.version, found.call),
        },
        found=found,
        draft=draft,
        seen=seen or found.version,
        error=error,
        run=run,
        listed=listed,
        then=RUN_WORDS.get(waits[0].then, waits[0].then) if waits else "",
        previewed=previewed,
        place=await _place(ops, found.approval, listed) if whole else None,
        decided=await _decided(ops, after) if whole else [],
        after=after,
        named=[bool(each) for each in shown.named],
        pending=pending,
        present=present,
        difference=_difference(found, draft),
        changed=_changed_words(shown, draft),
        run_words=RUN_WORDS.get(found.run_shown, found.run_shown),
        status_code=status_of(error) if error is not None else status_code,
    )


class ListPlace(NamedTuple):
    """Place of an approval in a list: its number, 0 if it is not among those counted, and its neighbours."""

    number: int
    of: str
    previous: str
    following: str
    """The one that a decision leads to: after the last one, the first."""
    further: str = ""
    """The one after it, '' after the last one."""


async def _place(ops: Operations, approval: str, listed: Listed) -> ListPlace:
    """Return the place of an approval. After one that is not in the list, its first one follows."""
    ids, more = await ops.approvals_in_order(listed.request(), PLACES_MAX)
    of = await _total(ops, listed, len(ids)) if more else f"{len(ids):,}"
    if approval not in ids:
        first = ids[0] if ids else ""
        return ListPlace(0, of, "", first, first)
    at = ids.index(approval)
    further = ids[at + 1] if at + 1 < len(ids) else ""
    return ListPlace(at + 1, of, ids[at - 1] if at else "", further or (ids[0] if at else ""), further)


async def _total(ops: Operations, listed: Listed, read: int) -> str:
    """Return the length of a list of which this many were read, by the counts that the header shows if it has one."""
    field = {Listed(): "approvals_mine", Listed("undecided"): "approvals_pending"}.get(listed, "")
    counts = await ops.summary() if field else None
    if counts is None or field in counts.at_least:
        return f"{read:,} or more"
    return f"{max(read, getattr(counts, field)):,}"


def _editable(found: ApprovalDetail) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return the schema of the editable arguments, {} without any, and their values in the requested call."""
    schema = found.schema_["properties"].get("changes", {}) if found.editable else {}
    given = found.plans[0].arguments
    values = {name: given[name] for name in found.editable if isinstance(given, dict) and name in given}
    return {**schema, "required": list(values)} if schema else {}, values


def _with_amounts(form: SchemaForm, shown: ApprovalOfRun) -> SchemaForm:
    """Return the form of the changes with a hint at each amount that says how it may be written."""
    given = shown.approval.plans[0].arguments
    hints = {each.name: amount_hint(given[each.name], each) for each in shown.named[0] if each.name in given}
    inside = tuple(replace(each, hint=hints.get(each.path) or each.hint) for each in form.root.inside)
    return replace(form, root=replace(form.root, inside=inside))


class ChangedWords(NamedTuple):
    """Main arguments of a call with the values of a draft, and those before that it changes; '' without changes."""

    line: str = ""
    asked: str = ""


def _changed_words(shown: ApprovalOfRun, draft: Draft) -> ChangedWords:
    plans = shown.approval.plans
    if not draft.changed or not 0 <= draft.alternative < len(plans):
        return ChangedWords()
    given, named = plans[draft.alternative].arguments, shown.named[draft.alternative]
    values = given if isinstance(given, dict) else {}
    before = main_arguments(values, named)
    found = main_arguments({**values, **draft.changed}, named)
    new = {each.name: each.text for each in found}
    asked = [each.text for each in before if each.name in draft.changed and new.get(each.name) != each.text]
    return ChangedWords(in_one_line(found), ", ".join(asked))


def _difference(found: ApprovalDetail, draft: Draft) -> list[Argument]:
    """Return the values that a draft changes, each with the value before."""
    if not 0 <= draft.alternative < len(found.plans):
        return []
    given = found.plans[draft.alternative].arguments
    before = {each.path: each for name in draft.changed for each in arguments(given.get(name), name)}
    after = {each.path: each for name, value in draft.changed.items() for each in arguments(value, name)}
    nothing = [("nothing", "")]
    return [
        replace(after.get(path, Argument(path, nothing, "")), before=before[path].pieces if path in before else nothing)
        for path in dict.fromkeys([*before, *after])
        if path not in before or path not in after or before[path].pieces != after[path].pieces
    ]
