"""What people and programs outside a holder do to a run: start, signal, decide, cancel, continue, resolve."""

from typing import Any, Literal, NamedTuple

from outlast.core import people
from outlast.core.budget import SECOND
from outlast.core.codec import canonical, digest
from outlast.core.commit import Commit
from outlast.core.keys import check_name
from outlast.core.limits import NOTE_BYTES_MAX, TEXT_CHARS_MAX
from outlast.core.machine import ApprovalStatus, EffectStatus, Reason
from outlast.core.overlay import attention_of
from outlast.core.route import ANSWERED_BY_CONTINUE
from outlast.core.rows import APPROVAL, EFFECT, RUN, TOKEN, Approval, Effect, Run, Token, is_over
from outlast.core.verbs import start as start_verb
from outlast.engine.slots import limits_of
from outlast.errors import Conflict, Ended, InvalidInput, LimitExceeded, NotFound, Stale
from outlast.flow.workflow import Workflow
from outlast.store.port import Store

RACES_MAX = 50  # a command that lost so many races in a row says so


class Started(NamedTuple):
    """The run, and whether this call created it (False: it had been started under the same key)."""

    run: str
    created: bool


async def start(
    store: Store,
    workflow: Workflow[Any],
    given: bytes | str | dict[str, Any],
    *,
    tenant: str,
    actor: str,
    run: str,
    key: str = "",
    correlation_id: str = "",
    trace_id: str = "",
) -> Started:
    """Start a run, durably, before this returns. Raises InvalidInput with every problem at once, Conflict (RUN-4)."""
    check_name("run", run)
    workflow.activities  # noqa: B018 - checks the definition, once
    state = workflow.state_codec.canonical(workflow.first_state(given))
    stamp = digest(workflow.name, state)
    now = await store.now()
    token = Token(tenant, "", _start_key(workflow, key or run), stamp, run, now.business)
    node = workflow.start
    commit = start_verb(
        tenant=tenant,
        run=run,
        workflow=workflow.name,
        lane=workflow.lane,
        node=node.name,
        label=node.status or "",
        state=state,
        now=now,
        actor=actor,
        ceiling_ms=int((node.ceiling or workflow.ceiling).total_seconds() * SECOND),
        limited=bool(await limits_of(store, tenant)),
        token=token,
        correlation_id=correlation_id,
        trace_id=trace_id,
    )
    try:
        await store.commit(commit)
    except Stale:
        return await _started_before(store, token, workflow)
    return Started(run, True)


def _start_key(workflow: Workflow[Any], key: str) -> str:
    return f"start/{workflow.name}/{key}"


async def _started_before(store: Store, token: Token, workflow: Workflow[Any]) -> Started:
    before = await store.load(TOKEN, (token.tenant, "", token.key))
    if not isinstance(before, Token):
        raise Conflict(
            f"run {token.target} exists already", "another workflow or key started it", "choose another run id"
        )
    if before.digest != token.digest:
        raise Conflict(
            f"{workflow.name} was started before under this key with another input: {before.target}",
            "the same key means the same run, so the input must be the same",
            f"look at it with: outlast runs show {before.target}; or use another key",
        )
    return Started(before.target, False)


async def find_run(store: Store, tenant: str, run: str) -> Run:
    """The run row. Raises NotFound."""
    row = await store.load(RUN, (tenant, run))
    if not isinstance(row, Run):
        raise NotFound(f"no run {run}", f"tenant {tenant} has no run of this id", "list them with: outlast runs ls")
    return row


def _over(run: str) -> Conflict:
    return Conflict(
        f"run {run} has ended",
        "a run that has ended takes no note and makes no move",
        f"look at it with: outlast runs show {run}",
    )


async def signal(
    store: Store, *, tenant: str, run: str, name: str, payload: dict[str, Any], actor: str, signal_id: str = ""
) -> bool:
    """Leave a signal; False when this `signal_id` was left before. Raises NotFound, Conflict (ended), NotStorable."""
    check_name("signal", name)
    data = canonical(payload)
    if len(data) > NOTE_BYTES_MAX:
        raise LimitExceeded(
            f"signal {name} is too large",
            f"it takes {len(data):,} bytes, the limit is {NOTE_BYTES_MAX:,}",
            "keep large values elsewhere (file, object store) and send their address",
        )
    now = await store.now()
    commit = people.post(
        tenant=tenant,
        run=run,
        kind="signal",
        name=name,
        actor=actor,
        now=now,
        payload=data,
        signal_id=signal_id,
    )
    try:
        await store.commit(commit)
    except Ended:
        raise _over(run) from None
    except Stale as stale:
        if stale.reason == "missing":
            await find_run(store, tenant, run)
        return False
    return True


async def cancel(store: Store, *, tenant: str, run: str, actor: str, reason: str) -> None:
    """Ask that the run end. From here on no approval of it can be decided. Raises NotFound, Conflict (ended)."""
    if not reason.strip():
        raise InvalidInput("a cancel needs a reason", "people will read it in the run's history", "say why")
    _check_reason(reason)
    for _ in range(RACES_MAX):
        row = await find_run(store, tenant, run)
        approvals = await _approvals(store, tenant, run)
        try:
            await store.commit(people.cancel(row, approvals, actor=actor, reason=reason, now=await store.now()))
            break
        except Ended:
            raise _over(run) from None
        except Stale:
            continue
    else:
        raise _busy(run)
    await _withdraw_late(store, tenant, run)


def _check_reason(reason: str) -> None:
    if len(reason) > TEXT_CHARS_MAX:
        raise LimitExceeded("the reason is too long", f"at most {TEXT_CHARS_MAX:,} characters", "say it shorter")
    if not reason.isascii():
        try:
            reason.encode()
        except UnicodeEncodeError as error:
            raise InvalidInput("the reason is not text that can be stored", str(error), "decode it properly") from None


async def _withdraw_late(store: Store, tenant: str, run: str) -> None:
    """Approvals asked for between our reading and our cancel: nobody is told "accepted" after this returns (S-20)."""
    for _ in range(RACES_MAX):
        now = await store.now()
        puts = [put for a in await _approvals(store, tenant, run) if (put := people.withdraw(a, now)) is not None]
        if not puts:
            return
        try:
            await store.commit(Commit(tuple(puts), label=f"{run} withdraw"))
        except Stale:
            continue


async def _approvals(store: Store, tenant: str, run: str) -> list[Approval]:
    return [row for row in await store.rows(APPROVAL, (tenant, run)) if isinstance(row, Approval)]


async def find_approval(store: Store, tenant: str, approval: str) -> Approval:
    """The approval row. Raises NotFound."""
    page = await store.page(APPROVAL, tenant, {"id": approval}, limit=1)
    for row in page.rows:
        if isinstance(row, Approval):
            return row
    raise NotFound(
        f"no approval {approval}", f"tenant {tenant} has none of this id", "list them with: outlast approvals ls"
    )


async def decide(
    store: Store,
    approval: Approval,
    *,
    approve: bool,
    chosen: str,
    by: str,
    claims: list[str],
    reason: str,
) -> Approval:
    """Decide, once. Raises Conflict naming who decided first, or that it has expired or was withdrawn."""
    _check_reason(reason)
    if approval.status is not ApprovalStatus.PENDING:
        raise _decided(approval)
    now = await store.now()
    commit = people.decide(approval, approve=approve, chosen=chosen, by=by, claims=claims, reason=reason, now=now)
    try:
        await store.commit(commit)
    except Stale as stale:
        left = await find_approval(store, approval.tenant, approval.id)
        if stale.reason == ApprovalStatus.EXPIRED:
            raise Conflict(
                f"approval {approval.id} has expired",
                "the time to decide is over by the store's clock; nothing was approved or rejected",
                f"see what the run waits for now: outlast runs show {approval.run}",
            ) from None
        raise _decided(left) from None
    return await find_approval(store, approval.tenant, approval.id)


def _decided(approval: Approval) -> Conflict:
    if approval.decided_by:
        why = f"{approval.decided_by} {approval.status} it: {approval.reason or 'no reason given'}"
    else:
        why = f"it is {approval.status}"
    return Conflict(f"approval {approval.id} cannot be decided any more", why, f"outlast runs show {approval.run}")


async def go_on(store: Store, *, tenant: str, run: str, actor: str, reason: str) -> None:
    """The operator's `continue` of a run in attention, in the same visit. Raises Conflict where it does not answer."""
    _check_reason(reason)
    for _ in range(RACES_MAX):
        row = await find_run(store, tenant, run)
        if is_over(row):
            raise _over(run)
        reasons = attention_of(row)
        if not reasons:
            raise Conflict(
                f"run {run} needs no attention",
                "continue answers a run that waits for an operator",
                f"outlast runs show {run}",
            )
        other = [a for a in reasons if a.reason not in ANSWERED_BY_CONTINUE]
        if other:
            raise Conflict(
                f"continue does not answer {other[0].reason}", other[0].detail, _answer_to(other[0].reason, run)
            )
        refused = await _refused(store, row)
        commit = people.go_on(row, refused, actor=actor, reason=reason, now=await store.now())
        try:
            await store.commit(commit)
            return
        except Ended:
            raise _over(run) from None
        except Stale:
            continue
    raise _busy(run)


async def _refused(store: Store, run: Run) -> list[Effect]:
    """Effects whose attempts are used up, which `continue` re-opens."""
    keys = {(a.visit, a.key) for a in attention_of(run) if a.reason is Reason.RETRIES_EXHAUSTED}
    rows = [await store.load(EFFECT, (run.tenant, run.run, visit, key)) for visit, key in keys]
    return [row for row in rows if isinstance(row, Effect) and row.status is EffectStatus.REFUSED]


def _answer_to(reason: Reason, run: str) -> str:
    if reason is Reason.EFFECT_UNCERTAIN:
        return f"outlast effects resolve {run} KEY --happened ID | --did-not-happen | --give-up"
    return f"outlast runs cancel {run} --reason …"


def _busy(run: str) -> Conflict:
    return Conflict(f"run {run} moved too often meanwhile", "other writers were faster each time", "try again")


async def find_effect(store: Store, tenant: str, run: str, key: str) -> Effect:
    """The effect of this key: the open one, else the one of the latest visit. Raises NotFound."""
    await find_run(store, tenant, run)
    rows = [e for e in await store.rows(EFFECT, (tenant, run)) if isinstance(e, Effect) and e.key == key]
    if not rows:
        raise NotFound(
            f"run {run} has no effect {key}", "keys are spelt as the ledger shows them", f"outlast runs effects {run}"
        )
    return max(rows, key=lambda e: (e.status is EffectStatus.UNCERTAIN, e.visit))


async def resolve_effect(
    store: Store,
    effect: Effect,
    verb: Literal["happened", "did_not_happen", "give_up"],
    *,
    actor: str,
    reason: str,
    response: bytes | None = None,
    external_id: str = "",
) -> None:
    """A person's answer on an uncertain effect, once. Raises Conflict (not uncertain, resolved before, too early)."""
    _check_reason(reason)
    if effect.status is not EffectStatus.UNCERTAIN:
        raise _resolved(effect)
    commit = people.resolve_effect(
        effect, verb, by=actor, reason=reason, now=await store.now(), response=response, external_id=external_id
    )
    try:
        await store.commit(commit)
    except Ended:
        raise _over(effect.run) from None
    except Stale as stale:
        if stale.reason == "quiet":
            left = (effect.quiet_until - (await store.now()).real) / SECOND
            raise Conflict(
                f"{effect.key}: it is too early to say that it did not happen",
                f"a call that is still under way could land for another {max(left, 0):.0f} s",
                "look again at the receiver after that, then resolve it",
            ) from None
        raise _resolved(await find_effect(store, effect.tenant, effect.run, effect.key)) from None


def _resolved(effect: Effect) -> Conflict:
    by = f", settled by {effect.settled_by}" if effect.settled_by else ""
    return Conflict(
        f"effect {effect.key} is not uncertain", f"it is {effect.status}{by}", f"outlast runs effects {effect.run}"
    )
