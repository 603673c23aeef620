"""Replay of recorded policy requests against another policy. Read-only."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from functools import partial
from typing import Any, Literal, NamedTuple

from outlast.core.approvals import satisfies
from outlast.core.durations import SECOND
from outlast.core.lanes import version_in
from outlast.core.paging import pages
from outlast.core.rows.effect_rows import MEMO, Approval, Effect, Memo
from outlast.core.rows.run_rows import RUN, Run
from outlast.engine.commands import approvals_of
from outlast.engine.policy_gate import MEMOS, RecordedDecision, approved_by, call_policy, decision_of, demand_of, dump
from outlast.engine.user_code import text_of
from outlast.flow.policy import Deny, NeedsApproval, Occasion, Policy, PolicyRequest, Verdict, policy_version
from outlast.runtime.operations import Operations

RUNS_PER_PAGE = 200
Change = Literal["blocks", "asks", "asks_no_more", "allows"]


class ChangedVerdict(NamedTuple):
    """A call that the other policy would have judged differently.

    `blocks`: done, would be denied. `asks`: done without an approval that is now required. `asks_no_more`: approved by
    people, no longer necessary. `allows`: denied, would be allowed.
    """

    change: Change
    run: str
    node: str
    activity: str
    key: str
    at: int  # business
    was: str
    now: dict[str, Any]


class PolicyReplay(NamedTuple):
    """Number of replayed requests, and the changed verdicts."""

    policy_version: str
    effects: int
    denials: int
    findings: tuple[ChangedVerdict, ...]

    def count(self, change: Change) -> int:
        """Count the changed verdicts of one kind."""
        return sum(each.change == change for each in self.findings)


async def replay(ops: Operations, policy: Policy, *, since_ms: int, workflow: str = "") -> PolicyReplay:
    """Replay every effect first intended and every recorded denial of the last `since_ms` (real)."""
    now = await ops.store.now()
    mapping = ops.store.mapping()
    earliest = now.real - since_ms
    effects = denials = 0
    found: list[ChangedVerdict] = []
    async for run in _runs(ops, workflow, mapping.business(earliest)):
        approvals = {a.id: a for a in await approvals_of(ops.store, ops.tenant, run.run)}
        for effect in await ops.effect_rows(run.run):
            if effect.first_at >= earliest and not effect.undoes:
                effects += 1
                at = mapping.business(effect.first_at)
                found += _of_effect(policy, run, effect, approvals.get(effect.approval), at)
        for memo in await ops.store.rows(MEMO, (run.tenant, run.run)):
            if (denied := _denied(memo)) and mapping.real(memo.at) >= earliest:
                denials += 1
                found += _of_denial(policy, run, memo, denied)
    return PolicyReplay(policy_version(policy), effects, denials, tuple(found))


async def _runs(ops: Operations, workflow: str, since: int) -> AsyncIterator[Run]:
    where: dict[str, str | int] = {"workflow": workflow} if workflow else {}
    async for page in pages(partial(ops.store.page, RUN, ops.tenant, where, limit=RUNS_PER_PAGE)):
        for run in page.rows:
            if not run.ended_at or run.ended_at >= since:
                yield run


def _of_effect(policy: Policy, run: Run, effect: Effect, approval: Approval | None, at: int) -> list[ChangedVerdict]:
    occasion: Occasion = "consume" if approval else "commit"
    verdict = _ask(
        policy,
        run,
        effect.activity,
        effect.key,
        effect.arguments(),
        effect.node,
        effect.visit,
        at,
        occasion,
        approval,
        "",
    )
    asked_before = bool(effect.approval) and "needs approval" in effect.allowed_by
    change: Change | None = None
    if isinstance(verdict, Deny):
        change = "blocks"
    elif isinstance(verdict, NeedsApproval):
        change = None if approval and satisfies(approval, demand_of(verdict)) else "asks"
    elif asked_before:
        change = "asks_no_more"
    if change is None:
        return []
    found = ChangedVerdict(
        change, run.run, effect.node, effect.activity, effect.key, at, effect.allowed_by, dump(verdict, at)
    )
    return [found]


def _denied(memo: Memo) -> RecordedDecision | None:
    """Return a recorded denial of a call, else None. A plan that was not offered is no denial."""
    if not memo.key.startswith(MEMOS) or not memo.response:
        return None
    decision = decision_of(memo)
    return decision if isinstance(decision.verdict, Deny) and decision.occasion != "offer" else None


def _of_denial(policy: Policy, run: Run, memo: Memo, was: RecordedDecision) -> list[ChangedVerdict]:
    verdict = _ask(
        policy,
        run,
        was.activity,
        was.key,
        was.arguments,
        was.node,
        memo.visit,
        memo.at,
        was.occasion,
        None,
        was.proposed_by,
    )
    if isinstance(verdict, Deny):
        return []
    rule_text = f"policy: deny {was.verdict.rule} @{was.policy_version}"
    return [
        ChangedVerdict("allows", run.run, was.node, was.activity, was.key, memo.at, rule_text, dump(verdict, memo.at))
    ]


def _ask(
    policy: Policy,
    run: Run,
    activity: str,
    key: str,
    arguments: dict[str, Any],
    node: str,
    visit: int,
    at: int,
    occasion: Occasion,
    approval: Approval | None,
    proposed_by: str,
) -> Verdict:
    request = PolicyRequest(
        activity=activity,
        key=key,
        arguments=arguments,
        tenant=run.tenant,
        workflow=run.workflow,
        version=version_in(run.lane),
        run_id=run.run,
        node=node,
        visit=visit,
        requested_by=run.requested_by,
        moment=datetime.fromtimestamp(at / SECOND, UTC),
        occasion=occasion,
        approval=approved_by(approval) if approval else None,
        proposed_by=proposed_by,
        policy_version=policy_version(policy),
    )
    try:
        return call_policy(policy, request)
    except Exception as error:  # in a run, the error would stop the run before the call
        return Deny("the policy raised", text_of(error))
