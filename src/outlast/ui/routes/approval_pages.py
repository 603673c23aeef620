"""Pages of approvals: those that wait, and one with everything that its decision needs."""

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from outlast.core.durations import span
from outlast.core.machine import ApprovalStatus
from outlast.errors import InvalidInput, OutlastError
from outlast.insight.labels import call_of
from outlast.insight.run_reads import ApprovalOfRun
from outlast.models.approvals import ApprovalDetail, ApprovalSummary
from outlast.runtime.operations import Operations
from outlast.service.conditional import on_approval
from outlast.service.problems import ProblemError, status_of
from outlast.service.request_parts import ApprovalId
from outlast.service.routes.approval_routes import decide
from outlast.service.service_state import Ops, Pages
from outlast.ui.forms import MISSING, SchemaForm, sent_form, shown_form
from outlast.ui.page_route import Form, PageRoute, form_of, see_other
from outlast.ui.rendering import render, stamp
from outlast.ui.run_words import Argument, arguments

router = APIRouter(prefix="/ui", route_class=PageRoute)
CHANGES: Final = "changes"
"""Name of the form of editable arguments."""
NEIGHBOURS: Final = 100
"""Approvals among which the previous and the next one are found."""
DECISIONS: Final = ("approve", "reject", "again")

Which = Literal["mine", "undecided", "overdue", "decided", "all"]


@router.get("/approvals", operation_id="ui:list_approvals")
async def list_approvals(
    ops: Ops,
    pages: Pages,
    request: Request,
    show: Which = "mine",
    role: Annotated[str, Query(max_length=100)] = "",
    run: Annotated[str, Query(max_length=100)] = "",
) -> Response:
    """Show the approvals, those of the caller first, nearest deadline first."""
    found = await pages.sealed(
        await ops.approvals(
            status=ApprovalStatus.PENDING.value if show in ("mine", "undecided") else "",
            mine=show == "mine",
            overdue=show == "overdue",
            decided_by="me" if show == "decided" else "",
            role=role,
            run=run,
            sort="deadline" if show in ("mine", "undecided") else "newest",
            cursor=pages.after,
            limit=pages.limit,
        )
    )
    version = stamp([(each.approval, each.version) for each in found.approvals])
    return await render(
        request,
        "approvals.html",
        title="Approvals",
        live="approvals",
        versions={"approvals": version},
        found=found,
        show=show,
        role=role,
        run=run,
    )


@router.get("/approvals/{approval}", operation_id="ui:get_approval")
async def get_approval(
    ops: Ops, request: Request, approval: ApprovalId, seen: Annotated[int, Query(ge=0)] = 0
) -> Response:
    """Show the consequence, the exact arguments, and the decision. `seen`: version that the page has."""
    found = await ops.approval_and_run(approval)
    return await _page(ops, request, found, Draft.new(found.approval), seen=seen)


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
    def new(cls, found: ApprovalDetail) -> "Draft":
        """Return the decision before anything is typed."""
        schema, values = _editable(found)
        return cls(shown_form(schema, values, name=CHANGES) if schema else None, {})

    @classmethod
    def sent(cls, found: ApprovalDetail, form: Form) -> "Draft":
        """Return the decision that was sent."""
        schema, values = _editable(found)
        changes = sent_form(schema, form, values, name=CHANGES) if schema and form.text("edits") else None
        changed: dict[str, Any] = {}
        if changes is not None:
            before, after = shown_form(schema, values, name=CHANGES).value, changes.value
            changed = {name: after[name] for name in after if before.get(name, MISSING) != after[name]}
        return cls(
            changes or (shown_form(schema, values, name=CHANGES) if schema else None),
            changed,
            form.text("reason"),
            form.number("alternative"),
            form.text("difference"),
            changes.problems if changes else (),
        )

    @property
    def digest(self) -> str:
        """Return the digest of the changes and the alternative they are made to, or '' without changes."""
        text = json.dumps([self.alternative, self.changed], sort_keys=True)
        return sha256(text.encode()).hexdigest()[:16] if self.changed else ""


@router.post("/approvals/{approval}/decision", operation_id="ui:decide_approval")
async def decide_approval(ops: Ops, request: Request, approval: ApprovalId) -> Response:
    """Decide the version that was shown. A late or wrong decision shows the page again, with the typed text."""
    form = form_of(request)
    shown = await ops.approval_and_run(approval)
    found = shown.approval
    draft = Draft.sent(found, form)
    decision, version = form.text("decision"), form.version()
    if draft.changes is not None and draft.changes.rows_changed:
        return await _page(ops, request, shown, draft)
    if decision not in DECISIONS:
        error = InvalidInput("no decision was sent", "", "press one of the buttons")
        return await _page(ops, request, shown, draft, error=error)
    if decision != "approve":
        draft = replace(draft, changed={}, problems=() if draft.reason else (("reason", "Reason", "is required"),))
    if draft.problems or (draft.changed and draft.difference != draft.digest):
        return await _page(ops, request, shown, draft, status_code=422 if draft.problems else 200)
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
    except (OutlastError, ProblemError) as error:
        return await _refused(ops, request, approval, draft, error)
    page = f"/ui/runs/{found.run}" if form.text("page") == "run" else f"/ui/approvals/{approval}"
    return see_other(request, page, _done(await ops.approval(approval), decision))


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
async def claim_approval(ops: Ops, request: Request, approval: ApprovalId) -> Response:
    """Tell the other approvers that the caller reviews it."""
    done = "The others see that you review it."
    return await _act(ops, request, approval, lambda version: ops.claim_approval(approval, version=version), done)


@router.post("/approvals/{approval}/reassign", operation_id="ui:reassign_approval")
async def reassign_approval(ops: Ops, request: Request, approval: ApprovalId) -> Response:
    """Let other roles or persons decide."""
    form = form_of(request)
    to, reason = form.text("to"), form.text("why")
    return await _act(
        ops,
        request,
        approval,
        lambda version: ops.reassign(approval, to, reason=reason, version=version),
        f"Reassigned: {to} decides now.",
    )


async def _act(
    ops: Operations, request: Request, approval: str, act: Callable[[int], Awaitable[ApprovalSummary]], done: str
) -> Response:
    version = form_of(request).version()
    try:
        await on_approval(ops, approval, lambda: act(version))
    except (OutlastError, ProblemError) as error:
        return await _refused(ops, request, approval, None, error)
    return see_other(request, f"/ui/approvals/{approval}", done)


async def _refused(
    ops: Operations, request: Request, approval: str, draft: Draft | None, error: OutlastError | ProblemError
) -> Response:
    """Show the approval as it is now, why nothing was done, and the typed text."""
    refused = error.error if isinstance(error, ProblemError) else error
    if status_of(refused) >= 500:
        raise refused
    found = await ops.approval_and_run(approval)
    if draft is not None and isinstance(refused, InvalidInput) and draft.changes is not None and refused.problems:
        changes = draft.changes.with_problems(refused.problems)
        draft = replace(draft, changes=changes, problems=changes.problems)
    return await _page(ops, request, found, draft or Draft.new(found.approval), error=refused)


async def _page(
    ops: Operations,
    request: Request,
    shown: ApprovalOfRun,
    draft: Draft,
    *,
    seen: int = 0,
    error: OutlastError | None = None,
    status_code: int = 200,
) -> Response:
    found, run = shown
    waits = [wait for wait in run.waiting_for if wait.kind == "approval"]
    before, after = await _neighbours(ops, found.approval)
    version = stamp(found.version, found.you_may_not, run.version, run.shown, len(found.changed_since_asked), seen)
    return await render(
        request,
        "approval.html",
        title=found.asks or found.approval,
        live=f"run:{found.run}",
        versions={"now": version},
        found=found,
        draft=draft,
        seen=seen or found.version,
        error=error,
        run=run,
        then=waits[0].then if waits else "",
        previous=before,
        following=after,
        pending=found.status == ApprovalStatus.PENDING,
        difference=_difference(found, draft),
        status_code=status_of(error) if error is not None else status_code,
    )


async def _neighbours(ops: Operations, approval: str) -> tuple[str, str]:
    """Return the approvals before and after this one among those that the caller may decide, or ''."""
    page = await ops.approvals(status=ApprovalStatus.PENDING.value, mine=True, sort="deadline", limit=NEIGHBOURS)
    ids = [each.approval for each in page.approvals]
    if approval not in ids:
        return "", ids[0] if ids else ""
    at = ids.index(approval)
    return ids[at - 1] if at else "", ids[at + 1] if at + 1 < len(ids) else ""


def _editable(found: ApprovalDetail) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return the schema of the editable arguments, {} without any, and their values in the requested call."""
    schema = found.schema_["properties"].get("changes", {}) if found.editable else {}
    given = found.plans[0].arguments
    values = {name: given[name] for name in found.editable if isinstance(given, dict) and name in given}
    return {**schema, "required": list(values)} if schema else {}, values


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
