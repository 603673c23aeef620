"""Approvals for an approver: filtered lists, details, changes since the request, and the schema of a decision."""

from typing import Any, Final

from outlast.core.approvals import votes_of
from outlast.core.events import iso
from outlast.core.machine import ApprovalStatus, EffectStatus
from outlast.core.rows import APPROVAL, Approval, Run
from outlast.flow.approval_rule import Rule
from outlast.flow.workflow import Workflow
from outlast.runtime.labels import effect_label, shown_status
from outlast.runtime.operations import Operations
from outlast.runtime.run_facts import messages_of
from outlast.runtime.tenant_rows import PAGES_PER_CALL
from outlast.runtime.views import approval_view
from outlast.store.queries import cursor_of

EVIDENCE_MAX: Final = 100
DECISION_KIND: Final = "decision"
"""Kind of message that is no news to the approver: the decision itself."""


async def approvals(
    ops: Operations,
    *,
    status: ApprovalStatus | None = None,
    mine: bool = False,
    role: str = "",
    overdue: bool = False,
    run: str = "",
    cursor: str = "",
    limit: int = 50,
) -> tuple[tuple[Approval, ...], str]:
    """Return matching approvals, newest first, and the cursor of the next page. `mine`: those the actor may decide;
    `role`: those whose rule names it; `overdue`: those past their deadline.
    """
    now = (await ops.store.now()).business
    found: list[Approval] = []
    for _ in range(PAGES_PER_CALL):
        rows, further = await ops.rows.approvals(
            status=status.value if status else "", run=run, cursor=cursor, limit=limit
        )
        for row in rows:
            if mine and not (row.status is ApprovalStatus.PENDING and ops.may_decide(row) and not _requested(ops, row)):
                continue
            if (role and not _names(row, role)) or (overdue and not _is_overdue(row, now)):
                continue
            found.append(row)
            if len(found) == limit:
                at_the_end = row is rows[-1] and not further
                return tuple(found), "" if at_the_end else cursor_of(APPROVAL, row)
        cursor = further
        if not cursor:
            break
    return tuple(found), cursor


async def approval_detail_view(ops: Operations, row: Approval, run: Run) -> dict[str, Any]:
    """Return an approval with everything its approver needs."""
    return {
        **listed_approval(ops, row),
        "version": row.version,
        "evidence": await evidence_of(ops, run),
        "changed_since_asked": await changed_since(ops, row, run),
        "run_shown": shown_status(run),
    }


def listed_approval(ops: Operations, row: Approval) -> dict[str, Any]:
    """Return an approval as lists show it to this caller."""
    return {**approval_view(row), "you_may_decide": ops.may_decide(row)}


def _requested(ops: Operations, row: Approval) -> bool:
    return bool(row.not_requester) and row.requested_by == ops.actor.name


def _names(row: Approval, role: str) -> bool:
    return any(role in roles for roles in Rule.parse(row.who).any_of)


def _is_overdue(row: Approval, now: int) -> bool:
    return row.status is ApprovalStatus.EXPIRED or (row.status is ApprovalStatus.PENDING and now >= row.within_until)


async def evidence_of(ops: Operations, run: Run) -> list[dict[str, Any]]:
    """Return the effects that the run has done before it asks, latest first."""
    done = [e for e in await ops.rows.effects_of(run) if e.status is EffectStatus.DONE]
    return [
        {"effect": e.activity, "key": e.key, "outcome": effect_label(e, ""), "external_id": e.external_id}
        for e in reversed(done[-EVIDENCE_MAX:])
    ]


async def changed_since(ops: Operations, row: Approval, run: Run) -> list[dict[str, Any]]:
    """Return votes, changed plans and messages since the approval was requested."""
    found = [(vote.at, f"approved «{vote.reason}»", vote.by) for vote in votes_of(row)]
    found += [
        (plan.change.at, f"changed {', '.join(plan.change.values())}", plan.change.by)
        for plan in row.plans
        if plan.change is not None
    ]
    found += [
        (message.at, f"{message.kind} {message.name}".strip(), message.actor)
        for message in (await messages_of(ops.store, run) if run.inbox_seq else ())
        if message.at >= row.asked_at and message.kind != DECISION_KIND
    ]
    return [{"at": iso(at), "what": what, "by": by} for at, what, by in sorted(found)]


def decision_schema(workflow: Workflow[Any] | None, row: Approval, schema: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON schema of a decision about this approval, with its offers and the types of editable arguments.

    `schema`: of any decision; `workflow`: the code of the run's version, None if it is not loaded.
    """
    properties = dict(schema["properties"])
    offered = ["approve", "reject", *(["again"] if row.again else [])]
    properties["decision"] = {**properties["decision"], "enum": offered}
    plans = row.plans
    properties["alternative"] = {**properties["alternative"], "maximum": len(plans) - 1}
    if not row.editable:
        properties.pop("changes", None)
    else:
        known = workflow.activity(plans[0].activity).arguments_schema() if workflow is not None else {}
        fields = {name: known.get("properties", {}).get(name, {}) for name in row.editable}
        properties["changes"] = {
            "type": "object", "properties": fields, "additionalProperties": False, **_definitions(known)
        }  # fmt: skip
    return {**schema, "properties": properties}


def _definitions(schema: dict[str, Any]) -> dict[str, Any]:
    return {"$defs": schema["$defs"]} if "$defs" in schema else {}
