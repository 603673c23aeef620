"""Policy of a workflow: asked on each occasion, remembered within the visit, recorded (GATE-6, S-13).

Offers and proposals are remembered: every execution of the visit gets the answer that the model got. An effect is
judged again at each intent, so no call relies on an old answer.
"""

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from outlast.core import effect_verbs
from outlast.core.approvals import Demand, votes_of
from outlast.core.approver_rule import Rule
from outlast.core.business_days import TERM, BusinessDays
from outlast.core.codec import digest
from outlast.core.commit import Instant
from outlast.core.durations import DAY
from outlast.core.events import EventType, utc
from outlast.core.limits import TEXT_CHARS_MAX
from outlast.core.rows.columns import decoded, stored_text
from outlast.core.rows.effect_rows import Approval, Memo
from outlast.core.rows.run_rows import Run
from outlast.core.run_transition import LogEntry
from outlast.engine.node_execution import NodeExecution
from outlast.engine.user_code import as_exception
from outlast.errors import Corrupt
from outlast.flow.activity import Activity
from outlast.flow.calls import Plan
from outlast.flow.functions import never_awaited
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

DENIALS_LOGGED_MAX: Final = 10  # denials of one visit with an event; all have a memo
MEMOS: Final = "policy/"
ASKED_AGAIN_WITHIN: Final = 366 * DAY
"""Period from a request for which its row knows the holidays of a term that may begin again."""


def occasion_of(execution: NodeExecution) -> Occasion:
    """Return "resume" if facts may have changed since the visit began, else "commit".

    They may have if the visit has waited or another worker has taken it over.
    """
    session = execution.session
    return "resume" if session.held.claimed_visit == session.held.run.visit and session.held.run.epoch > 1 else "commit"


def ask(
    execution: NodeExecution,
    plan: Plan[Any],
    occasion: Occasion,
    *,
    approval: Approval | None = None,
    proposed_by: str = "",
) -> Verdict:
    """Return the policy's verdict in this execution. Raises as `judge`."""
    if execution.workflow.policy is None:
        return Allow()
    session = execution.session
    return judge(
        execution.workflow,
        session.held.run,
        plan,
        occasion,
        session.clock.now,
        approval=approval,
        proposed_by=proposed_by,
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
    """Return the policy's verdict on a plan. Raises what the author's policy raises, TypeError for no verdict."""
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
    """Call an author's policy. Raises its exception as an `Exception`, TypeError if it returns no verdict."""
    try:
        verdict = policy(request)
    except BaseException as error:  # because an author's policy may raise anything
        raise as_exception(error)  # noqa: B904 - it names its cause
    if hasattr(verdict, "__await__"):
        raise never_awaited(verdict, policy, plain=True)
    return checked(verdict)


def checked(verdict: object) -> Verdict:
    """Return a policy's answer if it is a verdict, with texts that rows can hold. Raises TypeError."""
    if isinstance(verdict, Allow | Deny | NeedsApproval):
        return _storable(verdict)
    raise TypeError(f"a policy answers Allow, Deny or NeedsApproval; this one answered {verdict!r}")


def _storable(verdict: Verdict) -> Verdict:
    """Return a verdict whose texts a row can hold."""
    rule = stored_text(verdict.rule, TEXT_CHARS_MAX)
    if isinstance(verdict, Allow):
        return verdict if rule == verdict.rule else Allow(rule)
    if isinstance(verdict, Deny):
        return Deny(rule, stored_text(verdict.detail, TEXT_CHARS_MAX))
    summary = stored_text(verdict.summary, TEXT_CHARS_MAX)
    if (rule, summary) == (verdict.rule, verdict.summary):
        return verdict
    within, quorum, others = verdict.within, verdict.quorum, verdict.not_requester
    return NeedsApproval(rule, verdict.by, summary, within, quorum, others)


def approved_by(approval: Approval) -> Approved:
    """Return the approvers in the form that a policy gets."""
    names = tuple(vote.by for vote in votes_of(approval))
    return Approved(approval.id, names, approval.claims, _utc(approval.decided_at))


def demand_of(verdict: NeedsApproval) -> Demand:
    """Return the approval that a verdict requires."""
    return Demand(verdict.rule, verdict.by, verdict.quorum, verdict.not_requester)


def verdict_text(execution: NodeExecution, verdict: Verdict) -> str:
    """Return the verdict as the ledger records it: the word, the rule and the policy's version."""
    version = policy_version(execution.workflow.policy)
    word = "allow" if isinstance(verdict, Allow) else "needs approval"
    return f"policy: {word} {verdict.rule} @{version}" if version else f"policy: {verdict.rule}"


# --- before and after a model ------------------------------------------------------------------------
async def offered(execution: NodeExecution, activities: Sequence[Activity[Any, Any]]) -> list[Activity[Any, Any]]:
    """Return the activities that may be offered in this visit; each execution gets the same ones."""
    if execution.workflow.policy is None:
        return list(activities)
    visit, memos = execution.session.held.run.visit, execution.session.held.memos
    fresh: dict[str, Memo] = {}
    for activity in activities:
        key = f"{MEMOS}offer/{activity.name}"
        if (visit, key) not in memos and key not in fresh:
            plan: Plan[Any] = Plan(activity.name, "", b"{}", digest(activity.name))
            fresh[key] = _memo(execution, key, plan, ask(execution, plan, "offer"), "offer", "")
    for commit in effect_verbs.remember_all(execution.session.held.run, fresh.values()):
        await execution.session.chain.land(commit)
    return [a for a in activities if not isinstance(_recall(execution, f"{MEMOS}offer/{a.name}"), Deny)]


async def proposed(execution: NodeExecution, plan: Plan[Any], by: str) -> Verdict:
    """Return the policy's verdict on a plan that is not executed, and record a denial.

    It is remembered within the visit.
    """
    if execution.workflow.policy is None:
        return Allow()
    key = f"{MEMOS}proposal/{plan.digest[:32]}"
    if (execution.session.held.run.visit, key) not in execution.session.held.memos:
        memo = _memo(execution, key, plan, ask(execution, plan, "proposal", proposed_by=by), "proposal", by)
        await execution.session.chain.land(effect_verbs.remember(execution.session.held.run, memo))
    verdict = _recall(execution, key)
    if isinstance(verdict, Deny):
        log_denial(execution, plan, verdict, "proposal", key, by)
    return verdict


def record_denial(execution: NodeExecution, plan: Plan[Any], verdict: Deny, occasion: Occasion) -> None:
    """Record a denied effect: its memo now, its event with the next move of the run."""
    key = (
        # asked again after a message, so a separate denial
        f"{MEMOS}{occasion}/{plan.digest[:32]}/{execution.session.held.inbox_read}"
    )
    if (execution.session.held.run.visit, key) not in execution.session.held.memos:
        execution.session.chain.submit(
            effect_verbs.remember(execution.session.held.run, _memo(execution, key, plan, verdict, occasion, ""))
        )
    log_denial(execution, plan, verdict, occasion, key, "")


async def record_refusal(execution: NodeExecution, plan: Plan[Any], verdict: Deny, occasion: Occasion) -> Deny:
    """Record a denial that the node gets as Refused, before it gets it: each re-run of the visit gets the same one."""
    key = _refusal_key(plan)
    memo = _memo(execution, key, plan, verdict, occasion, "")
    await execution.session.chain.land(effect_verbs.remember(execution.session.held.run, memo))
    log_denial(execution, plan, verdict, occasion, key, "")
    return verdict


def recorded_refusal(execution: NodeExecution, plan: Plan[Any]) -> Deny | None:
    """Return the denial that an earlier execution of this visit gave to the node, and log it again."""
    key = _refusal_key(plan)
    if (memo := execution.session.held.memos.get((execution.session.held.run.visit, key))) is None:
        return None
    decision = decision_of(memo)
    assert isinstance(decision.verdict, Deny)
    log_denial(execution, plan, decision.verdict, decision.occasion, key, "")
    return decision.verdict


def _refusal_key(plan: Plan[Any]) -> str:
    return f"{MEMOS}refused/{plan.digest[:32]}"


def log_denial(
    execution: NodeExecution, plan: Plan[Any], verdict: Deny, occasion: Occasion, key: str = "", by: str = ""
) -> None:
    """Add a denial to the history, once per `key` and visit."""
    key = key or f"{MEMOS}{verdict.rule}/{plan.digest[:32]}"
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


class RecordedDecision(NamedTuple):
    """Verdict of the policy on one plan, as a memo of the run keeps it."""

    occasion: Occasion
    activity: str
    key: str
    arguments: dict[str, Any]
    node: str
    proposed_by: str
    policy_version: str
    verdict: Verdict


_PLAIN: Final = RecordedDecision._fields[:-1]


def _memo(execution: NodeExecution, key: str, plan: Plan[Any], verdict: Verdict, occasion: Occasion, by: str) -> Memo:
    run = execution.session.held.run
    arguments, policy = json.loads(plan.arguments), policy_version(execution.workflow.policy)
    decision = RecordedDecision(occasion, plan.activity, plan.key, arguments, run.node, by, policy, verdict)
    plain = decision._asdict()
    del plain["verdict"]
    response = json.dumps({**plain, **dump(verdict, execution.session.clock.now.business)}, ensure_ascii=False).encode()
    return Memo(
        run.tenant, run.run, run.visit, key, plan.activity, "", response, "", execution.session.clock.now.business
    )


def decision_of(memo: Memo) -> RecordedDecision:
    """Return the decision in a memo, decoded at each call. Raises Corrupt."""
    body = decoded(memo.response or b"", f"the verdict in memo {memo.key}")
    try:
        return RecordedDecision(**{**{name: body[name] for name in _PLAIN}, "verdict": _verdict_of(body)})
    except (KeyError, TypeError, ValueError) as error:
        raise Corrupt(f"memo {memo.run}/{memo.key}: it records no verdict: {error!r}") from error


def dump(verdict: Verdict, at: int) -> dict[str, Any]:
    """Return a verdict as plain data. `at`: business instant at which it was given."""
    if isinstance(verdict, Allow):
        return {"verdict": "allow", "rule": verdict.rule}
    if isinstance(verdict, Deny):
        return {"verdict": "deny", "rule": verdict.rule, "detail": verdict.detail}
    return {
        "verdict": "needs_approval",
        "rule": verdict.rule,
        "by": str(verdict.by),
        "summary": verdict.summary,
        **_within(verdict.within, at),
        "quorum": verdict.quorum,
        "not_requester": verdict.not_requester,
    }


def _within(within: timedelta | BusinessDays, at: int) -> dict[str, Any]:
    """Return the time for a decision as plain data. Business days have the holidays of a year from `at`."""
    if isinstance(within, timedelta):
        return {"within_s": within.total_seconds()}
    return {"within_days": TERM.encode(within.fixed(at, at + ASKED_AGAIN_WITHIN))}


def _within_of(body: dict[str, Any]) -> timedelta | BusinessDays:
    if (days := body.get("within_days")) is None:
        return timedelta(seconds=body["within_s"])
    if (term := TERM.decode(days)) is None:
        raise ValueError("within_days is empty")
    return term


def _verdict_of(body: dict[str, Any]) -> Verdict:
    if body["verdict"] == "allow":
        return Allow(body["rule"])
    if body["verdict"] == "deny":
        return Deny(body["rule"], body["detail"])
    return NeedsApproval(
        body["rule"],
        Rule.parse(body["by"]),
        body["summary"],
        _within_of(body),
        body["quorum"],
        body["not_requester"],
    )


def _recall(execution: NodeExecution, key: str) -> Verdict:
    return decision_of(execution.session.held.memos[execution.session.held.run.visit, key]).verdict


def _utc(at_ms: int) -> datetime:
    return utc(at_ms)
