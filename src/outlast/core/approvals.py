"""Approvals: who may decide, the verbs, a person's decision as one step, and what an approval covers (S-20).

A decision is a pure function. `person_decides` gets the row, the actor, the choice and the time. It returns the commit
with the row that it writes, or raises the refusal. The store judges version and expiry again when the commit lands.
"""

import json
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

from outlast.core.approver_rule import Rule, identity
from outlast.core.codec import digest
from outlast.core.commit import Commit, Fence, Instant, Put, When, append_to_inbox
from outlast.core.keys import check_given_reason, check_reason
from outlast.core.machine import ApprovalStatus, Reason, approval_target
from outlast.core.rows.approval_columns import CLAIMS, PLANS, VOTES, ApprovalVote, OfferedCall, PlanChange
from outlast.core.rows.effect_rows import APPROVAL, Approval
from outlast.errors import Conflict, Forbidden, NotFound, NotStorable

DecisionVerb = Literal["approve", "reject", "again"]
LISTED_CHARS_MAX: Final = 300
"""Characters of a call in a line of a list."""


# --- who may decide ---------------------------------------------------------------------------
class _Everything:
    def __contains__(self, name: object) -> bool:
        return True


EVERY_ROLE: Final[Container[str]] = _Everything()
"""The roles of the local operator, who holds every role."""
NO_ROLE: Final = "(no role)"
"""Recorded for a voter who holds no role, because an empty list means every role. No role has this name."""
ADMIN: Final = "admin"
"""The role that may reassign any approval."""


@dataclass(frozen=True)
class Actor:
    """The person or program that acts: `name` is recorded in history, `roles` say what it may decide."""

    name: str
    roles: Container[str] = field(default=EVERY_ROLE)
    claims: tuple[str, ...] = ()
    """Names of the roles, for the record; () for the local operator, who has every role."""
    person: bool = True
    """False for agents and workers, which may not decide, whatever their roles and names."""

    @property
    def recorded_roles(self) -> tuple[str, ...]:
        """Names of the roles for a vote; () only for an actor who holds every role."""
        if self.claims or self.roles is EVERY_ROLE:
            return self.claims
        held = sorted(self.roles) if isinstance(self.roles, Iterable) else ()
        return tuple(held) or (NO_ROLE,)

    def check_person(self) -> None:
        """Raise Forbidden if the actor is a program."""
        if not self.person:
            raise Forbidden(
                f"{self.name} may not decide anything",
                "it is a program, and only people may decide, whatever roles a program has",
                "ask a person to decide",
                refusal="not_a_person",
            )


def may_decide(actor: Actor, approval: Approval) -> bool:
    """Return True if the approval's rule allows the actor, by roles or by name."""
    return Rule.parse(approval.who).allows(actor.roles, actor.name)


def waits_for(approval: Approval, actor: Actor) -> bool:
    """Return True if the approval is pending and this actor, a person, may decide it or vote on it now."""
    if approval.status is not ApprovalStatus.PENDING:
        return False
    excluded = [approval.requested_by] if approval.not_requester else []
    return waits_by_rule(approval.who, [*excluded, *(vote.by for vote in votes_of(approval))], actor)


def waits_by_rule(who: str, excluded: Iterable[str], actor: Actor) -> bool:
    """Return True if this rule of a pending approval allows the actor, a person who is none of the excluded ones."""
    allowed = actor.person and Rule.parse(who).allows(actor.roles, actor.name)
    return allowed and not any(_same(actor.name, name) for name in excluded)


def why_not(approval: Approval, actor: Actor) -> str:
    """Return why the actor may not decide the approval or vote on it, or '' if only its status can forbid it."""
    try:
        check_may_decide(actor, approval)
        _check_voter(approval, actor.name)
    except (Forbidden, Conflict) as error:
        return error.why
    return ""


# --- what an approval covers ------------------------------------------------------------------
def covers(approval: Approval, plan: str, now: int) -> bool:
    """True if the approval approved the call of digest `plan`, is unused, and is valid at `now` (business)."""
    return (
        approval.status is ApprovalStatus.APPROVED
        and approval.chosen == plan
        and not approval.consumed_by
        and now < approval.valid_until
    )


def approvers_were_entitled(approval: Approval) -> bool:
    """Return True if the recorded roles of the approvers satisfy the rule when the approval is used (S10).

    It takes enough different approvers, each entitled by the rule under which he or she voted, and not the requester if
    the approval excludes the requester. A vote without roles is the local operator's, who holds all roles.
    """
    votes = votes_of(approval)
    people = {identity(vote.by) for vote in votes}
    entitled = all(_allowed(Rule.parse(vote.who), vote) for vote in votes)
    alone = bool(approval.not_requester) and identity(approval.requested_by) in people
    return entitled and not alone and len(people) == len(votes) >= approval.quorum


def _allowed(rule: Rule, vote: ApprovalVote) -> bool:
    return rule.allows(vote.claims or EVERY_ROLE, vote.by)


class Demand(NamedTuple):
    """Approval that a policy requires for a call: a rule, and how many different people must satisfy it."""

    rule: str
    by: Rule
    quorum: int
    not_requester: bool


def satisfies(approval: Approval, demand: Demand) -> bool:
    """Return True if enough approvers voted and the policy's rule allows each of them.

    A vote without roles is the local operator's, who holds all roles.
    """
    votes = votes_of(approval)
    people = {identity(vote.by) for vote in votes}
    if demand.not_requester and identity(approval.requested_by) in people:
        return False
    fit = {identity(vote.by) for vote in votes if _allowed(demand.by, vote)}
    return len(fit) >= demand.quorum and fit == people


# --- verbs ------------------------------------------------------------------------------------
class ApprovalMove(NamedTuple):
    """Result of a person's verb: the commit, and the approval row that it writes."""

    commit: Commit
    row: Approval


def ask(approval: Approval, *, fence: Fence) -> Commit:
    """Request an approval. `approval` is the new row; the fence holds the claim and the inbox as read (S-20)."""
    assert fence.inbox_seq is not None, "so that a cancel that arrives first refuses this commit"
    assert approval.status is approval_target("ask", None) and approval.version == 1
    assert approval.within_until > approval.asked_at
    return Commit((Put(APPROVAL, approval, 0),), fence, label=f"{approval.run} ask {approval.wait}")


def decide(
    approval: Approval,
    *,
    verb: DecisionVerb,
    chosen: str,
    by: str,
    claims: Sequence[str],
    reason: str,
    now: Instant,
    changed: OfferedCall | None = None,
) -> ApprovalMove:
    """Decide an approval once, before it expires by the store's clock, and make its run due (S-1, S-20).

    If a quorum is required, an approval below it is a vote: the request stays pending, and no run becomes due. All
    votes name the same plan, each by a different person; one rejection rejects. `changed` is the chosen plan if it is
    not among those offered; it is stored beside them.
    """
    assert not (approval.not_requester and _same(by, approval.requested_by)), "the requester may not decide"
    votes = votes_of(approval)
    assert all(not _same(vote.by, by) and (verb != "approve" or vote.chosen == chosen) for vote in votes)
    if verb == "approve" and approval.quorum > 1:
        votes = (*votes, ApprovalVote(by, tuple(sorted(claims)), chosen, reason, now.business, approval.who))
    row = approval._replace(version=approval.version + 1, votes_text=VOTES.encode(votes))
    if changed is not None and all(plan.digest != changed.digest for plan in approval.plans):
        row = row._replace(plans_text=PLANS.encode((*approval.plans, changed)))
    in_time = _in_time(approval)
    if verb == "approve" and len(votes) < approval.quorum and approval.quorum > 1:
        row = row._replace(status=approval_target("vote", approval.status))
        put = Put(APPROVAL, row, approval.version)
        return ApprovalMove(Commit((put,), whens=in_time, label=f"{approval.run} vote {approval.wait}"), row)
    status = approval_target(verb, approval.status)
    approve = status is ApprovalStatus.APPROVED
    row = row._replace(
        status=status,
        decided_at=max(now.business, approval.asked_at),  # by another process, perhaps by another clock
        decided_by=by,
        claims_text=CLAIMS.encode(claims),
        reason=reason,
        chosen=chosen if approve else "",
        valid_until=_valid_until(approval, now) if approve else 0,
    )
    message = append_to_inbox(approval.tenant, approval.run, "decision", approval.id, by)
    writes = (Put(APPROVAL, row, approval.version), message)
    return ApprovalMove(Commit(writes, whens=in_time, label=f"{approval.run} decide {approval.wait}"), row)


def _valid_until(approval: Approval, now: Instant) -> int:
    """Return the end of the time in which a decision of now may be used. Raises InvalidInput."""
    term = approval.calendar.valid if approval.calendar_text else None
    return now.business + approval.valid_ms if term is None else term.due(now.business).ms


def _same(left: str, right: str) -> bool:
    """Return True if two names of callers name one person."""
    return identity(left) == identity(right)


def _in_time(approval: Approval) -> tuple[When, ...]:
    return (When(approval.within_until, False, "business", ApprovalStatus.EXPIRED),)


def votes_of(approval: Approval) -> tuple[ApprovalVote, ...]:
    """Return each approval in order; without a quorum, the one decision."""
    if approval.votes_text or not approval.chosen:
        return approval.votes
    a = approval
    return (ApprovalVote(a.decided_by, a.claims, a.chosen, a.reason, a.decided_at, a.who),)


def approved_instead(approval: Approval, chosen: str = "") -> str:
    """Return the approved call as lists show it, if it is not the requested call; otherwise ''.

    `chosen`: digest of the call [that of the decision, or of the votes so far].
    """
    if not chosen and (chosen := approval.chosen) == "" and approval.status is ApprovalStatus.PENDING:
        chosen = next((vote.chosen for vote in approval.votes), "")
    if not chosen or approval.plans[0].digest == chosen:
        return ""
    for number, plan in enumerate(approval.plans):
        if plan.digest == chosen:
            by = plan.change.by if plan.change is not None else ""
            return changed_call(plan.activity, plan.arguments(), number, by)
    return ""


def changed_call(activity: str, arguments: Mapping[str, Any], number: int, changed_by: str) -> str:
    """Return a call that is not the requested one as lists show it: its arguments, and who changed them."""
    text = f"{activity} {json.dumps(arguments, ensure_ascii=False, separators=(',', ':'))}"
    if len(text) > LISTED_CHARS_MAX:
        text = text[: LISTED_CHARS_MAX - 1] + "…"
    return f"{text} ({f'edited by {changed_by}' if changed_by else f'alternative {number}'})"


def altered_plan(approval: Approval) -> str:
    """Return the key of the first stored plan whose digest does not match its call; '' if all match."""
    plans = approval.plans
    return next((plan.key for plan in plans if not is_exact(approval.tenant, approval.run, plan)), "")


def is_exact(tenant: str, run: str, plan: OfferedCall) -> bool:
    """True if the digest stored with a plan is that of its activity, key and arguments in this run."""
    try:
        return plan.digest == digest(tenant, run, plan.activity, plan.key, plan.arguments_text.encode())
    except NotStorable:
        return False


def acknowledge(approval: Approval, *, by: str) -> ApprovalMove:
    """Record that a person is looking at the approval. It binds no one, and no run becomes due."""
    row = approval._replace(
        version=approval.version + 1, status=approval_target("acknowledge", approval.status), claimed_by=by
    )
    put, label = Put(APPROVAL, row, approval.version), f"{approval.run} acknowledge {approval.wait}"
    return ApprovalMove(Commit((put,), whens=_in_time(approval), label=label), row)


def reassign(approval: Approval, *, who: str, by: str, reason: str) -> ApprovalMove:
    """Change the rule of who may decide; votes stay.

    The message keeps the old and the new rule, the person and the reason (GATE-8).
    """
    row = approval._replace(
        version=approval.version + 1, status=approval_target("reassign", approval.status), who=who, claimed_by=""
    )
    payload = json.dumps({"approval": approval.id, "from": approval.who, "to": who, "reason": reason}).encode()
    message = append_to_inbox(approval.tenant, approval.run, "reassign", approval.id, by, payload)
    writes, label = (Put(APPROVAL, row, approval.version), message), f"{approval.run} reassign {approval.wait}"
    return ApprovalMove(Commit(writes, whens=_in_time(approval), label=label), row)


def expire(approval: Approval, now: Instant, *, fence: Fence) -> Commit:
    """Expire an approval that was not decided in time by the store's clock. It is neither approved nor rejected."""
    row = approval._replace(version=approval.version + 1, status=approval_target("expire", approval.status))
    return Commit(
        (Put(APPROVAL, row, approval.version),),
        fence,
        whens=(When(approval.within_until, True, "business", "early"),),
        label=f"{approval.run} expire {approval.wait}",
    )


def withdraw(approval: Approval, now: Instant, *, why: str = "") -> Put | None:
    """Return the withdrawal of an approval that is pending, or approved and unused; None for others.

    `why`: the reason, for those who still want to decide. A decision keeps its own.
    """
    open_ = approval.status is ApprovalStatus.PENDING
    unused = approval.status is ApprovalStatus.APPROVED and not approval.consumed_by
    if not (open_ or unused):
        return None
    status, reason = approval_target("withdraw", approval.status), why if open_ else approval.reason
    return Put(
        APPROVAL, approval._replace(version=approval.version + 1, status=status, reason=reason), approval.version
    )


# --- a person's decision ----------------------------------------------------------------------
class PersonDecision(NamedTuple):
    """Decision as a person sent it. `version`: the row that the person saw; 0 = not checked."""

    verb: DecisionVerb
    reason: str
    alternative: int = 0  # index of the offered call; 0 = the requested one
    changes: Mapping[str, Any] = {}
    version: int = 0


class ChangedCall(NamedTuple):
    """Offered call with changed arguments, as the author's code makes it, and the verdict of the policy on it."""

    call: OfferedCall
    denied: str = ""  # rule and detail
    demand: Demand | None = None


Remake = Callable[[OfferedCall, Mapping[str, Any]], ChangedCall]
"""The author's code: makes an offered call again, with changed arguments."""


def person_decides(
    approval: Approval, actor: Actor, choice: PersonDecision, now: Instant, remake: Remake | None = None
) -> ApprovalMove:
    """Decide or vote for a person.

    Raises Conflict and Forbidden, each with its `refusal`, NotFound, and the errors of `remake`. Changed arguments need
    `remake`; it is called only if the person may decide.
    """
    check_may_decide(actor, approval)
    check_reason(choice.reason)
    _check_open(approval, choice.version, now)
    _check_voter(approval, actor.name)
    chosen, made = "", None
    if choice.verb == "approve":
        chosen, made = _chosen_call(approval, actor, choice, now, remake)
    elif choice.verb == "again" and not approval.again:
        raise Conflict(
            f"approval {approval.id} does not offer another round",
            "the workflow allows no further round here",
            f"approve or reject it: outlast approvals show {approval.id}",
            refusal="no_further_round",
        )
    move = decide(
        approval,
        verb=choice.verb,
        chosen=chosen,
        by=actor.name,
        claims=actor.recorded_roles,
        reason=choice.reason,
        now=now,
        changed=made.call if made else None,
    )
    if made is not None:
        _check_policy(move.row, made)
    return move


def person_acknowledges(approval: Approval, actor: Actor, now: Instant, *, version: int = 0) -> ApprovalMove:
    """Record that a person who may decide looks at the approval. Raises Conflict, Forbidden."""
    check_may_decide(actor, approval)
    _check_open(approval, version, now)
    return acknowledge(approval, by=actor.name)


def person_reassigns(
    approval: Approval, actor: Actor, who: Rule, reason: str, now: Instant, *, version: int = 0
) -> ApprovalMove:
    """Let other approvers decide, for a person who may decide or an admin. Raises Conflict, Forbidden, InvalidInput."""
    actor.check_person()
    if ADMIN not in actor.roles:
        check_may_decide(actor, approval)
    check_given_reason("a reassignment", "the approvers will read it", reason)
    _check_open(approval, version, now)
    return reassign(approval, who=str(who), by=actor.name, reason=reason)


def check_may_decide(actor: Actor, approval: Approval) -> None:
    """Raise Forbidden unless the actor is a person whom the approval's rule allows, by roles or by name."""
    actor.check_person()
    if not may_decide(actor, approval):
        persons = bool(Rule.parse(approval.who).persons)
        raise Forbidden(
            f"{actor.name} may not decide {approval.id}",
            f"this approval requires {'' if persons else 'the role '}{approval.who}",
            "ask one of these approvers" if persons else "ask an approver who holds this role",
            refusal="role",
        )


def _check_open(approval: Approval, version: int, now: Instant) -> None:
    """Raise Conflict unless the approval is pending, in time, and at the version that the person saw."""
    if approval.status is not ApprovalStatus.PENDING:
        raise _decided(approval)
    if version not in (0, approval.version):
        raise Conflict(
            f"approval {approval.id} has changed since you saw it",
            f"it is at version {approval.version} now",
            f"look again: outlast approvals show {approval.id}",
            refusal="moved",
        )
    check_in_time(approval, now)


def check_in_time(approval: Approval, now: Instant) -> None:
    """Raise Conflict if the approval's time is over. The store judges it again when the decision lands."""
    if now.business >= approval.within_until:
        raise _expired(approval)


def _check_voter(approval: Approval, by: str) -> None:
    """Raise Forbidden for the requester if excluded, Conflict for a second vote."""
    if approval.not_requester and _same(by, approval.requested_by):
        raise Forbidden(
            f"{by} may not decide {approval.id}",
            f"{by} requested the run, and the requester may not decide here",
            "another person with the role has to decide",
            refusal="requester",
        )
    votes = votes_of(approval)
    if any(_same(vote.by, by) for vote in votes):
        raise Conflict(
            f"{by} has voted on {approval.id} already",
            f"it takes {approval.quorum} different people; {len(votes)} approved so far",
            "another approver has to decide",
            refusal="voted",
        )


def _chosen_call(
    approval: Approval, actor: Actor, choice: PersonDecision, now: Instant, remake: Remake | None
) -> tuple[str, ChangedCall | None]:
    """Return the digest of the approved call, and the call if its arguments were changed. Raises NotFound, Conflict."""
    if not 0 <= choice.alternative < len(approval.plans):
        raise NotFound(
            f"approval {approval.id} has no alternative {choice.alternative}",
            f"it offers {len(approval.plans) - 1} beside the requested plan",
            f"list them with: outlast approvals show {approval.id}",
        )
    _check_intact(approval)
    made = None
    if choice.changes:
        assert remake is not None, "changed arguments are made by the author's code"
        made = _changed_call(approval, actor, choice, now, remake)
    chosen = made.call.digest if made else approval.plans[choice.alternative].digest
    votes = votes_of(approval)
    if votes and votes[0].chosen != chosen:
        other = [plan.digest for plan in approval.plans].index(votes[0].chosen)
        raise Conflict(
            f"the votes on {approval.id} are for another plan",
            f"{', '.join(vote.by for vote in votes)} approved alternative {other}, and "
            "all votes have to be for the same plan",
            f"approve that one (--alternative {other}), or reject it",
            refusal="other_vote",
        )
    return chosen, made


def _changed_call(
    approval: Approval, actor: Actor, choice: PersonDecision, now: Instant, remake: Remake
) -> ChangedCall:
    """Return the call with the person's changes (GATE-9). Raises Conflict and the errors of `remake`."""
    plan, editable = approval.plans[choice.alternative], approval.editable
    if refused := [name for name in choice.changes if name not in editable]:
        raise Conflict(
            f"approval {approval.id} does not allow a change of {', '.join(refused)}",
            f"it allows a change of {', '.join(editable) or 'nothing'}",
            "approve what is offered, or reject it",
            refusal="not_editable",
        )
    if plan.change is not None:
        raise Conflict(
            f"alternative {choice.alternative} of {approval.id} is itself a changed plan",
            "a change is made to one of the plans that were offered",
            f"change alternative {plan.change.of}, or approve it as it is",
            refusal="not_offered",
        )
    if remake(plan, {}).call.digest != plan.digest:
        raise Conflict(
            f"{plan.activity} has changed since {approval.id} was requested",
            "the same arguments make another call with the code that is loaded here",
            "load the code of the run's version",
            refusal="drift",
        )
    made = remake(plan, choice.changes)
    if made.call.digest == plan.digest:
        raise Conflict(
            f"the changes to {approval.id} change nothing",
            "the values are the offered ones",
            "leave --set out",
            refusal="unchanged",
        )
    arguments = made.call.arguments()
    values = json.dumps({name: arguments[name] for name in choice.changes}, ensure_ascii=False)
    change = PlanChange(choice.alternative, actor.name, now.business, values)
    return made._replace(call=made.call._replace(change=change))


def _check_intact(approval: Approval) -> None:
    """Raise Conflict if a stored plan does not match its digest: approvers read the plan and approve the digest."""
    if key := altered_plan(approval):
        raise Conflict(
            f"approval {approval.id} cannot be approved: the plan it shows is not the requested one",
            f"activity, key and arguments stored for {key} do not give the digest stored beside them",
            f"reject it, or start a new run; look for other altered rows: outlast fsck --chain (run {approval.run})",
            refusal="altered",
        )


def _check_policy(decided: Approval, made: ChangedCall) -> None:
    """Raise Conflict if the policy would not accept this decision on a changed plan."""
    if made.denied:
        raise Conflict(
            f"policy denies the changed plan of {decided.id}",
            made.denied,
            "approve other values, the plan as it was offered, or reject it",
            refusal=Reason.POLICY_DENIED.value,
        )
    demand = made.demand
    if decided.status is ApprovalStatus.APPROVED and demand is not None and not satisfies(decided, demand):
        raise Conflict(
            f"policy requires more for the changed plan than {decided.id} does",
            f"{demand.rule}: {demand.quorum} of {demand.by}",
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


def _decided(approval: Approval) -> Conflict:
    if approval.status is ApprovalStatus.EXPIRED:
        return _expired(approval)
    withdrawn = approval.status is ApprovalStatus.WITHDRAWN
    if withdrawn:
        noted = approval.reason if not approval.decided_by else ""
        why = f"it is {approval.status}" + (f": {noted}" if noted else "")
    else:
        why = f"{approval.decided_by} {approval.status} it: {approval.reason or 'no reason given'}"
    return Conflict(
        f"approval {approval.id} cannot be decided any more",
        why,
        f"outlast runs show {approval.run}",
        refusal=approval.status.value if withdrawn else "decided",
    )


# --- rounds ------------------------------------------------------------------------------------------
NOT_COUNTED: Final = -1
"""`Approval.again` of an approval that offers another round, if its author counts none."""


class Rounds(NamedTuple):
    """Further rounds that a person may ask for: how many are left, of how many in all."""

    left: int
    most: int


def rounds_of(row: Approval, of_run: Iterable[Approval]) -> Rounds | None:
    """Return the rounds that an approval has left; None if it offers none or its author does not count them.

    `of_run`: all approvals of its run. Each that was answered with `again` has used a round.
    """
    if row.again <= 0:
        return None
    used = sum(each.status is ApprovalStatus.AGAIN and each.asked_at <= row.asked_at for each in of_run)
    return Rounds(row.again, row.again + used)
