"""Commands of operators and programs: start, signal, cancel, continue, answer attention, set and raise budgets."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from operator import attrgetter
from typing import Any, Generic, NamedTuple, TypeVar

from outlast.core import approvals, budget, mailbox
from outlast.core.acts import KeyedAct, with_token
from outlast.core.approvals import (
    Actor,
    ApprovalMove,
    PersonDecision,
    person_acknowledges,
    person_decides,
    person_reassigns,
)
from outlast.core.approver_rule import Rule
from outlast.core.assignments import (
    AssignedItem,
    AssignmentRequest,
    assign,
    assignment_of,
    assignments_of,
    assignments_row,
)
from outlast.core.attention import (
    ENDS,
    AttentionAnswer,
    AttentionRows,
    DecidedAnswer,
    effects_named,
    effects_undone,
    person_answers,
    person_continues,
)
from outlast.core.business_days import BusinessDays
from outlast.core.codec import canonical
from outlast.core.commit import Commit, Expect, Instant, Put, append_to_inbox, in_portions
from outlast.core.drain import DRAINS, DrainRequest, drains_of, request_drain
from outlast.core.kept_deadlines import ceiling_memo
from outlast.core.keys import check_given_reason, check_name, check_reason, check_text
from outlast.core.lanes import check_scheduler
from outlast.core.limits import MESSAGE_BYTES_MAX
from outlast.core.machine import EffectStatus, Reason
from outlast.core.mailbox import EffectAnswer, check_unfinished, over
from outlast.core.paging import pages
from outlast.core.rows.all_kinds import Row
from outlast.core.rows.effect_rows import APPROVAL, EFFECT, MEMO, Approval, Effect
from outlast.core.rows.limit_rows import TENANT_BUDGET
from outlast.core.rows.row_kind import AnyKind, Key, key_of, version_of
from outlast.core.rows.run_columns import REASON
from outlast.core.rows.run_rows import EVENT, RUN, TOKEN, Run, Token
from outlast.core.rows.store_rows import META, STORE, WORKER, Worker
from outlast.core.start_details import NO_DETAILS, StartDetails, check_details
from outlast.core.terms import Deadline, end_of
from outlast.core.usage import EACH_DAY, Amounts, Limits, TenantBudget
from outlast.core.verbs import NewRun
from outlast.core.verbs import start as start_verb
from outlast.engine.admission import limits_of
from outlast.engine.approval_waits import remake_with
from outlast.engine.known_budgets import blind_budget
from outlast.engine.late_records import notify_waiting
from outlast.engine.snapshots import first_snapshot, joined
from outlast.engine.store_maintenance import ledger_purged
from outlast.errors import Conflict, Ended, InvalidInput, LimitExceeded, NotFound, OutlastError, Stale
from outlast.flow.node import Node
from outlast.flow.workflow import Workflow
from outlast.store.landed_acts import done_before
from outlast.store.port import Store
from outlast.store.queries import ROWS_MAX
from outlast.telemetry.traces import Traces

RUNS_PER_PAGE = 500
RACES_MAX = 50  # lost races in a row after which a command gives up
T = TypeVar("T")


class StartedRun(NamedTuple):
    """The run, and whether this call created it (False: it was started under the same key before)."""

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
    scheduler: str = "",
    details: StartDetails = NO_DETAILS,
    is_limited: bool = True,
    message: tuple[str, str] | None = None,
) -> StartedRun:
    """Start a run durably. Raises InvalidInput with all problems at once, Conflict, DefinitionError (RUN-4).

    Without `key`, the workflow's own start key applies; without that, the run id. `scheduler`: '' is this package's.
    `is_limited`: False for runs that need no admission slot. `message`: kind and reason of a first message to the run.
    """
    if scheduler:
        workflow = workflow.scheduled_by(check_scheduler(scheduler))
    check_name("tenant", tenant)
    check_name("run", run)
    check_text("the start key", key)
    check_details(details)
    workflow.activities  # noqa: B018 - checks the definition, once
    if (blind := blind_budget(workflow)) is not None:
        raise blind
    beginning = workflow.begin(given)
    state, derived = workflow.state_codec.canonical(beginning.state), beginning.key
    now = await store.now()
    token = Token(tenant, "", start_token(workflow, key or derived or run), beginning.digest, run, now.business)
    traces = Traces.wanted()
    trace = traces.start(workflow=workflow.name, tenant=tenant, run=run, trace_id=details.trace_id) if traces else None
    if trace:
        details = details._replace(trace_id=trace.trace_id)
    if beginning.objective:
        details = details._replace(objective=beginning.objective)
    first = workflow.start
    new = new_run(workflow, first, state, token=token, actor=actor, details=details, now=now.business)
    if workflow.attributes is not None:
        new = new._replace(attributes=beginning.attributes)
    try:
        begin = start_verb(new, now, limited=is_limited and bool(await limits_of(store, tenant)))
        if message is not None:
            kind, reason = message
            told = append_to_inbox(tenant, run, kind, workflow.name, actor, REASON.encode(reason).encode())
            begin = begin._replace(writes=(*begin.writes, told))
        await store.commit(begin)
    except Stale:
        return await _started_before(store, token, workflow, "" if key else derived)
    if trace:
        trace.landed()
    return StartedRun(run, True)


def new_run(
    workflow: Workflow[Any],
    node: Node,
    state: bytes,
    *,
    token: Token,
    actor: str,
    details: StartDetails,
    now: int,
) -> NewRun:
    """Return what the first commit of a run says, if it begins in this node now. The token names the run."""
    tenant, run = token.tenant, token.target
    snapshot, rows = first_snapshot(tenant, run, state, now)
    ceiling = _first_ceiling(workflow, node.ceiling, now)
    if ceiling.due is not None:
        rows = (*rows, Put(MEMO, ceiling_memo((tenant, run), node.name, ceiling.due, now), 0))
    return NewRun(
        tenant,
        run,
        workflow.name,
        workflow.lane,
        node.name,
        node.status_label,
        snapshot,
        ceiling.ms,
        actor,
        token,
        details,
        rows=rows,
    )


def _first_ceiling(workflow: Workflow[Any], own: timedelta | BusinessDays | None, now: int) -> Deadline:
    """Return the later one of the ceilings of a workflow and its first node. `own`: that of the node."""
    name = f"ceiling of {workflow.title}"
    of_workflow = end_of(name, workflow.ceiling, now)
    return max(of_workflow, end_of(name, own, now), key=attrgetter("ms")) if own else of_workflow


def start_token(workflow: Workflow[Any], key: str) -> str:
    """Return the key of the token of a start."""
    return f"start/{workflow.name}/{key}"


async def _started_before(store: Store, token: Token, workflow: Workflow[Any], derived: str) -> StartedRun:
    before = await store.load(TOKEN, (token.tenant, "", token.key))
    if before is None:
        raise Conflict(
            f"run {token.target} exists already", "another workflow or key started it", "choose another run id"
        )
    if before.digest != token.digest and not await _began_alike(store, workflow, before, token):
        under, why = "this key", "the same key means the same run, so the input must be the same"
        if derived:
            under, why = f"the key {derived}", "the workflow derives this key from its input, and another part differs"
        raise Conflict(
            f"{workflow.name} was started before under {under} with another input: {before.target}",
            why,
            f"look at it with: outlast runs show {before.target}; or start with another key: --key",
        )
    return StartedRun(before.target, False)


async def _began_alike(store: Store, workflow: Workflow[Any], before: Token, asked: Token) -> bool:
    """True if the run began with this input, whose sets were stored in another order (CKP-8)."""
    if not workflow.input_has_sets:
        return False
    run = (before.tenant, before.target)
    first = await store.load(EVENT, (*run, 1))
    if first is None or first.snapshot is None:
        return False
    try:
        return workflow.digest_of_first((await joined(store, run, first.snapshot)).state) == asked.digest
    except OutlastError:  # its state no longer fits the code, or a part of it is missing
        return False


async def find_run(store: Store, tenant: str, run: str) -> Run:
    """Return the run row. Raises NotFound."""
    row = await store.load(RUN, (tenant, run))
    if row is None:
        raise no_run(tenant, run)
    return row


def no_run(tenant: str, run: str) -> NotFound:
    """Return the error for a run id that does not exist."""
    return NotFound(f"no run {run}", f"tenant {tenant} has no run of this id", "list them with: outlast runs ls")


def busy(what: str) -> Conflict:
    """Return the error of a command that lost every race."""
    return Conflict(f"{what} changed too often", "other commands were faster each time", "try again")


def moved(kind: AnyKind, key: Key, version: int) -> Conflict:
    """Return the error for a row that has changed since the caller saw it."""
    what = f"{kind.name} {key[-1]}"
    return Conflict(
        f"{what} has changed since you saw it", f"it is at version {version} now", "look again", refusal="moved"
    )


def check_seen(seen: Expect | None, row: Row) -> None:
    """Raise Conflict (`moved`) if this row is not at the version that the caller saw; None skips the check."""
    if seen is not None and (version := version_of(seen.kind, row)) != seen.version:
        raise moved(seen.kind, seen.key, version)


def as_seen(commit: Commit, seen: Expect | None) -> Commit:
    """Return the commit with the condition that a row has the version that the caller saw."""
    return commit if seen is None else commit._replace(expects=(*commit.expects, seen))


@dataclass(frozen=True)
class Once(Generic[T]):
    """Act that is carried out once, its changes, and the answer to its repetition."""

    act: KeyedAct | None
    target: str
    again: Callable[[], Awaitable[T]]


async def land(
    store: Store,
    what: str,
    decide: Callable[[Instant], Awaitable[tuple[Commit, T]]],
    *,
    seen: Expect | None = None,
    once: Once[T] | None = None,
) -> T:
    """Read, decide and commit, again while other writers are faster. Return the result of the decision that landed.

    `decide` reads rows and calls one pure function of `core` on them. It returns the commit with a result, or raises
    the refusal. An act of `once` that has landed before is not decided again. Raises Conflict if `what` changed too
    often, or if the act had another content.
    """
    for _ in range(RACES_MAX):
        if once is not None and await done_before(store, once.act):
            return await once.again()
        now = await store.now()
        commit, result = await decide(now)
        first, last = mailbox.before_message(commit)
        if once is not None:
            last = with_token(last, once.act, once.target, now)
        try:
            for each in (*first, last):
                await store.commit(as_seen(each, seen))
        except Stale:  # the rows have changed, the run has ended or a time has passed: the next decision says which
            continue
        return result
    raise busy(what)


async def signal(
    store: Store,
    *,
    tenant: str,
    run: str,
    name: str,
    payload: dict[str, Any],
    actor: str,
    signal_id: str = "",
    seen: Expect | None = None,
) -> bool:
    """Append a signal to the run's inbox; False if this `signal_id` was appended before.

    Raises NotFound, Conflict (ended; moved: the run is not as `seen`), NotStorable.
    """
    check_name("signal", name)
    if seen is not None:
        check_seen(seen, await find_run(store, tenant, run))
    data = canonical(payload)
    if len(data) > MESSAGE_BYTES_MAX:
        raise LimitExceeded(
            f"signal {name} is too large",
            f"it takes {len(data):,} bytes, the limit is {MESSAGE_BYTES_MAX:,}",
            "keep large values elsewhere (file, object store) and send their address",
        )
    now = await store.now()
    commit = mailbox.append_message(
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
        await store.commit(as_seen(commit, seen))
    except Ended:
        raise over(run) from None
    except Stale as stale:
        row = await find_run(store, tenant, run) if stale.reason == "missing" or seen is not None else None
        if row and (not signal_id or await store.load(TOKEN, (tenant, run, f"signal/{signal_id}")) is None):
            check_seen(seen, row)
        return False
    return True


async def nothing() -> None:
    """Return the answer to the repetition of an act whose answer says nothing more."""


async def cancel(
    store: Store,
    *,
    tenant: str,
    run: str,
    actor: str,
    reason: str,
    seen: Expect | None = None,
    act: KeyedAct | None = None,
    job: str = "",
) -> None:
    """Request the end of a run. `job`: the run of the job that does so.

    From now on none of its approvals can be decided.

    Raises NotFound, Conflict (ended, moved).
    """
    check_given_reason("a cancel", "it appears in the run's history", reason)

    async def decide(now: Instant) -> tuple[Commit, None]:
        row = await find_run(store, tenant, run)
        check_seen(seen, row)
        check_unfinished(row)
        asked = await approvals_of(store, tenant, run)
        return mailbox.of_job(mailbox.cancel(row, asked, actor=actor, reason=reason, now=now), job), None

    await land(store, f"run {run}", decide, seen=seen, once=Once(act, run, nothing))
    await withdraw_late(store, tenant, run)


async def withdraw_late(store: Store, tenant: str, run: str) -> None:
    """Withdraw approvals that the run requested while it was cancelled (S-20).

    After this returns, no approver gets the answer "accepted".
    """
    for _ in range(RACES_MAX):
        now = await store.now()
        puts = [put for a in await approvals_of(store, tenant, run) if (put := approvals.withdraw(a, now)) is not None]
        if not puts:
            return
        try:
            for portion in in_portions(puts):
                await store.commit(Commit(portion, label=f"{run} withdraw"))
        except Stale:
            continue


async def approvals_of(store: Store, tenant: str, run: str) -> tuple[Approval, ...]:
    """Return all approvals of a run."""
    found: tuple[Approval, ...] = ()
    while True:
        page = await store.rows(APPROVAL, (tenant, run), after=found[-1][: APPROVAL.key] if found else ())
        found += page
        if len(page) < ROWS_MAX:
            return found


async def find_approval(store: Store, tenant: str, approval: str) -> Approval:
    """Return the approval row. Raises NotFound."""
    page = await store.page(APPROVAL, tenant, {"id": approval}, limit=1)
    if page.rows:
        return page.rows[0]
    raise NotFound(
        f"no approval {approval}", f"tenant {tenant} has none of this id", "list them with: outlast approvals ls"
    )


# --- decisions of people on approvals ---------------------------------------------------------
async def decide_approval(
    store: Store,
    tenant: str,
    approval: str,
    actor: Actor,
    choice: PersonDecision,
    code_of: Callable[[Run], Workflow[Any] | None],
    act: KeyedAct | None = None,
) -> Approval:
    """Decide or vote once, and return the row as written.

    `code_of` returns the code of a run, or None; changed arguments need it. Raises NotFound, InvalidInput, Conflict and
    Forbidden, the last two with their `refusal`.
    """

    async def decide(now: Instant) -> ApprovalMove:
        row = await find_approval(store, tenant, approval)
        if not choice.changes:
            return person_decides(row, actor, choice, now)
        run = await find_run(store, tenant, row.run)
        return person_decides(row, actor, choice, now, remake_with(code_of(run), run, actor.name, now))

    return await _land_approval(store, tenant, approval, decide, act)


async def _land_approval(
    store: Store,
    tenant: str,
    approval: str,
    decide: Callable[[Instant], Awaitable[ApprovalMove]],
    act: KeyedAct | None,
) -> Approval:
    """Land a change of an approval, and return the row as written, or as it is if the act landed before."""
    once = Once(act, approval, lambda: find_approval(store, tenant, approval))
    return await land(store, f"approval {approval}", decide, once=once)


async def acknowledge(
    store: Store, tenant: str, approval: str, actor: Actor, *, version: int = 0, act: KeyedAct | None = None
) -> Approval:
    """Record that an approver looks at it, and return the row as written. Raises as `decide_approval`."""

    async def decide(now: Instant) -> ApprovalMove:
        row = await find_approval(store, tenant, approval)
        return person_acknowledges(row, actor, now, version=version)

    return await _land_approval(store, tenant, approval, decide, act)


async def reassign(
    store: Store,
    tenant: str,
    approval: str,
    actor: Actor,
    who: Rule,
    reason: str,
    *,
    version: int = 0,
    act: KeyedAct | None = None,
) -> Approval:
    """Let other approvers decide, and return the row as written. Raises as `decide_approval`."""

    async def decide(now: Instant) -> ApprovalMove:
        row = await find_approval(store, tenant, approval)
        return person_reassigns(row, actor, who, reason, now, version=version)

    return await _land_approval(store, tenant, approval, decide, act)


# --- answers to attention ---------------------------------------------------------------------
async def _attention_rows(
    store: Store, tenant: str, run: str, seen: Expect | None, *, ends: bool = False
) -> AttentionRows:
    """Read the run, the effects that its attention names, and, if the answer ends it, its approvals."""
    row = await find_run(store, tenant, run)
    check_seen(seen, row)
    effects = await _effects(store, effects_named(row))
    effects += await _effects(store, effects_undone(row, effects))
    return AttentionRows(row, effects, await approvals_of(store, tenant, run) if ends else ())


async def _effects(store: Store, keys: Sequence[Key]) -> tuple[Effect, ...]:
    rows = await store.load_many(EFFECT, keys, listed=True) if keys else ()
    return tuple(row for row in rows if row is not None)


async def continue_run(
    store: Store,
    *,
    tenant: str,
    run: str,
    actor: str,
    reason: str,
    seen: Expect | None = None,
    act: KeyedAct | None = None,
) -> None:
    """Answer a run's attention with `continue`: it continues in the same visit.

    Raises Conflict if that is no answer to its reasons, or if the run is not as `seen` (moved).
    """

    async def decide(now: Instant) -> tuple[Commit, None]:
        rows = await _attention_rows(store, tenant, run, seen)
        return person_continues(rows, actor=actor, reason=reason, now=now), None

    await land(store, f"run {run}", decide, seen=seen, once=Once(act, run, nothing))


async def resolve_attention(
    store: Store,
    *,
    tenant: str,
    run: str,
    answer: AttentionAnswer,
    actor: str,
    seen: Expect | None = None,
    act: KeyedAct | None = None,
    job: str = "",
) -> Reason:
    """Answer one reason of a run's attention, and return it. `job`: the run of the job that answers.

    Raises NotFound, InvalidInput, Conflict (ended, not flagged so, not offered, answered before; moved: the run is not
    as `seen`).
    """
    ends = answer.choice in ENDS

    async def decide(now: Instant) -> tuple[Commit, DecidedAnswer]:
        rows = await _attention_rows(store, tenant, run, seen, ends=ends)
        decided = person_answers(rows, answer, actor=actor, now=now)
        return mailbox.of_job(decided.commit, job), decided

    async def again() -> DecidedAnswer:
        reason = answer.reason or Reason.EXCEPTION
        names_effect = reason is Reason.EFFECT_UNCERTAIN and answer.key
        return DecidedAnswer(
            Commit(()), reason, await find_effect(store, tenant, run, answer.key) if names_effect else None
        )

    decided = await land(store, f"run {run}", decide, seen=seen, once=Once(act, run, again))
    if ends:
        await withdraw_late(store, tenant, run)
    if decided.resolved is not None and decided.resolved.by_run:
        await notify_waiting(store, decided.resolved)
    return decided.reason


async def assign_attention(
    store: Store,
    *,
    tenant: str,
    run: str,
    to: str,
    actor: str,
    reason: Reason | None = None,
    key: str = "",
    note: str = "",
    act: KeyedAct | None = None,
) -> AssignedItem:
    """Assign an attention item of a run to a person, or remove its assignment (`to` is ''). The run is not changed.

    Raises NotFound, InvalidInput, Conflict (ended, no such item), LimitExceeded.
    """
    for _ in range(RACES_MAX):
        now, before = await store.now(), await store.load(META, assignments_row(tenant))
        row = await find_run(store, tenant, run)
        names = [(tenant, each) for each in assignments_of(before) if each != run]
        others = [each for each in await store.load_many(RUN, names, listed=True) if each is not None] if names else []
        item = assign(before, row, others, AssignmentRequest(to, actor, now.business, note, reason, key))
        if await done_before(store, act):  # another caller may have assigned it since
            present = assignment_of(assignments_of(before), row, item.entry)
            return item._replace(assignment=present, commit=None)
        try:
            if item.commit is not None:
                await store.commit(with_token(item.commit, act, run, now))
        except Stale:
            continue
        return item
    raise busy("the list of assignments")


async def find_effect(store: Store, tenant: str, run: str, key: str, *, visit: int | None = None) -> Effect:
    """Return the effect of this key: of this visit, else one that a person may answer, else the latest.

    Raises NotFound.
    """
    of = await find_run(store, tenant, run)
    rows = [e for e in await store.rows(EFFECT, (tenant, run)) if e.key == key]
    shared = await store.load(EFFECT, (tenant, "", 0, key))
    if shared is not None and shared.by_run == run:
        rows.append(shared)
    rows = [e for e in rows if visit in (None, e.visit)]
    if not rows and await ledger_purged(store, of):
        raise NotFound(
            f"the effects of run {run} were deleted",
            "the retention of its ledger is over; its history remains",
            f"outlast runs history {run}",
        )
    if not rows:
        raise NotFound(
            f"run {run} has no effect {key}" + (f" in visit {visit}" if visit is not None else ""),
            "use the key that the ledger shows",
            f"outlast runs effects {run}",
        )
    return max(rows, key=lambda e: (e.status is EffectStatus.UNCERTAIN, mailbox.may_answer(e), e.visit))


async def resolve_effect(
    store: Store,
    *,
    tenant: str,
    run: str,
    key: str,
    verb: EffectAnswer,
    actor: str,
    reason: str,
    encode: Callable[[Effect], bytes] | None = None,
    external_id: str = "",
    version: int = 0,
    visit: int | None = None,
    correct: bool = False,
    act: KeyedAct | None = None,
) -> None:
    """Record an operator's answer on the effect of a key. `encode` returns the response of a call that happened.

    `visit`: the effect is of this visit, and `version` of that effect. `correct`: replace another answer of a person
    that nothing has used. Raises NotFound, Conflict (settled, used, too early; moved: the effect is not at `version`).
    """

    async def decide(now: Instant) -> tuple[Commit, Effect]:
        of = await find_run(store, tenant, run)
        meant = await find_effect(store, tenant, run, key, visit=visit)
        if version not in (0, meant.version):
            raise moved(EFFECT, key_of(EFFECT, meant), meant.version)
        effect = meant if visit is None else await find_effect(store, tenant, run, key)
        if effect.visit != meant.visit:
            what = f"effect {key} of visit {meant.visit} is not uncertain"
            raise Conflict(what, f"that of visit {effect.visit} is", "list the effects")
        mailbox.check_resolvable(effect, verb, now, correct=correct)
        check_unfinished(of)
        response = encode(effect) if encode is not None else None
        mailbox.check_correction(effect, verb, response, external_id)
        commit = mailbox.resolve_effect(
            effect,
            verb,
            by=actor,
            reason=reason,
            now=now,
            response=response,
            external_id=external_id,
            in_visit=of.visit,
        )
        return commit, effect

    once = Once(act, run, lambda: find_effect(store, tenant, run, key, visit=visit))
    effect = await land(store, f"effect {key}", decide, once=once)
    if effect.by_run:
        await notify_waiting(store, effect)


# --- budgets ----------------------------------------------------------------------------------
async def raise_budget(
    store: Store,
    *,
    tenant: str,
    run: str,
    amounts: Amounts,
    actor: str,
    reason: str,
    seen: Expect | None = None,
    act: KeyedAct | None = None,
) -> None:
    """Add amounts to the budget of a run. Raises NotFound, InvalidInput, Conflict (ended, moved)."""

    async def decide(now: Instant) -> tuple[Commit, None]:
        row = await find_run(store, tenant, run)
        check_seen(seen, row)
        return budget.person_raises(row, amounts, actor=actor, reason=reason), None

    await land(store, f"run {run}", decide, seen=seen, once=Once(act, run, nothing))


async def set_daily_budget(
    store: Store, tenant: str, limits: Limits, *, actor: str, reason: str, act: KeyedAct | None = None
) -> None:
    """Set what the runs of a tenant may use on each business day, and let those that wait for it look again.

    No limit: the tenant has no budget any more. Raises InvalidInput, Conflict.
    """
    check_reason(reason)
    if limits.ms is not None:
        raise InvalidInput("a daily budget has no minutes", "they count for one run", "leave minutes out")
    now, found = await store.now(), await store.load(TENANT_BUDGET, (tenant, EACH_DAY))
    version = found.version if found is not None else 0
    row = TenantBudget(
        tenant, EACH_DAY, version + 1, limits.tokens, limits.money, limits.calls, actor, reason, now.business
    )
    commit = Commit((Put(TENANT_BUDGET, row, version),), label=f"budget {tenant}")
    if not await done_before(store, act):
        try:
            await store.commit(with_token(commit, act, "the daily budget", now))
        except Stale:
            if not await done_before(store, act):
                what = "another operator has just changed this budget"
                raise Conflict(what, "", "look again: outlast budgets ls") from None
    await _let_check_again(store, tenant, actor)


async def _let_check_again(store: Store, tenant: str, actor: str) -> None:
    """Send a message to each run that waits for a budget. A run that parks later has read the new one."""
    async for page in pages(partial(store.page, RUN, tenant, {}, limit=RUNS_PER_PAGE)):
        for run in page.rows:
            if budget.waits_for_budget(run):
                try:
                    await store.commit(budget.look_again(run, actor=actor, reason="the tenant's daily budget was set"))
                except Ended:
                    pass  # it waits no more


async def drain_worker(store: Store, worker: str, *, actor: str, reason: str) -> tuple[Worker, DrainRequest]:
    """Ask a worker to drain. Return its row and the request that is in force, which may be an earlier one.

    The worker reads it at its next heartbeat. Raises NotFound, Conflict if the worker is dead.
    """
    check_reason(reason)
    for _ in range(RACES_MAX):
        now, before, rows = await store.now(), await store.load(META, DRAINS), await store.rows(WORKER, (STORE,))
        ask = DrainRequest(actor, now.business, reason)
        row, commit = request_drain(before, rows, worker, ask, now.real, store.skew)
        try:
            if commit is not None:
                await store.commit(commit)
        except Stale:
            continue
        return row, ask if commit is not None else drains_of(before)[worker]
    raise busy("the list of workers that drain")
