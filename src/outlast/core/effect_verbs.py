"""Verbs of the ledger (effects, memos, evidence, waits): pure functions from rows to one commit.

The fence of all but `record_late_answer` and `record_unsent` is the holder's epoch and visit (S-15), so a replaced
holder cannot write.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from outlast.core.commit import Commit, Expect, Fence, Instant, Mapping, Put, When, changed, in_portions
from outlast.core.limits import DETAIL_CHARS_MAX, KEY_BYTES_MAX
from outlast.core.machine import EffectStatus, Reason, WaitStatus, approval_target, effect_target, wait_target
from outlast.core.row_checks import check_effect
from outlast.core.rows.columns import stored_text
from outlast.core.rows.effect_columns import ANSWER, BINDING, ERROR, NO_ERROR, EffectError, EvidenceAnswer
from outlast.core.rows.effect_rows import (
    APPROVAL,
    EFFECT,
    EVIDENCE,
    MEMO,
    STATED,
    UNDO_RESERVED,
    USAGE,
    USED,
    WAIT,
    Approval,
    Effect,
    Evidence,
    Memo,
    Usage,
    Wait,
)
from outlast.core.rows.row_kind import key_of
from outlast.core.rows.run_rows import Run
from outlast.core.run_transition import fence


class Intent(NamedTuple):
    """Identity of a call about to be made, and the durations (ms) that limit its attempt."""

    visit: int  # 0 for once_per="run"
    key: str
    activity: str
    digest: str
    args: bytes
    undo: str
    timeout_ms: int
    start_budget_ms: int
    settle_margin_ms: int
    allowed_by: str = ""
    shared: bool = False  # once_per="tenant": the row belongs to the tenant, and this run settles it
    keep_ms: int = 0
    noted: bool = False  # once_per="tenant": the usage row of this run exists
    first_at: int = 0  # real; earliest attempt that the ledger may have lost; 0 = this is the first attempt


def intend(
    run: Run,
    what: Intent,
    previous: Effect | None,
    *,
    ordinal: int,
    now: Instant,
    approval: Approval | None = None,
    latest_real: int | None = None,
    mapping: int | None = None,
) -> Commit:
    """Write the intent of a call before it is sent: a new effect, or another attempt of an open or reopened one.

    The same commit uses `approval` and binds it to this effect; a further attempt keeps its approval. `not_after` ends
    with the execution budget and with the approval at `latest_real`. That instant was converted by the clock mapping of
    version `mapping`, and the commit lands under no other (S-4, S-20).
    """
    assert run.due_at is not None, "only a holder intends"
    latest = () if latest_real is None else (latest_real,)
    not_after = min(now.real + what.start_budget_ms, run.due_at - what.timeout_ms, *latest)
    assert not_after > now.real, "the budget has room for the attempt: the executor checks before it intends"
    current, previous = previous, None if previous is None else _carried(run, previous)
    mine = previous if previous is not None and previous.by_run in ("", run.run) else None
    if mine is not None and mine.by_run:  # the owner of a shared effect does not change
        what = what._replace(shared=True, keep_ms=what.keep_ms or mine.keep_ms, noted=True)
    allowed_by = what.allowed_by
    if len(allowed_by) > DETAIL_CHARS_MAX or not allowed_by.isprintable():
        allowed_by = stored_text(allowed_by, DETAIL_CHARS_MAX)
    row = Effect(
        tenant=run.tenant,
        run="" if what.shared else run.run,
        visit=what.visit,
        key=what.key,
        version=current.version + 1 if current else 1,
        status=effect_target("intend", current.status if current else None),
        activity=what.activity,
        digest=what.digest,
        node=run.node,
        args=what.args,
        response=None,
        error_text="",  # of this attempt; an intended row without an error was cut off
        external_id=previous.external_id if previous else "",
        attempts=previous.attempts + 1 if previous else 1,
        waited_ms=previous.waited_ms if previous else 0,
        ordinal=mine.ordinal if mine else ordinal,
        epoch=run.epoch,
        first_at=min(previous.first_at, now.real) if previous else what.first_at or now.real,
        not_after=not_after,
        settle_after=_settle_time(what, not_after, previous),
        covered_until=approval.valid_until if approval else mine.covered_until if mine else 0,
        approval=approval.id if approval else mine.approval if mine else "",
        allowed_by=allowed_by,
        undo=what.undo,
        settled_at=0,
        settled_by="",
        interrupted=previous.interrupted + was_cut(previous) if previous else 0,
        by_run=run.run if what.shared else "",
        keep_ms=what.keep_ms,
        redone=current.redone + (previous is None) if current else 0,
        first_visit=mine.first_visit if mine else run.visit,
    )
    check_effect(row)
    puts = [Put(EFFECT, row, current.version if current else 0)]
    if what.shared and not what.noted:
        puts.append(Put(USAGE, Usage(run.tenant, run.run, what.key, now.business), 0))
    if approval is not None:
        puts.append(consume(approval, (what.visit, what.key)))
    whens = (When(approval.valid_until, False, "business", "lapsed"),) if approval is not None else ()
    held = _claim_of(run, what, current, mapping)
    return Commit(tuple(puts), held, whens=whens, label=f"{run.run} intend {what.key}")


def _settle_time(what: Intent, not_after: int, previous: Effect | None) -> int:
    """Return when no attempt can arrive any more. An earlier attempt may have had a longer timeout."""
    ends = not_after + what.timeout_ms + what.settle_margin_ms
    return ends if previous is None else max(ends, previous.settle_after)


def take_over(run: Run, what: Intent, *, of: str, ordinal: int, now: Instant) -> Commit:
    """Record a call of another run, whose row is gone, as uncertain, so that a person is asked. Send nothing (S-28).

    `of`: the run that may have made it. An answer that it happened leaves nothing to undo for this run.
    """
    intent = intend(run, what._replace(undo=f"no: run {of} made it"), None, ordinal=ordinal, now=now)
    detail = f"run {of} may have made it, and its ledger was purged before this run asked"
    row = intended(intent)._replace(
        status=effect_target("mark_uncertain", EffectStatus.INTENDED),
        error_text=ERROR.encode(EffectError(LEDGER_PURGED, detail)),
        not_after=now.real,
        settle_after=now.real,
    )
    check_effect(row)
    return intent._replace(writes=(Put(EFFECT, row, 0), *intent.writes[1:]), label=f"{run.run} take over {what.key}")


LEDGER_PURGED: Final = "ledger_purged"
"""Code of an uncertain call that a fork has from an ancestor whose ledger is gone."""


def _claim_of(run: Run, what: Intent, current: Effect | None, mapping: int | None) -> Fence:
    """Return the fence of an intent.

    A new call once per run names the version of the run's row, because a fork that was started since would make it, too
    (S-28).
    """
    is_new = current is None and not (what.visit or what.shared)
    return fence(run, mapping=mapping, version=run.version if is_new else None)


def consume(approval: Approval, ident: tuple[int, str]) -> Put:
    """Bind the approval to the effect of this visit and key (S-20)."""
    assert not approval.consumed_by, "an approval is consumed once"
    row = approval._replace(
        version=approval.version + 1,
        status=approval_target("consume", approval.status),
        consumed_by=f"{ident[0]}:{ident[1]}",
    )
    return Put(APPROVAL, row, approval.version)


def _carried(run: Run, previous: Effect) -> Effect | None:
    """Return the row that an attempt continues; None after an undo. An open effect belongs to one run (S-18)."""
    foreign = previous.by_run not in ("", run.run)
    assert not (foreign and previous.settled_at == 0), "another run's open effect is waited for, never resolved"
    assert previous.by_run or previous.status is not EffectStatus.UNDONE, "only a shared effect may follow its undo"
    return None if previous.status is EffectStatus.UNDONE else previous


TOO_LATE = "too_late"
"""Code of an attempt that the last-instant check stopped before it was sent."""


def too_late(why: str, now: Instant) -> EffectError:
    """Return the error of an attempt that was not sent."""
    return EffectError(TOO_LATE, why, now.real)


def was_cut(effect: Effect) -> bool:
    """True if the latest attempt of an open effect was cut off by a crash or by the last-instant check."""
    return effect.status is EffectStatus.INTENDED and effect.code in ("", TOO_LATE)


def tries(effect: Effect) -> int:
    """Return the attempts that count towards the limit (EFF-4), without those that were cut off."""
    return effect.attempts - effect.interrupted - was_cut(effect)


def intended(commit: Commit) -> Effect:
    """Return the effect row as the commit leaves it."""
    put = commit.writes[0]
    assert isinstance(put, Put) and isinstance(put.row, Effect)
    return put.row


def _settle(run: Run, effect: Effect, verb: str, now: Instant, **changes: object) -> Commit:
    row = changed(effect, version=effect.version + 1, status=effect_target(verb, effect.status), **changes)
    check_effect(row)
    return Commit((Put(EFFECT, row, effect.version),), fence(run), label=f"{run.run} {verb} {effect.key}")


def _done(run: Run, effect: Effect, verb: str, by: str, response: bytes, now: Instant, external_id: str) -> Commit:
    return _settle(
        run,
        effect,
        verb,
        now,
        response=response,
        error_text="",
        external_id=external_id and stored_text(external_id, KEY_BYTES_MAX),
        settled_at=now.business,
        settled_by=by,
    )


def record(run: Run, effect: Effect, response: bytes, *, now: Instant, external_id: str = "") -> Commit:
    """Record the answer of a call that was done."""
    return _done(run, effect, "record", "call", response, now, external_id)


def settle(run: Run, effect: Effect, response: bytes, *, now: Instant, external_id: str = "") -> Commit:
    """Record an effect that the receiver confirmed when asked."""
    return _done(run, effect, "settle", "reconcile", response, now, external_id)


def record_unstored(
    run: Run, effect: Effect, error: EffectError, *, found: bool, now: Instant, external_id: str = ""
) -> Commit:
    """Record an effect that was done and whose answer cannot be stored: `error` says why and how the answer begins.

    `found`: the receiver confirmed it when asked.
    """
    return _settle(
        run,
        effect,
        "settle" if found else "record",
        now,
        response=None,
        error_text=ERROR.encode(error),
        external_id=external_id and stored_text(external_id, KEY_BYTES_MAX),
        settled_at=now.business,
        settled_by="reconcile" if found else "call",
    )


def refuse(run: Run, effect: Effect, code: str, detail: str, *, now: Instant) -> Commit:
    """Record that the call did not happen and will not be retried. Later executions get the same refusal."""
    error = ERROR.encode(EffectError(code or effect_target("refuse", effect.status).value, detail))
    return _settle(run, effect, "refuse", now, error_text=error, settled_at=now.business, settled_by="call")


def mark_uncertain(run: Run, effect: Effect, code: str, detail: str, *, now: Instant, returned: bool = False) -> Commit:
    """Mark the effect uncertain: it may have happened and is not safe to repeat, so a person decides.

    `returned`: all its calls have returned in the process of a developer, so there is no settle time left to wait.
    """
    settle_after = min(effect.settle_after, now.real) if returned else effect.settle_after
    error = ERROR.encode(EffectError(code, detail))
    return _settle(run, effect, "mark_uncertain", now, error_text=error, settle_after=settle_after)


def defer(
    run: Run,
    effect: Effect,
    code: str,
    detail: str,
    wait_ms: int,
    *,
    happened: bool,
    now: Instant,
    counts: bool = True,
    settles: bool = False,
) -> Commit:
    """Record an attempt without an outcome; the next one may follow after `wait_ms` (`deferred_until`).

    happened=False: the call is known not to have happened, so there is no settle time (settle_after 0). counts=False:
    the attempt does not count towards the limit. settles=True: the wait does not, either.
    """
    row = effect._replace(
        version=effect.version + 1,
        status=effect_target("defer", effect.status),
        error_text=ERROR.encode(EffectError(code, detail, now.real + wait_ms)),
        waited_ms=effect.waited_ms + (0 if settles else wait_ms),
        settle_after=effect.settle_after if happened else 0,
        interrupted=effect.interrupted + (not counts),
    )
    check_effect(row)
    return Commit((Put(EFFECT, row, effect.version),), fence(run), label=f"{run.run} defer {effect.key}")


def deferred_until(effect: Effect) -> int:
    """Return the real instant before which a deferred effect is not attempted again; 0 if it is not deferred."""
    return (effect.error or NO_ERROR).until or 0


NOT_SENT: Final = "not_sent"
"""`status` of the evidence that an attempt was not and will not be sent."""


def record_unsent(effect: Effect, error: EffectError, now: Instant) -> Commit:
    """Store the proof of a replaced holder that no attempt of this effect was sent."""
    return record_late_answer(effect, EvidenceAnswer(NOT_SENT, error, attempt=effect.attempts), now)


def is_unsent(effect: Effect, evidence: Iterable[Evidence]) -> bool:
    """True if the holder of the latest attempt has proven that it was not sent, and no restore lost a later one."""
    if effect.code == Reason.RESTORED:
        return False
    for row in evidence:
        if (row.visit, row.key, row.epoch) == (effect.visit, effect.key, effect.epoch):
            answer = row.answer
            if answer.status == NOT_SENT and answer.attempt == effect.attempts:
                return True
    return False


def record_late_answer(effect: Effect, answer: EvidenceAnswer, now: Instant) -> Commit:
    """Store the late answer of a replaced holder as evidence. It settles nothing by itself (S-10)."""
    run = effect.by_run or effect.run
    row = Evidence(effect.tenant, run, effect.visit, effect.key, effect.epoch, ANSWER.encode(answer), now.business)
    return Commit((Put(EVIDENCE, row, 0),), label=f"{run} record_late_answer {effect.key}")


def remember(run: Run, memo: Memo) -> Commit:
    """Store the value of a lookup, which later executions in its scope get again."""
    return Commit((Put(MEMO, memo, 0),), fence(run), label=f"{run.run} remember {memo.key}")


UNANSWERED: Final = "unanswered?"  # prefix of the key of a lookup that used up its attempts; no template renders a ?


def unanswered(run: Run, memo: Memo) -> Commit:
    """Store that a lookup used up its attempts. The next execution asks again; the end of the run counts the failure.

    `memo` is the row of the lookup with the error in place of the answer.
    """
    assert memo.error_text and memo.response is None, "a trace holds an error and no answer"
    return remember(run, memo._replace(key=UNANSWERED + memo.key))


OBSERVED: Final = "observed?"
"""Prefix of the key of a memo: the body caught this error of a lookup, and went on."""


def observed_key(key: str, since: int) -> str:
    """Return the key under which the caught error of a lookup is recorded.

    `since`: number of the last message with which a person let the run continue after an exception; 0 = none. Errors
    that were recorded before it do not count any more.
    """
    return f"{OBSERVED}{since}?{key}"


def remember_all(run: Run, memos: Iterable[Memo]) -> list[Commit]:
    """Store decisions of the policy; later executions of the visit get the same ones. Returns commits in order."""
    puts = (Put(MEMO, memo, 0) for memo in memos)
    return [Commit(portion, fence(run), label=f"{run.run} remember all") for portion in in_portions(puts)]


def open_wait(run: Run, wait: Wait) -> Commit:
    """Open a wait and fix its deadline (S-14)."""
    assert wait.status is wait_target("open_wait", None) and wait.version == 1
    return Commit((Put(WAIT, wait, 0),), fence(run), label=f"{run.run} open_wait {wait.key}")


def closes_at(deadline: int, mapping: Mapping, skew: int) -> int:
    """Return the business instant at which a deadline has passed, also by the clocks of all senders.

    A message that its sender's process stamps before the deadline lands before this instant. `skew`: of the store.
    """
    return mapping.business(mapping.real(deadline) + skew) if skew else deadline


def bind(
    run: Run,
    wait: Wait,
    messages: tuple[int, ...] | None,
    *,
    inbox_seq: int | None,
    complete: bool,
    closes: int | None = None,
    mapping: int | None = None,
) -> Commit:
    """End a wait by these messages, or (None) by its deadline (S-14).

    `inbox_seq` is the last message that the holder read; None for a sleep, which no message ends. `complete`: the
    messages alone satisfy the wait; otherwise the store's clock must have reached its deadline, or `closes` if the
    store's clocks differ. `closes` (`closes_at`) was converted by the clock mapping of version `mapping`.
    """
    row = wait._replace(
        version=wait.version + 1,
        status=wait_target("bind", wait.status),
        binding_text=BINDING.encode(messages),
    )
    assert wait.status is WaitStatus.OPEN
    late = () if complete else (When(wait.deadline if closes is None else closes, True, "business", "early"),)
    held = fence(run, inbox_seq=inbox_seq, mapping=mapping)
    return Commit((Put(WAIT, row, wait.version),), held, whens=late, label=f"{run.run} bind {wait.key}")


USED_HERE: Final = "used?"
"""Prefix of the key of a memo: in its visit, the run first used the answer of another run under the key after it."""


def use(run: Run, effect: Effect, *, noted: bool, now: Instant, asked: bool = True) -> Commit:
    """Let another run use the recorded answer. From here on only a person can decide to undo the effect.

    A memo records the visit, because each execution of it must ask for the same key (S-27). `asked`: False if the body
    was given the answer without asking for the call. `noted`: the usage row of this run exists. Stale ("version") if
    the effect has changed.
    """
    assert effect.by_run != run.run and effect.shared != UNDO_RESERVED
    row = effect._replace(version=effect.version + 1, status=effect_target("use", effect.status), shared=USED)
    check_effect(row)
    at, key = now.business, USED_HERE + effect.key
    memo = Memo(run.tenant, run.run, run.visit, key, effect.activity, "", None, "", at)
    puts = [Put(EFFECT, row, effect.version)]
    puts += [Put(MEMO, memo, 0)] if asked else []
    puts += [] if noted else [_noted(run, effect.key, now)]
    return Commit(tuple(puts), fence(run), label=f"{run.run} use {effect.key}")


def wait_for(run: Run, effect: Effect, now: Instant) -> Commit:
    """Record that this run waits for another run's effect. Stale if that has changed, so no wake-up is missed."""
    assert effect.by_run != run.run
    expect = Expect(EFFECT, key_of(EFFECT, effect), effect.version)
    return Commit((_noted(run, effect.key, now),), fence(run), (expect,), label=f"{run.run} wait_for {effect.key}")


def give(run: Run, effect: Effect) -> Commit:
    """Record that an execution is about to be given a person's answer, which no person can correct from here on.

    Stale ("version") if it was corrected in the meantime.
    """
    return Commit((given(effect),), fence(run), label=f"{run.run} give {effect.key}")


def given(effect: Effect) -> Put:
    """Return the write that ends the time in which a person's answer may be corrected."""
    assert effect.shared == STATED
    row = changed(effect, version=effect.version + 1, status=effect_target("give", effect.status), shared=0)
    check_effect(row)
    return Put(EFFECT, row, effect.version)


UNFIT: Final = "answer_unfit"
"""Code of an effect that is uncertain again, because a person's answer does not fit the type of the activity."""


def reject_answer(run: Run, effect: Effect, detail: str) -> Commit:
    """Make an effect uncertain again whose answer, stated by a person, cannot be loaded. Nothing else changes."""
    assert effect.shared == STATED
    row = changed(
        effect,
        version=effect.version + 1,
        status=effect_target("unfit", effect.status),
        response=None,
        error_text=ERROR.encode(EffectError(UNFIT, detail)),
        settled_at=0,
        settled_by="",
        shared=0,
    )
    check_effect(row)
    return Commit((Put(EFFECT, row, effect.version),), fence(run), label=f"{run.run} unfit {effect.key}")


def reserve_undo(effect: Effect) -> Put:
    """Return the write that reserves a shared effect for its undo: no other run may use its answer from here on.

    An effect that another run has used is undone only after a person decided so (`undo_failed`).
    """
    assert effect.by_run and effect.shared != UNDO_RESERVED
    row = effect._replace(
        version=effect.version + 1, status=effect_target("reserve_undo", effect.status), shared=UNDO_RESERVED
    )
    check_effect(row)
    return Put(EFFECT, row, effect.version)


def is_usable(effect: Effect) -> bool:
    """True if another run may use its answer."""
    return effect.status is EffectStatus.DONE and effect.shared != UNDO_RESERVED


def _noted(run: Run, key: str, now: Instant) -> Put:
    return Put(USAGE, Usage(run.tenant, run.run, key, now.business), 0)


def goes_on(previous: Effect | None, run: Run) -> Effect | None:
    """Return the row that an attempt by this run continues; None if the work is new to this run."""
    if previous is None or previous.status is EffectStatus.UNDONE or previous.by_run not in ("", run.run):
        return None
    return previous


def settled_shared(commit: Commit) -> Effect | None:
    """Return the shared effect that this commit settles or undoes, because other runs may wait for it."""
    for write in commit.writes:
        row = write.row if type(write) is Put else None
        if type(row) is Effect and row.by_run and row.settled_at:
            return row if row.shared == 0 or row.status is EffectStatus.UNDONE else None
    return None
