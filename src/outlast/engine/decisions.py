"""What people do to an approval: decide it, vote, change it, claim it, hand it to others (GATE-2, GATE-9).

Each is a compare-and-set of the approval's row with its expiry in the condition. Whoever comes too late, twice, or with
something that was never offered is told which rule refused (`refusal`), and nothing is written.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from outlast.core import people
from outlast.core.codec import canonical
from outlast.core.commit import Commit, Put
from outlast.core.machine import ApprovalStatus, Reason
from outlast.core.rows import Approval, Run
from outlast.engine.commands import RACES_MAX, busy, check_reason, find_approval, over
from outlast.engine.policy import judge, satisfies
from outlast.errors import Conflict, Ended, Forbidden, InvalidInput, LimitExceeded, NotStorable, OutlastError, Stale
from outlast.flow.plan import Plan
from outlast.flow.policy import Deny, NeedsApproval, Verdict
from outlast.flow.workflow import Workflow
from outlast.store.port import Store

Answer = Literal["approve", "reject", "again"]


class ChosenPlan(NamedTuple):
    """What is approved: the digest of a plan, and the plan itself where a person changed it."""

    digest: str
    changed: Mapping[str, Any] | None = None
    verdict: Verdict | None = None  # of the workflow's policy on a changed plan


async def decide(
    store: Store,
    approval: Approval,
    *,
    verb: Answer,
    chosen: str,
    by: str,
    claims: Sequence[str],
    reason: str,
    changed: Mapping[str, Any] | None = None,
    verdict: Verdict | None = None,
    version: int = 0,
) -> Approval:
    """Decide, or vote, once. Raises Conflict or Forbidden, each with its `refusal`.

    The caller's right to decide `approval` is the caller's to check; where that row changed meanwhile in who may
    decide or what is offered, the decision is refused as `moved`. `version`: of the row that the decider has seen;
    where it is named, any change since is refused so.
    """
    check_reason(reason)
    row = approval
    if version and version != row.version:
        raise _moved(row) if row.status is ApprovalStatus.PENDING else _decided(row)
    for _ in range(RACES_MAX):
        _check(row, verb, chosen, by, changed)
        commit = people.decide(
            row, verb=verb, chosen=chosen, by=by, claims=claims, reason=reason, now=await store.now(), changed=changed
        )
        _heed(commit, verdict)
        if (left := await _landed(store, row, commit)) is None:
            return next(put.row for put in commit.writes if isinstance(put, Put) and isinstance(put.row, Approval))
        if version:
            raise _moved(left)
        if left.who != row.who:
            raise Conflict(
                f"approval {row.id} was handed to others while you decided",
                f"it is {left.who} who decides now",
                f"look again: outlast approvals show {row.id}",
                refusal="moved",
            )
        row = left
    raise busy(row.run)


async def claim(store: Store, approval: Approval, *, by: str, version: int = 0) -> Approval:
    """Say "I look at it". Raises Conflict: it is decided, expired or withdrawn, or not at the `version` seen."""
    return await _change(store, approval, lambda row: people.look(row, by=by), version)


async def reassign(store: Store, approval: Approval, *, who: str, by: str, reason: str, version: int = 0) -> Approval:
    """Let others decide; recorded with old, new and why. Raises as `claim`, and InvalidInput (no reason)."""
    if not reason.strip():
        raise InvalidInput("handing an approval to others needs a reason", "people will read it", "say why")
    check_reason(reason)
    return await _change(store, approval, lambda row: people.reassign(row, who=who, by=by, reason=reason), version)


async def _change(store: Store, approval: Approval, make: Any, version: int) -> Approval:
    row = approval
    if version not in (0, row.version):
        raise _moved(row)
    for _ in range(RACES_MAX):
        if row.status is not ApprovalStatus.PENDING:
            raise _decided(row)
        if (left := await _landed(store, row, make(row))) is None:
            return await find_approval(store, row.tenant, row.id)
        if version:
            raise _moved(left)
        if left.who != row.who:
            raise Conflict(f"approval {row.id} was handed to others meanwhile", f"to {left.who}", refusal="moved")
        row = left
    raise busy(row.run)


async def _landed(store: Store, row: Approval, commit: Commit) -> Approval | None:
    """None once it has landed, else the row as it stands now, still pending. Raises Conflict for one that is not."""
    try:
        await store.commit(commit)
    except Ended:
        raise over(row.run) from None
    except Stale as stale:
        left = await find_approval(store, row.tenant, row.id)
        if stale.reason == ApprovalStatus.EXPIRED:
            raise _expired(row) from None
        if left.status is not ApprovalStatus.PENDING:
            raise _decided(left) from None
        return left
    return None


def _check(row: Approval, verb: Answer, chosen: str, by: str, changed: Mapping[str, Any] | None) -> None:
    """What can be said before the store is asked; the store judges version and time."""
    if row.not_requester and by == row.requested_by:
        raise Forbidden(
            f"{by} may not decide {row.id}",
            f"{by} requested the run, and whoever requests it does not decide here",
            "somebody else who holds the role has to decide",
            refusal="requester",
        )
    if row.status is not ApprovalStatus.PENDING:
        raise _decided(row)
    if verb == "again" and not row.again:
        raise Conflict(
            f"approval {row.id} does not offer another round",
            "the workflow allows no further round here",
            f"approve or reject it: outlast approvals show {row.id}",
            refusal="no_further_round",
        )
    votes = people.votes_of(row)
    if any(vote["by"] == by for vote in votes):
        raise Conflict(
            f"{by} has voted on {row.id} already",
            f"it takes {row.quorum} different people; {len(votes)} approved so far",
            "somebody else has to decide",
            refusal="voted",
        )
    if verb != "approve":
        return
    _check_intact(row)
    if chosen not in [plan["digest"] for plan in json.loads(row.plans)] and changed is None:
        raise Conflict(
            f"approval {row.id} does not offer this plan",
            "only what was put to people can be approved",
            f"see what it offers: outlast approvals show {row.id}",
            refusal="not_offered",
        )
    if votes and votes[0]["chosen"] != chosen:
        offered = [plan["digest"] for plan in json.loads(row.plans)]
        raise Conflict(
            f"the votes on {row.id} are for another plan",
            f"{', '.join(vote['by'] for vote in votes)} approved alternative {offered.index(votes[0]['chosen'])}, and "
            "all votes have to be for the same plan",
            f"approve that one (--alternative {offered.index(votes[0]['chosen'])}), or reject it",
            refusal="other_vote",
        )


def _check_intact(row: Approval) -> None:
    """Raise Conflict if a stored plan is not the one that was asked for: people read it, and the digest is approved."""
    if key := people.altered_plan(row):
        raise Conflict(
            f"approval {row.id} cannot be approved: what it shows is not what was asked",
            f"activity, key and arguments stored for {key} do not give the digest stored beside them",
            f"reject it, or start a new run; look for other altered rows: outlast fsck --chain (run {row.run})",
            refusal="altered",
        )


def _heed(commit: Commit, verdict: Verdict | None) -> None:
    """The policy's word on a changed plan: a decision that it would not honour is refused now."""
    put = commit.writes[0]
    assert isinstance(put, Put) and isinstance(put.row, Approval)
    if isinstance(verdict, Deny):
        raise Conflict(
            f"policy denies what {put.row.id} was changed to",
            f"{verdict.rule}: {verdict.detail}",
            "approve other values, the plan as it was offered, or reject it",
            refusal=Reason.POLICY_DENIED.value,
        )
    decided = put.row.status is ApprovalStatus.APPROVED
    if decided and isinstance(verdict, NeedsApproval) and not satisfies(put.row, verdict):
        raise Conflict(
            f"policy wants more than {put.row.id} asks for, for what it was changed to",
            f"{verdict.rule}: {verdict.quorum} of {verdict.by}",
            "approve other values, the plan as it was offered, or reject it",
            refusal="policy_asks",
        )


def _expired(approval: Approval) -> Conflict:
    return Conflict(
        f"approval {approval.id} has expired",
        "the time to decide is over by the store's clock; nothing was approved or rejected",
        f"see what the run waits for now: outlast runs show {approval.run}",
        refusal=ApprovalStatus.EXPIRED.value,
    )


def _moved(approval: Approval) -> Conflict:
    return Conflict(
        f"approval {approval.id} has changed since you saw it",
        f"it is at version {approval.version} now",
        f"look again: outlast approvals show {approval.id}",
        refusal="moved",
    )


def _decided(approval: Approval) -> Conflict:
    if approval.status is ApprovalStatus.EXPIRED:
        return _expired(approval)
    if approval.decided_by:
        why = f"{approval.decided_by} {approval.status} it: {approval.reason or 'no reason given'}"
    else:
        why = f"it is {approval.status}"
    withdrawn = approval.status is ApprovalStatus.WITHDRAWN
    return Conflict(
        f"approval {approval.id} cannot be decided any more",
        why,
        f"outlast runs show {approval.run}",
        refusal=approval.status.value if withdrawn else "decided",
    )


# --- a decision that changes what it approves -----------------------------------------------------------
async def change(
    store: Store,
    workflow: Workflow[Any],
    run: Run,
    approval: Approval,
    index: int,
    changes: Mapping[str, Any],
    *,
    by: str,
) -> ChosenPlan:
    """The plan that results from these changes, checked by the activity's types and asked of the policy (GATE-9).

    Raises Conflict (`not_editable`, `unchanged`, `drift`), InvalidInput with what does not fit.
    """
    _check_intact(approval)
    plans = json.loads(approval.plans)
    plan = plans[index]
    editable = json.loads(approval.editable) if approval.editable else []
    if refused := [name for name in changes if name not in editable]:
        raise Conflict(
            f"approval {approval.id} does not let anybody change {', '.join(refused)}",
            f"it lets people change {', '.join(editable) or 'nothing'}",
            "approve what is offered, or reject it",
            refusal="not_editable",
        )
    if people.CHANGED_BY in plan:
        raise Conflict(
            f"alternative {index} of {approval.id} is a change of another",
            "a change is made to one of the plans that were offered",
            f"change alternative {plan['of']}, or approve it as it is",
            refusal="not_offered",
        )
    made = _remade(workflow, plan, {}, approval)
    if made.approval_digest(run.tenant, run.run) != plan["digest"]:
        raise Conflict(
            f"{plan['activity']} has changed since {approval.id} was asked",
            "the same arguments make another call with the code that is loaded here",
            "load the code of the run's version",
            refusal="drift",
        )
    made = _remade(workflow, plan, changes, approval)
    digest = made.approval_digest(run.tenant, run.run)
    if digest == plan["digest"]:
        raise Conflict(
            f"nothing of {approval.id} would change", "the values are those offered", "leave --set out",
            refusal="unchanged",
        )  # fmt: skip
    now = await store.now()
    arguments = json.loads(made.arguments)
    entry = {
        "activity": made.activity,
        "key": made.key,
        "digest": digest,
        "arguments": made.arguments.decode(),
        "of": index,
        people.CHANGED_BY: by,
        "changed_at": now.business,
        "changes": {name: arguments[name] for name in changes},
    }
    return ChosenPlan(digest, entry, judge(workflow, run, made, "decision", now, proposed_by=by))


def _remade(workflow: Workflow[Any], plan: Any, changes: Mapping[str, Any], approval: Approval) -> Plan[Any]:
    activity = workflow.activity(plan["activity"])
    try:
        data = canonical({**json.loads(plan["arguments"]), **changes})
        args, kwargs = activity.load_args(data)
        made: Plan[Any] = activity.plan(*args, **kwargs)
    except (NotStorable, LimitExceeded) as error:
        raise _does_not_fit(approval, error) from error
    return made


def _does_not_fit(approval: Approval, error: OutlastError) -> InvalidInput:
    return InvalidInput(
        f"the changes to {approval.id} do not fit", f"{error.what}: {error.why}", "give values of the declared types"
    )
