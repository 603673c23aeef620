"""What the workflow's policy says: asked on each occasion, remembered within the visit, and recorded (GATE-6, S-13).

Offers and proposals are remembered: every walk of the visit gets the answer that the model was given. A write is asked
about anew at each intent, so nothing is done on the strength of an answer that has grown old.
"""

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from outlast.core import ledger as moves
from outlast.core.budget import SECOND
from outlast.core.codec import digest
from outlast.core.commit import Instant
from outlast.core.events import EventType
from outlast.core.people import votes_of
from outlast.core.rows import Approval, Memo, Run
from outlast.core.run_transition import LogEntry
from outlast.engine.node_execution import NodeExecution
from outlast.engine.user_code import as_exception
from outlast.flow.activity import Activity
from outlast.flow.people import Rule
from outlast.flow.plan import Plan
from outlast.flow.policy import (
    Allow,
    Approved,
    Deny,
    NeedsApproval,
    Occasion,
    Policy,
    PolicyRequest,
    Verdict,
    policy_version,
)
from outlast.flow.workflow import Workflow

DENIALS_LOGGED_MAX: Final = 10  # of one visit have an event each; every one has its memo
MEMOS: Final = "policy/"


def occasion_of(execution: NodeExecution) -> Occasion:
    """Has the visit waited, or was it taken over, since it began? Then facts may have changed."""
    session = execution.session
    return "resume" if session.claimed_visit == session.run.visit and session.run.epoch > 1 else "commit"


def ask(
    execution: NodeExecution,
    plan: Plan[Any],
    occasion: Occasion,
    *,
    approval: Approval | None = None,
    proposed_by: str = "",
) -> Verdict:
    """The policy's verdict, now, in this walk. Raises as `judge`."""
    if execution.workflow.policy is None:
        return Allow()
    session = execution.session
    return judge(
        execution.workflow, session.run, plan, occasion, session.now, approval=approval, proposed_by=proposed_by
    )


def judge(
    workflow: Workflow[Any],
    run: Run,
    plan: Plan[Any],
    occasion: Occasion,
    now: Instant,
    *,
    approval: Approval | None = None,
    proposed_by: str = "",
) -> Verdict:
    """The verdict on a plan of this run. Raises whatever an author's policy raises, TypeError for no verdict."""
    if workflow.policy is None:
        return Allow()
    request = PolicyRequest(
        activity=plan.activity,
        key=plan.key,
        arguments=json.loads(plan.arguments),
        tenant=run.tenant,
        workflow=run.workflow,
        version=workflow.version,
        run_id=run.run,
        node=run.node,
        visit=run.visit,
        requested_by=run.requested_by,
        moment=_utc(now.business),
        occasion=occasion,
        approval=approved_by(approval) if approval else None,
        proposed_by=proposed_by,
        policy_version=policy_version(workflow.policy),
    )
    return call_policy(workflow.policy, request)


def call_policy(policy: Policy, request: PolicyRequest) -> Verdict:
    """Call the policy of an author. Raises what it raises, as an `Exception`; TypeError if it returns no verdict."""
    try:
        verdict = policy(request)
    except BaseException as error:  # a policy of an author may raise anything
        raise as_exception(error)  # noqa: B904 - it names its cause
    return checked(verdict)


def checked(verdict: object) -> Verdict:
    """A policy's answer, if it is one: what is not a verdict allows nothing. Raises TypeError."""
    if isinstance(verdict, Allow | Deny | NeedsApproval):
        return verdict
    raise TypeError(f"a policy answers Allow, Deny or NeedsApproval; this one answered {verdict!r}")


def approved_by(approval: Approval) -> Approved:
    """Who approved, as a policy is told."""
    names = tuple(vote["by"] for vote in votes_of(approval))
    roles = tuple(json.loads(approval.claims)) if approval.claims else ()
    return Approved(approval.id, names, roles, _utc(approval.decided_at))


def satisfies(approval: Approval, demand: NeedsApproval) -> bool:
    """Did enough people approve, all of whom may by the policy's own rule? No role named: the local operator's all."""
    votes = votes_of(approval)
    if demand.not_requester and any(vote["by"] == approval.requested_by for vote in votes):
        return False
    fit = {vote["by"] for vote in votes if not vote["claims"] or demand.by.allows(vote["claims"])}
    return len(fit) >= demand.quorum and len(fit) == len({vote["by"] for vote in votes})


def said(execution: NodeExecution, verdict: Verdict) -> str:
    """The verdict as the ledger keeps it: what, by which rule, of which version of the policy."""
    version = policy_version(execution.workflow.policy)
    word = "allow" if isinstance(verdict, Allow) else "needs approval"
    return f"policy: {word} {verdict.rule} @{version}" if version else f"policy: {verdict.rule}"


# --- before and after a model ------------------------------------------------------------------------
async def offered(execution: NodeExecution, activities: Sequence[Activity[Any, Any]]) -> list[Activity[Any, Any]]:
    """Those that may be offered in this visit: the same on each walk of it."""
    if execution.workflow.policy is None:
        return list(activities)
    visit, memos = execution.session.run.visit, execution.session.memos
    fresh: dict[str, Memo] = {}
    for activity in activities:
        key = f"{MEMOS}offer/{activity.name}"
        if (visit, key) not in memos and key not in fresh:
            plan: Plan[Any] = Plan(activity.name, "", b"{}", digest(activity.name))
            fresh[key] = _memo(execution, key, plan, ask(execution, plan, "offer"), "offer", "")
    if fresh:
        await execution.session.land(moves.remember_all(execution.session.run, list(fresh.values())))
    return [a for a in activities if not isinstance(_recall(execution, f"{MEMOS}offer/{a.name}"), Deny)]


async def proposed(execution: NodeExecution, plan: Plan[Any], by: str) -> Verdict:
    """What policy says of a plan that is not made: remembered within the visit. A denial is recorded."""
    if execution.workflow.policy is None:
        return Allow()
    key = f"{MEMOS}proposal/{plan.digest[:32]}"
    if (execution.session.run.visit, key) not in execution.session.memos:
        memo = _memo(execution, key, plan, ask(execution, plan, "proposal", proposed_by=by), "proposal", by)
        await execution.session.land(moves.remember_all(execution.session.run, [memo]))
    verdict = _recall(execution, key)
    if isinstance(verdict, Deny):
        _tell(execution, plan, verdict, "proposal", key, by)
    return verdict


def record_denial(execution: NodeExecution, plan: Plan[Any], verdict: Deny, occasion: Occasion) -> None:
    """A write that was denied: its memo now, its event with the run's next move."""
    key = (
        f"{MEMOS}{occasion}/{plan.digest[:32]}/{execution.session.inbox_read}"  # asked again after mail: another denial
    )
    if (execution.session.run.visit, key) not in execution.session.memos:
        execution.session.submit(
            moves.remember_all(execution.session.run, [_memo(execution, key, plan, verdict, occasion, "")])
        )
    _tell(execution, plan, verdict, occasion, key, "")


def _tell(execution: NodeExecution, plan: Plan[Any], verdict: Deny, occasion: Occasion, key: str, by: str) -> None:
    if len(execution.log_entries) >= DENIALS_LOGGED_MAX:
        return
    data: dict[str, object] = {
        "activity": plan.activity,
        "effect_key": plan.key,
        "occasion": occasion,
        "rule": verdict.rule,
        "detail": verdict.detail,
        "policy_version": policy_version(execution.workflow.policy),
        "arguments_digest": digest(plan.arguments),
        "proposed_by": by,
    }
    text = f"{plan.activity} {plan.key}: denied by {verdict.rule}"
    execution.log_entries.setdefault(key, LogEntry(key, text, data, EventType.DENIED))


def _memo(execution: NodeExecution, key: str, plan: Plan[Any], verdict: Verdict, occasion: Occasion, by: str) -> Memo:
    run = execution.session.run
    body: dict[str, Any] = {
        "occasion": occasion,
        "activity": plan.activity,
        "key": plan.key,
        "arguments": json.loads(plan.arguments),
        "node": run.node,
        "proposed_by": by,
        "policy_version": policy_version(execution.workflow.policy),
        **dump(verdict),
    }
    response = json.dumps(body, ensure_ascii=False).encode()
    return Memo(run.tenant, run.run, run.visit, key, plan.activity, "", response, "", execution.session.now.business)


def dump(verdict: Verdict) -> dict[str, Any]:
    """A verdict as plain data."""
    if isinstance(verdict, Allow):
        return {"verdict": "allow", "rule": verdict.rule}
    if isinstance(verdict, Deny):
        return {"verdict": "deny", "rule": verdict.rule, "detail": verdict.detail}
    return {
        "verdict": "needs_approval",
        "rule": verdict.rule,
        "by": str(verdict.by),
        "summary": verdict.summary,
        "within_s": verdict.within.total_seconds(),
        "quorum": verdict.quorum,
        "not_requester": verdict.not_requester,
    }


def _recall(execution: NodeExecution, key: str) -> Verdict:
    body = json.loads(execution.session.memos[execution.session.run.visit, key].response or b"{}")
    if body["verdict"] == "allow":
        return Allow(body["rule"])
    if body["verdict"] == "deny":
        return Deny(body["rule"], body["detail"])
    return NeedsApproval(
        body["rule"],
        Rule.parse(body["by"]),
        body["summary"],
        timedelta(seconds=body["within_s"]),
        body["quorum"],
        body["not_requester"],
    )


def _utc(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / SECOND, UTC)
