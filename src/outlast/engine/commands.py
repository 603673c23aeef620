"""Commands of operators and programs to a run: start, signal, cancel, continue, answer its attention."""

from typing import Any, Literal, NamedTuple

from outlast.core import approvals, compensation, mailbox
from outlast.core.codec import canonical
from outlast.core.commit import Commit, Expect
from outlast.core.durations import SECOND
from outlast.core.effect_columns import NO_ERROR
from outlast.core.events import iso
from outlast.core.keys import check_name
from outlast.core.limits import MESSAGE_BYTES_MAX, TEXT_CHARS_MAX
from outlast.core.machine import CHOICES, OVERLAY_ONLY, Choice, EffectStatus, Reason
from outlast.core.route import ANSWERED_BY_CONTINUE, meant
from outlast.core.rows import (
    APPROVAL,
    EFFECT,
    RUN,
    TOKEN,
    AnyKind,
    Approval,
    Effect,
    Key,
    Run,
    Token,
    is_over,
    version_of,
)
from outlast.core.run_columns import Attention
from outlast.core.verbs import start as start_verb
from outlast.engine.admission import limits_of
from outlast.engine.run_session import notify_waiting
from outlast.engine.snapshots import first_snapshot
from outlast.errors import Conflict, Ended, InvalidInput, LimitExceeded, NotFound, Stale
from outlast.flow.workflow import Workflow
from outlast.store.port import Store
from outlast.telemetry.traces import Traces

RACES_MAX = 50  # lost races in a row after which a command gives up


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
    correlation_id: str = "",
    trace_id: str = "",
) -> StartedRun:
    """Start a run durably. Raises InvalidInput with all problems at once, Conflict (RUN-4).

    Without `key`, the workflow's own start key applies; without that, the run id.
    """
    check_name("tenant", tenant)
    check_name("run", run)
    workflow.activities  # noqa: B018 - checks the definition, once
    beginning = workflow.begin(given)
    state, derived = workflow.state_codec.canonical(beginning.state), beginning.key
    now = await store.now()
    token = Token(tenant, "", _start_key(workflow, key or derived or run), beginning.digest, run, now.business)
    snapshot, values = first_snapshot(tenant, run, state, now.business)
    node = workflow.start
    traces = Traces.wanted()
    begun = traces.start(workflow=workflow.name, tenant=tenant, run=run, trace_id=trace_id) if traces else None
    commit = start_verb(
        tenant=tenant,
        run=run,
        workflow=workflow.name,
        lane=workflow.lane,
        node=node.name,
        status_label=node.status or "",
        state=snapshot,
        now=now,
        actor=actor,
        ceiling_ms=int(max(workflow.ceiling, node.ceiling or workflow.ceiling).total_seconds() * SECOND),
        limited=bool(await limits_of(store, tenant)),
        token=token,
        correlation_id=correlation_id,
        trace_id=begun.trace_id if begun else trace_id,
    )
    try:
        await store.commit(commit._replace(writes=(*commit.writes, *values)))
    except Stale:
        return await _started_before(store, token, workflow, "" if key else derived)
    if begun:
        begun.landed()
    return StartedRun(run, True)


def _start_key(workflow: Workflow[Any], key: str) -> str:
    return f"start/{workflow.name}/{key}"


async def _started_before(store: Store, token: Token, workflow: Workflow[Any], derived: str) -> StartedRun:
    before = await store.load(TOKEN, (token.tenant, "", token.key))
    if before is None:
        raise Conflict(
            f"run {token.target} exists already", "another workflow or key started it", "choose another run id"
        )
    if before.digest != token.digest:
        under, why = "this key", "the same key means the same run, so the input must be the same"
        if derived:
            under, why = f"the key {derived}", "the workflow derives this key from its input, and another part differs"
        raise Conflict(
            f"{workflow.name} was started before under {under} with another input: {before.target}",
            why,
            f"look at it with: outlast runs show {before.target}; or start with another key: --key",
        )
    return StartedRun(before.target, False)


async def find_run(store: Store, tenant: str, run: str) -> Run:
    """Return the run row. Raises NotFound."""
    row = await store.load(RUN, (tenant, run))
    if row is None:
        raise no_run(tenant, run)
    return row


def no_run(tenant: str, run: str) -> NotFound:
    """Return the error for a run id that does not exist."""
    return NotFound(f"no run {run}", f"tenant {tenant} has no run of this id", "list them with: outlast runs ls")


def over(run: str) -> Conflict:
    """Return the error for a run that has ended."""
    return Conflict(
        f"run {run} has ended",
        "a run that has ended takes no message and does not change",
        f"look at it with: outlast runs show {run}",
        refusal="ended",
    )


def busy(run: str) -> Conflict:
    """Return the error of a command that lost every race."""
    return Conflict(f"run {run} changed too often", "other commands were faster each time", "try again")


def moved(kind: AnyKind, key: Key, version: int) -> Conflict:
    """Return the error for a row that has changed since the caller saw it."""
    what = f"{kind.name} {key[-1]}"
    return Conflict(
        f"{what} has changed since you saw it", f"it is at version {version} now", "look again", refusal="moved"
    )


async def check_seen(store: Store, seen: Expect | None) -> None:
    """Raise Conflict (`moved`) if a row is not at the version that the caller saw; None skips the check."""
    if seen is None:
        return
    row = await store.load(seen.kind, seen.key)
    if row is not None and (version := version_of(seen.kind, row)) != seen.version:
        raise moved(seen.kind, seen.key, version)


def as_seen(commit: Commit, seen: Expect | None) -> Commit:
    """Return the commit with the condition that a row has the version that the caller saw."""
    return commit if seen is None else commit._replace(expects=(*commit.expects, seen))


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
    await check_seen(store, seen)
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
        if stale.reason == "missing" or seen is not None:
            await find_run(store, tenant, run)
        if not signal_id or await store.load(TOKEN, (tenant, run, f"signal/{signal_id}")) is None:
            await check_seen(store, seen)
        return False
    return True


async def cancel(store: Store, *, tenant: str, run: str, actor: str, reason: str, seen: Expect | None = None) -> None:
    """Request the end of a run.

    From now on none of its approvals can be decided.

    Raises NotFound, Conflict (ended, moved).
    """
    if not reason.strip():
        raise InvalidInput("a cancel needs a reason", "it appears in the run's history", "say why")
    check_reason(reason)
    for _ in range(RACES_MAX):
        await check_seen(store, seen)
        row = await find_run(store, tenant, run)
        asked = await approvals_of(store, tenant, run)
        try:
            commit = mailbox.cancel(row, asked, actor=actor, reason=reason, now=await store.now())
            await store.commit(as_seen(commit, seen))
            break
        except Ended:
            raise over(run) from None
        except Stale:
            continue
    else:
        raise busy(run)
    await withdraw_late(store, tenant, run)


def check_reason(reason: str) -> None:
    """Raise LimitExceeded or InvalidInput if a reason cannot be stored."""
    if len(reason) > TEXT_CHARS_MAX:
        raise LimitExceeded("the reason is too long", f"at most {TEXT_CHARS_MAX:,} characters", "say it shorter")
    if not reason.isascii():
        try:
            reason.encode()
        except UnicodeEncodeError as error:
            raise InvalidInput("the reason is not text that can be stored", str(error), "decode it properly") from None


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
            await store.commit(Commit(tuple(puts), label=f"{run} withdraw"))
        except Stale:
            continue


async def approvals_of(store: Store, tenant: str, run: str) -> tuple[Approval, ...]:
    """Return all approvals of a run."""
    return await store.rows(APPROVAL, (tenant, run))


async def find_approval(store: Store, tenant: str, approval: str) -> Approval:
    """Return the approval row. Raises NotFound."""
    page = await store.page(APPROVAL, tenant, {"id": approval}, limit=1)
    if page.rows:
        return page.rows[0]
    raise NotFound(
        f"no approval {approval}", f"tenant {tenant} has none of this id", "list them with: outlast approvals ls"
    )


EXHAUSTED = Reason.RETRIES_EXHAUSTED
ENDS = (Choice.CANCEL, Choice.FAIL)


async def continue_run(
    store: Store, *, tenant: str, run: str, actor: str, reason: str, seen: Expect | None = None
) -> None:
    """Answer a run's attention with `continue`: it continues in the same visit.

    Raises Conflict if that is no answer to its reasons, or if the run is not as `seen` (moved).
    """
    check_reason(reason)
    for _ in range(RACES_MAX):
        await check_seen(store, seen)
        row = await _unfinished(store, tenant, run)
        reasons = row.attention
        if not reasons:
            raise Conflict(
                f"run {run} needs no attention",
                "continue answers a run that waits for an operator",
                f"outlast runs show {run}",
            )
        stops = [a for a in reasons if a.reason not in OVERLAY_ONLY] or list(reasons)
        other = next((a for a in stops if a.reason not in ANSWERED_BY_CONTINUE), None)
        if other is not None:
            raise Conflict(f"continue does not answer {other.reason}", other.detail, _answer_to(other.reason, run))
        refused = await _refused(store, row, [a for a in reasons if a.reason is EXHAUSTED])
        commit = mailbox.go_on(row, refused, actor=actor, reason=reason, now=await store.now())
        try:
            await store.commit(as_seen(commit, seen))
            return
        except Ended:
            raise over(run) from None
        except Stale:
            continue
    raise busy(run)


async def resolve_attention(
    store: Store,
    *,
    tenant: str,
    run: str,
    reason: Reason,
    choice: Choice,
    actor: str,
    text: str,
    key: str = "",
    by_ms: int = 0,
    seen: Expect | None = None,
) -> None:
    """Answer one reason of a run's attention.

    Raises NotFound, InvalidInput, Conflict (ended, not flagged so, not offered, answered before; moved: the run is not
    as `seen`).
    """
    check_reason(text)
    choice = meant(reason, choice)
    if choice is Choice.EXTEND and by_ms <= 0:
        raise InvalidInput("an extension needs a length", f"{by_ms} ms is none", "say by how much")
    for _ in range(RACES_MAX):
        await check_seen(store, seen)
        row = await _unfinished(store, tenant, run)
        entries = _entries(row, reason, choice, key)
        if choice is Choice.CANCEL:
            await cancel(store, tenant=tenant, run=run, actor=actor, reason=text.strip() or reason.value, seen=seen)
            return
        if reason is Reason.UNDO_FAILED:
            await _answer_undo(store, row, entries, choice, actor=actor, text=text, seen=seen)
            return
        commit = mailbox.answer(
            row,
            reason,
            choice,
            key=key,
            actor=actor,
            text=text,
            by_ms=by_ms,
            now=await store.now(),
            refused=await _refused(store, row, entries) if reason is EXHAUSTED else (),
            approvals=await approvals_of(store, tenant, run) if choice in ENDS else (),
            recorded=[(a.visit, a.key, a.digest) for a in entries] if choice is Choice.USE_RECORDED else (),
        )
        try:
            await store.commit(as_seen(commit, seen))
            break
        except Ended:
            raise over(run) from None
        except Stale:
            continue
    else:
        raise busy(run)
    if choice in ENDS:
        await withdraw_late(store, tenant, run)


async def _answer_undo(
    store: Store, run: Run, entries: list[Attention], choice: Choice, *, actor: str, text: str, seen: Expect | None
) -> None:
    """Let a failed undo be called again, or record that it was done by hand, once. Raises Conflict."""
    if choice is Choice.DONE_BY_HAND and not text.strip():
        raise InvalidInput("an undo by hand needs a reason", "it appears in the run's history", "say what was done")
    (entry,) = entries  # only one, because undo stops at the first failure
    undo = await store.load(EFFECT, (run.tenant, run.run, entry.visit, entry.key))
    assert undo is not None, "the undo was written before the person was called"
    failed = undo.status is EffectStatus.UNCERTAIN or compensation.is_refused(undo)
    original = await _undone_by(store, undo)
    if not failed or original.status is not EffectStatus.DONE:
        raise _answered_before(undo)
    now = await store.now()
    try:
        commit = compensation.answer_undo(run, undo, original, choice, actor=actor, text=text, now=now)
        await store.commit(as_seen(commit, seen))
    except Ended:
        raise over(run.run) from None
    except Stale as stale:
        if stale.reason == "settle":
            raise await _too_early(store, undo, "to call it again") from None
        await check_seen(store, seen)
        raise _answered_before(undo) from None


async def _undone_by(store: Store, undo: Effect) -> Effect:
    visit, _, key = undo.undoes.partition(":")
    for owner in (undo.run, ""):  # '' for an effect shared by the tenant
        row = await store.load(EFFECT, (undo.tenant, owner, int(visit), key))
        if row is not None and row.by_run in ("", undo.run):
            return row
    raise NotFound(f"{undo.key} undoes {key}, which is gone", "", f"outlast runs effects {undo.run}")


def _answered_before(undo: Effect) -> Conflict:
    by = f", settled by {undo.settled_by}" if undo.settled_by else ""
    return Conflict(f"{undo.key} was answered before", f"it is {undo.status}{by}", f"outlast runs effects {undo.run}")


async def _too_early(store: Store, effect: Effect, what: str) -> Conflict:
    left = (effect.settle_after - (await store.now()).real) / SECOND
    return Conflict(
        f"{effect.key}: it is too early {what}",
        f"a call in flight may still arrive for another {max(left, 0):.0f} s, until {iso(effect.settle_after)}",
        "check the receiver after that, then resolve it",
    )


async def extend(store: Store, *, tenant: str, run: str, by_ms: int, actor: str, text: str) -> None:
    """Extend the total timeout of a run that has passed it. Raises NotFound, Conflict."""
    await resolve_attention(
        store,
        tenant=tenant,
        run=run,
        reason=Reason.TOTAL_TIMEOUT,
        choice=Choice.EXTEND,
        actor=actor,
        text=text,
        by_ms=by_ms,
    )


async def _unfinished(store: Store, tenant: str, run: str) -> Run:
    row = await find_run(store, tenant, run)
    if is_over(row):
        raise over(run)
    return row


def _entries(run: Run, reason: Reason, choice: Choice, key: str) -> list[Attention]:
    """Return the entries that a choice answers. Raises Conflict."""
    entries = [a for a in run.attention if a.reason is reason and key in ("", a.key)]
    if not entries:
        now = ", ".join(f"{a.reason.value} {a.key}".strip() for a in run.attention) or "none"
        what = f"{reason.value} {key}".strip()
        raise Conflict(f"run {run.run} is not flagged {what}", f"its attention: {now}", f"outlast runs show {run.run}")
    if choice not in CHOICES[reason]:
        offered = ", ".join(c.value for c in CHOICES[reason])
        raise Conflict(f"{reason.value} does not offer {choice.value}", f"it offers {offered}", "choose one of these")
    if any(choice not in a.choices() for a in entries):
        raise Conflict(
            f"{reason.value} does not offer {choice.value} here",
            "another activity made the record under this key",
            f"outlast attention show {run.run}",
        )
    if reason is Reason.EFFECT_UNCERTAIN:
        fix = _answer_to(Reason.EFFECT_UNCERTAIN, run.run)
        raise Conflict("an uncertain effect is resolved by its key", entries[0].detail, fix)
    return entries


async def _refused(store: Store, run: Run, entries: list[Attention]) -> list[Effect]:
    """Return the exhausted effects of these entries. Raises Conflict if one was answered before."""
    keys = {(a.visit, a.key) for a in entries}
    owners = [(run.run, visit, key) for visit, key in sorted(keys)]
    # effects shared by the tenant, made by any run
    owners += [("", 0, key) for visit, key in sorted(keys) if visit == 0]
    rows = [await store.load(EFFECT, (run.tenant, *name)) for name in owners]
    refused = [row for row in rows if row is not None and row.status is EffectStatus.REFUSED]
    answered = next((e for e in refused if e.code != EXHAUSTED), None)
    if answered is not None:
        error = answered.error or NO_ERROR
        why = f"{error.code}: {error.detail}"
        raise Conflict(f"{answered.key} was answered before", why, f"outlast runs show {run.run}")
    return refused


def _answer_to(reason: Reason, run: str) -> str:
    if reason in (Reason.APPROVAL_TIMEOUT, Reason.TOTAL_TIMEOUT):
        return f"outlast attention resolve {run} {reason.value} {'|'.join(c.value for c in CHOICES[reason])}"
    if reason is Reason.EFFECT_UNCERTAIN:
        return f"outlast effects resolve {run} KEY --happened ID | --did-not-happen | --give-up"
    return f"outlast runs cancel {run} --reason …"


async def find_effect(store: Store, tenant: str, run: str, key: str, *, visit: int | None = None) -> Effect:
    """Return the effect of this key: of this visit, else the open one, else the latest. Raises NotFound."""
    await find_run(store, tenant, run)
    rows = [e for e in await store.rows(EFFECT, (tenant, run)) if e.key == key]
    shared = await store.load(EFFECT, (tenant, "", 0, key))
    if shared is not None and shared.by_run == run:
        rows.append(shared)
    rows = [e for e in rows if visit in (None, e.visit)]
    if not rows:
        raise NotFound(
            f"run {run} has no effect {key}" + (f" in visit {visit}" if visit is not None else ""),
            "use the key that the ledger shows",
            f"outlast runs effects {run}",
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
    seen: Expect | None = None,
) -> None:
    """Record an operator's answer on an uncertain effect, once.

    Raises Conflict (settled, resolved before, too early; moved: the effect or its run is not as `seen`).
    """
    check_reason(reason)
    await check_seen(store, seen)
    if effect.undoes:
        raise Conflict(
            f"{effect.key} is the undo of another effect",
            "answer the attention of the run instead",
            f"outlast attention resolve {effect.run} {' | '.join(CHOICES[Reason.UNDO_FAILED])} --reason …",
        )
    if effect.status is not EffectStatus.UNCERTAIN:
        raise _resolved(effect)
    commit = mailbox.resolve_effect(
        effect, verb, by=actor, reason=reason, now=await store.now(), response=response, external_id=external_id
    )
    try:
        await store.commit(as_seen(commit, seen))
        if effect.by_run:
            await notify_waiting(store, effect)
    except Ended:
        raise over(effect.by_run or effect.run) from None
    except Stale as stale:
        if stale.reason == "settle":
            raise await _too_early(store, effect, "to say that it did not happen") from None
        await check_seen(store, seen)
        raise _resolved(await find_effect(store, effect.tenant, effect.run, effect.key)) from None


def _resolved(effect: Effect) -> Conflict:
    by = f", settled by {effect.settled_by}" if effect.settled_by else ""
    return Conflict(
        f"effect {effect.key} is not uncertain", f"it is {effect.status}{by}", f"outlast runs effects {effect.run}"
    )
