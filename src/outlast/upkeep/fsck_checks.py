"""Checks of the rows of one run (run, mailbox, waits, effects, approvals) and of the store's other rows."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence, Set
from itertools import islice, pairwise
from typing import Any, Final, NamedTuple, TypeAlias

from outlast.core.approvals import is_exact
from outlast.core.attributes import attribute_text
from outlast.core.causes import causes_in
from outlast.core.codec import digest
from outlast.core.commit import Mapping
from outlast.core.divergence import MAP
from outlast.core.fork_starts import ForkStart
from outlast.core.forks import ForkLedger, ForkTerms
from outlast.core.keys import plain_key
from outlast.core.living_forks import ForkNote, note_of
from outlast.core.machine import OPEN_EFFECT, SWEPT, ApprovalStatus, DeliveryStatus, EffectStatus
from outlast.core.row_checks import (
    check_effect,
    check_run,
    wrong_approval,
    wrong_cursor,
    wrong_details,
    wrong_flags,
    wrong_lease,
    wrong_offer,
    wrong_slot,
    wrong_usage,
    wrong_visits,
    wrong_wait,
)
from outlast.core.rows.all_kinds import Row
from outlast.core.rows.columns import SUFFIX
from outlast.core.rows.effect_rows import APPROVAL, EFFECT, EVIDENCE, MEMO, USAGE, WAIT, WITHHELD, Effect, Memo, Usage
from outlast.core.rows.limit_rows import CALL_USAGE, SLOT, Slot
from outlast.core.rows.outbox_rows import CURSOR, DELIVERY, Cursor, Delivery, Subscription
from outlast.core.rows.row_kind import AnyKind, Key, key_of
from outlast.core.rows.run_rows import (
    ATTRIBUTE,
    EVENT,
    FLOOR,
    MESSAGE,
    RUN,
    TOKEN,
    Attribute,
    Event,
    Flagging,
    Floor,
    Run,
    Token,
    is_over,
)
from outlast.core.rows.store_rows import META, WORKER, Meta, Worker
from outlast.core.run_transition import due_of
from outlast.core.state.snapshot_codec import StateChunk
from outlast.core.usage import SUMMED, CallUsage
from outlast.core.webhooks import deliveries
from outlast.errors import Corrupt, NotStorable
from outlast.store.port import RunRows


class Finding(NamedTuple):
    """One violated invariant: the check, the row's kind and key, and the error."""

    check: str
    kind: str
    key: Key
    text: str


class CheckedRun(NamedTuple):
    """All rows that the checks of one run use, as of one moment."""

    rows: RunRows
    history: tuple[Event, ...] | None = None  # all events in order; None: not read
    mapping: Mapping | None = None  # of the clocks; None: unknown
    generation: int | None = None  # of the store; None: unknown
    values: tuple[StateChunk, ...] | None = None  # the large parts of its states; None: not read
    chain: bool = False  # recompute hashes and digests
    ledger_purged: bool = False  # its own effects are gone, those that the tenant shares are there
    skew: int = 0  # of the store: ms by which the clocks that wrote two rows may differ
    floor: Floor | None = None  # of a history that is a window; `history` begins there
    first: Event | None = None  # of such a history: the first event of the run, which is kept

    @property
    def begins(self) -> int:
        """Return the number of the event with which the history begins."""
        return 1 if self.floor is None else self.floor.seq

    def is_purged(self, visit: int) -> bool:
        """True if rows of this visit may be gone, because the history is a window."""
        return self.floor is not None and 0 < visit < self.floor.visit

    @property
    def run(self) -> Run:
        """Return the run's row in this snapshot."""
        return self.rows.run

    @property
    def effects(self) -> tuple[Effect, ...]:
        """Return the effects that the run owns, of every scope."""
        own = tuple(effect for effect in self.rows.shared if effect.by_run == self.run.run)
        return (*self.rows.effects, *own)


Violations: TypeAlias = Iterator[tuple[AnyKind, Key, str]]
Check: TypeAlias = Callable[[CheckedRun], Violations]


def violation(kind: AnyKind, row: Row, text: str) -> tuple[AnyKind, Key, str]:
    """Return the kind, key and error of a row that violates the invariant."""
    return kind, key_of(kind, row), text


def effect_name(effect: Effect) -> str:
    """Return the name by which approvals and undos refer to an effect of their run."""
    return f"{effect.visit}:{effect.key}"


def effect_row(one: CheckedRun) -> Violations:
    """Check that an open effect is unsettled, a done one has its response, a refused one its reason (I4)."""
    for effect in one.effects:
        try:
            check_effect(_as_written_now(effect))
        except Corrupt as error:
            yield violation(EFFECT, effect, error.what)


def _as_written_now(effect: Effect) -> Effect:
    """Return a withheld undo with `settled_by`, which earlier versions did not write."""
    withheld = effect.undoes and effect.status is EffectStatus.REFUSED and effect.not_after == effect.first_at
    return effect._replace(settled_by=effect.settled_by or WITHHELD) if withheld else effect


def own_rows(kind: AnyKind, rows: Sequence[Row], wrong: Callable[[Any], str]) -> Violations:
    """Check rows of a kind by a function of `core/row_checks.py`; row_columns reports unreadable ones."""
    for row in rows:
        try:
            why = wrong(row)
        except Corrupt:
            continue
        if why:
            yield violation(kind, row, why)


def effect_digest(one: CheckedRun) -> Violations:
    """Check that an effect's key is bound to one request: its digest matches activity, key and arguments (I3)."""
    if not one.chain:
        return
    for effect in one.effects:
        if effect.undoes and effect.not_after == effect.first_at:
            continue  # a withheld undo, of which no request was made
        if effect.child_text:
            continue  # its digest is of the input as its workflow reads it, which takes the code of the workflow
        try:
            same = effect.digest == _digest_of(effect, one)
        except NotStorable:
            same = False
        if not same:
            yield violation(EFFECT, effect, "activity, key and arguments do not give its digest")


def _digest_of(effect: Effect, one: CheckedRun) -> str:
    """Return the expected digest; that of an undo includes the effect it undoes, or the plan for a child."""
    of = next((e for e in one.effects if effect.undoes == f"{e.visit}:{e.key}"), None)
    if of is None:
        return digest(effect.activity, plain_key(effect.key), effect.args)
    return digest("undo", of.key, of.digest if of.child.undo is None else of.child.undo.digest)


def effect_order(one: CheckedRun) -> Violations:
    """Check that every effect of a run has a unique number in the order of intents (S-19)."""
    times = Counter(effect.ordinal for effect in one.effects)
    for effect in one.effects:
        if times[effect.ordinal] > 1:
            yield violation(
                EFFECT, effect, f"{times[effect.ordinal]} effects of this run have the number {effect.ordinal}"
            )


def effect_claim(one: CheckedRun) -> Violations:
    """Check that an effect belongs to a visit and a claim that the run has had (I11, S-15)."""
    for effect in one.effects:
        if not 0 <= effect.visit <= one.run.visit:
            yield violation(EFFECT, effect, f"of visit {effect.visit}; the run is in its visit {one.run.visit}")
        elif not 1 <= effect.epoch <= one.run.epoch:
            yield violation(EFFECT, effect, f"intended under claim {effect.epoch}; the run has had {one.run.epoch}")


def effect_open_at_end(one: CheckedRun) -> Violations:
    """Check that an ended run has no open effect (I35). A child that it left alone goes on, and settles its row."""
    if is_over(one.run):
        for effect in one.effects:
            if effect.status in OPEN_EFFECT and effect.child.close != "abandon":
                yield violation(EFFECT, effect, f"it is {effect.status}, and its run has ended {one.run.status}")


def effect_undone(one: CheckedRun) -> Violations:
    """Check that an undone effect was undone once, and that every undo names an existing effect (I34)."""
    if one.ledger_purged:
        return  # the undo of a shared effect belongs to the run
    effects = {effect_name(effect): effect for effect in one.effects}
    undos = Counter(e.undoes for e in one.effects if e.undoes and e.status is EffectStatus.DONE)
    for effect in one.effects:
        if effect.status is EffectStatus.UNDONE and undos[effect_name(effect)] != 1:
            yield violation(EFFECT, effect, f"it is undone; {undos[effect_name(effect)]} undos of it were done")
        elif effect.undoes and effect.undoes not in effects:
            yield violation(EFFECT, effect, f"it undoes {effect.undoes}, which does not exist")
        elif effect.undoes and effect.status is EffectStatus.DONE:
            target = effects[effect.undoes]
            if target.status is not EffectStatus.UNDONE:
                yield violation(EFFECT, target, f"its undo {effect.key} is done, and it is {target.status}")


def undo_order(one: CheckedRun) -> Violations:
    """Check that undos go from the latest effect to the first (S-19)."""
    effects = {effect_name(effect): effect for effect in one.effects}
    undos = sorted((e for e in one.effects if e.undoes in effects), key=lambda e: e.ordinal)
    for before, after in pairwise(undos):
        if effects[before.undoes].ordinal < effects[after.undoes].ordinal:
            yield violation(
                EFFECT, after, f"it undoes {after.undoes} after {before.undoes}, which was intended earlier"
            )


def run_restored(one: CheckedRun) -> Violations:
    """Check that the generation in which the run was restored exists."""
    if one.generation is not None and not 0 <= one.run.restored <= one.generation:
        yield violation(RUN, one.run, f"restored in generation {one.run.restored}; the store is in {one.generation}")


def run_row(one: CheckedRun) -> Violations:
    """Check that an unfinished run is due, owned or waiting for something named, and an ended one final (I10, I39)."""
    try:
        check_run(one.run)
    except Corrupt as error:
        yield violation(RUN, one.run, error.what)
    yield from own_rows(RUN, (one.run,), wrong_details)


def row_columns(one: CheckedRun) -> Violations:
    """Check that the structured columns of the run's rows can be decoded."""
    rows = one.rows
    found: list[tuple[AnyKind, Sequence[Row]]] = [
        (RUN, (one.run,)), (EFFECT, rows.effects), (MEMO, rows.memos), (WAIT, rows.waits),
        (APPROVAL, rows.approvals), (EVIDENCE, rows.evidence),
    ]  # fmt: skip
    for kind, those in found:
        for row in those:
            yield from columns_of(kind, row)


def columns_of(kind: AnyKind, row: Row) -> Violations:
    """Check that the structured columns of a row can be decoded."""
    for name in kind.row._fields:
        if name.endswith(SUFFIX):
            try:
                getattr(row, name.removesuffix(SUFFIX))
            except Corrupt as error:
                yield violation(kind, row, error.what)


def run_visits(one: CheckedRun) -> Violations:
    """Check that the visit number equals the entries into nodes, the present one included (S-15)."""
    yield from own_rows(RUN, (one.run,), wrong_visits)


def run_causes(one: CheckedRun) -> Violations:
    """Check that the causes by which the run is counted are those of its attention."""
    yield from own_rows(RUN, (one.run,), wrong_flags)


def run_clocks(one: CheckedRun) -> Violations:
    """Check that a sleeping run is due at its earliest timer, its ceiling included (S-3)."""
    run = one.run
    if is_over(run) or run.owner:
        return
    try:
        timers = run.timers
    except Corrupt:
        return  # reported by row_columns
    asleep = run.due_at is None or run.due_at > one.rows.now.real + one.skew
    if asleep and run.ceiling_at and all(c.what != "ceiling" or c.at != run.ceiling_at for c in timers):
        yield violation(RUN, run, f"it sleeps, and its ceiling at {run.ceiling_at} is not among its timers")
    if not asleep or one.mapping is None or one.mapping.version != one.rows.now.mapping:
        return  # a due run stays due, even if a clock skip moves its timers
    due = due_of(timers, one.mapping)
    if due is not None and (run.due_at is None or run.due_at > due):
        yield violation(RUN, run, f"a timer ends at {due}, but the run is due at {run.due_at}")


def missing_numbers(there: Iterable[int], last: int, first: int = 1) -> list[int]:
    """Return the first ten numbers from `first` to `last` that are not there. `last` is a stored number of any size."""
    known = set(there)
    return [*islice((n for n in range(first, last + 1) if n not in known), 10)]


def floor_kept(one: CheckedRun) -> Violations:
    """Check that the history of a window begins at its floor, and that no open call is behind it (S-32)."""
    floor = one.floor
    if floor is None:
        return
    if not 1 <= floor.seq <= one.run.seq or not 1 <= floor.visit <= one.run.visit:
        yield violation(FLOOR, floor, f"at event {floor.seq}; the run has {one.run.seq}, and {one.run.visit} visits")
    if one.history and (one.history[0].seq, one.history[0].visit) != (floor.seq, floor.visit):
        begins = one.history[0]
        yield violation(FLOOR, floor, f"at event {floor.seq} of visit {floor.visit}; event {begins.seq} is the first")
    if one.history is not None and one.first is None:
        yield EVENT, (one.run.tenant, one.run.run, 1), "the first event of the run is missing"
    for effect in one.effects:
        if not effect.settled_at and not effect.child_text and 0 < (effect.visit or effect.first_visit) < floor.visit:
            yield violation(EFFECT, effect, f"it is open, and the floor is at visit {floor.visit}")


def attributes_kept(run: Run, rows: Sequence[Attribute]) -> Violations:
    """Check that the index has each attribute of a run as its row has it, and no other."""
    there = {row.name: row for row in rows}
    try:
        wanted = {each.name: each for each in run.attributes}
    except Corrupt:
        return  # reported by row_columns
    for name, each in wanted.items():
        row = there.pop(name, None)
        if row is None:
            yield violation(RUN, run, f"its attribute {name} is not in the index")
        elif (row.value, row.version, row.at) != (attribute_text(each.value), each.changes, run.created_at):
            yield violation(ATTRIBUTE, row, f"it is {row.value!r}; the run has {each.value!r}")
    for row in there.values():
        yield violation(ATTRIBUTE, row, "its run does not have it")


def flaggings_kept(run: Run, rows: Sequence[Flagging]) -> Violations:
    """Check that each cause for which a run needs a person has the row of a flagging.

    An entry of a version without causes has none.
    """
    there = {name for row in rows for name in causes_in(row.causes)}
    wanted = [name for name in causes_in(run.causes) if name.cause != name.reason] if run.flagged_at else []
    for name in wanted:
        if name not in there:
            yield violation(RUN, run, f"no flagging tells of {name.reason} with cause {name.cause}")


def run_mail(one: CheckedRun) -> Violations:
    """Check that the messages of a run are numbered from 1 without a gap (S-1).

    Those behind its window are gone, and those of children that a map has counted (S-31).
    """
    has_gaps = one.floor is not None or one.ledger_purged or any(memo.activity == MAP for memo in one.rows.memos)
    extra = [message for message in one.rows.messages if not 1 <= message.n <= one.run.inbox_seq]
    numbers = (message.n for message in one.rows.messages)
    for n in missing_numbers(numbers, one.run.inbox_seq) if not has_gaps else ():
        yield MESSAGE, (one.run.tenant, one.run.run, n), f"message {n} of {one.run.inbox_seq} is missing"
    for message in extra[:10]:
        yield violation(MESSAGE, message, f"the run's row counts {one.run.inbox_seq} messages")


def wait_bound(one: CheckedRun) -> Violations:
    """Check that a wait is bound once, to messages that arrived, and no message to two waits (S-14)."""
    taken: set[int] = set()
    for wait in one.rows.waits:
        try:
            numbers = set(wait.binding or ())
        except Corrupt:
            continue  # reported by row_columns
        if wrong := wrong_wait(wait):
            yield violation(WAIT, wait, wrong)
        elif never := sorted(n for n in numbers if not 1 <= n <= one.run.inbox_seq):
            yield violation(WAIT, wait, f"it is bound to message {never[0]}; {one.run.inbox_seq} have arrived")
        elif twice := sorted(taken & numbers):
            yield violation(WAIT, wait, f"it is bound to message {twice[0]}, which another wait has had")
        taken |= numbers


def wait_visit(one: CheckedRun) -> Violations:
    """Check that a wait belongs to a visit of the run (S-15)."""
    for wait in one.rows.waits:
        if not 1 <= wait.visit <= one.run.visit:
            yield violation(WAIT, wait, f"of visit {wait.visit}; the run is in its visit {one.run.visit}")


def evidence_of_effect(one: CheckedRun) -> Violations:
    """Check that evidence names an existing effect (S-10)."""
    known = {(e.visit, e.key) for e in one.effects}
    for row in one.rows.evidence:
        if (row.visit, row.key) not in known and not one.is_purged(row.visit):
            yield violation(EVIDENCE, row, "no effect has this key")


def approval_decided(one: CheckedRun) -> Violations:
    """Check that an approval is decided by permitted people before it expires (I26, I28)."""
    yield from own_rows(APPROVAL, one.rows.approvals, wrong_approval)


def approval_plans(one: CheckedRun) -> Violations:
    """Check that each plan's digest is that of its call in this run (I27)."""
    run = one.run
    for approval in one.rows.approvals:
        try:
            plans, wrong = approval.plans, wrong_offer(approval)
        except Corrupt:
            continue  # reported by row_columns
        if one.chain and (altered := next((p for p in plans if not is_exact(run.tenant, run.run, p)), None)):
            yield violation(APPROVAL, approval, f"the plan {altered.key} does not give its digest")
        elif wrong:
            yield violation(APPROVAL, approval, wrong)


def approval_consumed(one: CheckedRun) -> Violations:
    """Check that an approval is consumed by one effect, which names it and matches its plan (I7, I27)."""
    effects = {effect_name(effect): effect for effect in one.effects}
    approvals = {approval.id: approval for approval in one.rows.approvals}
    for approval in one.rows.approvals:
        if not approval.consumed_by:
            continue
        effect = effects.get(approval.consumed_by)
        if approval.status is not ApprovalStatus.APPROVED:
            yield violation(APPROVAL, approval, f"it is {approval.status}, and {approval.consumed_by} consumed it")
        elif effect is None:
            if not one.ledger_purged and not one.is_purged(approval.visit):
                yield violation(APPROVAL, approval, f"{approval.consumed_by} consumed it, which does not exist")
        elif _planned_digest(effect, one.run) != approval.chosen:
            yield violation(
                APPROVAL, approval, f"{approval.consumed_by} consumed it, and differs from the approved plan"
            )
    for effect in one.effects:
        if effect.approval and (
            effect.approval not in approvals or approvals[effect.approval].consumed_by != effect_name(effect)
        ):
            yield violation(EFFECT, effect, f"it names the approval {effect.approval}, which it did not consume")


def _planned_digest(effect: Effect, run: Run) -> str:
    """Return the digest of the plan that a call of the run was made from. A plan has the key without its tree."""
    return digest(effect.tenant, run.run, effect.activity, plain_key(effect.key), effect.args)


def approval_in_time(one: CheckedRun) -> Violations:
    """Check that no effect is covered by its approval for longer than the approval is valid (S-20)."""
    approvals = {approval.id: approval for approval in one.rows.approvals}
    for effect in one.effects:
        approval = approvals.get(effect.approval)
        if approval and effect.covered_until > approval.valid_until and effect.status is not EffectStatus.REFUSED:
            yield violation(EFFECT, effect, f"covered until {effect.covered_until}, beyond {approval.valid_until}")


def approval_at_end(one: CheckedRun) -> Violations:
    """Check that an ended run has no pending and no unused approval (S-20)."""
    if not is_over(one.run):
        return
    for a in one.rows.approvals:
        if a.status is ApprovalStatus.PENDING or (a.status is ApprovalStatus.APPROVED and not a.consumed_by):
            yield violation(APPROVAL, a, f"it is {a.status} and unused, and its run has ended {one.run.status}")


SAFE: Final[dict[str, frozenset[str]]] = {
    "journal_mode": frozenset({"wal"}),
    "synchronous": frozenset({"full", "extra"}),
}


def slot_held(slot: Slot, holder: Run | None) -> Violations:
    """Check that a slot in use is held by an unfinished run (I32)."""
    if not slot.holder:
        if wrong := wrong_slot(slot):
            yield violation(SLOT, slot, wrong)
        return
    if holder is None:
        yield violation(SLOT, slot, f"held by {slot.holder}, which does not exist")
    elif is_over(holder):
        yield violation(SLOT, slot, f"held by {slot.holder}, which has ended {holder.status}")


def slot_named(run: Run, slots: dict[Key, Slot | None]) -> Violations:
    """Check that a run holds exactly the slots that its row names (I32). `slots`: None for an unreadable row."""
    try:
        names = run.slots
    except Corrupt:
        return  # reported by row_columns
    for name in names:
        slot = slots.get(name)
        if name in slots and slot is None:
            continue  # it is reported as unreadable
        if slot is None or (slot.holder_tenant, slot.holder) != (run.tenant, run.run):
            holder = slot.holder if slot else ""
            yield violation(RUN, run, f"it names the slot {name[0]}/{name[1]}, held by {holder or 'no run'}")


def owner_known(run: Run, workers: Set[str]) -> Violations:
    """Check that a run's owner has a worker row, so that none is taken over because a row was deleted (I12)."""
    if run.owner and not is_over(run) and run.owner not in workers:
        yield violation(RUN, run, f"owned by {run.owner}, which has no worker row")


def worker_lease(worker: Worker) -> Violations:
    """Check that a worker's lease ends after its last renewal (S-2)."""
    if wrong := wrong_lease(worker):
        yield violation(WORKER, worker, wrong)


def settings_safe(facts: dict[str, str | int], schema: int) -> Iterator[str]:
    """Yield errors of the store's settings: unsafe durability, or another schema (RUN-1)."""
    for name, good in SAFE.items():
        if name in facts and str(facts[name]) not in good:
            yield f"{name} is {facts[name]}; it has to be {' or '.join(sorted(good))}"
    if facts.get("schema", schema) != schema:
        yield f"schema {facts['schema']}; this version writes {schema}"


def usage_of(usage: Usage, known: bool) -> Violations:
    """Check that a used tenant effect exists (S-18)."""
    if not known:
        yield violation(USAGE, usage, f"{usage.run} used {usage.key}, which does not exist")


def usage_counted(run: Run, rows: Sequence[CallUsage]) -> Violations:
    """Check that usage is of a claim and a visit of the run, on the day of its time, and that no amount is negative."""
    for row in rows:
        if not SUMMED <= row.epoch <= run.epoch or not 0 <= row.visit <= run.visit or row.n < 1:
            yield violation(
                CALL_USAGE, row, f"of visit {row.visit}; the run is at epoch {run.epoch}, visit {run.visit}"
            )
        if wrong := wrong_usage(row):
            yield violation(CALL_USAGE, row, wrong)


def usage_known(effect: Effect, owner: Run | None, usage: Usage | None) -> Violations:
    """Check that a tenant effect has a usage row of the run that made it, unless that run was deleted (S-18)."""
    if effect.by_run and owner is not None and usage is None:
        yield violation(EFFECT, effect, f"{effect.by_run} made it, and has no usage row for it")


def token_target(token: Token, gone: bool) -> Violations:
    """Check that a token names an existing run, or one that was purged completely (CKP-7)."""
    if not gone:
        yield violation(TOKEN, token, f"of {token.run or token.target}: its events exist, its row does not")


def copies_match(run: Run, ledger: ForkLedger | None, effects: Iterable[Effect]) -> Violations:
    """Check that a fork has its terms, and that a copied call is the row of its ancestor of the same version (S-28)."""
    if ledger is None:
        yield violation(RUN, run, f"it was forked from {run.forked_from}, and has no copy of its past")
        return
    if ledger.terms.of != run.forked_from:
        yield violation(RUN, run, f"it was forked from {run.forked_from}; its terms say {ledger.terms.of}")
    rows = {(row.run, row.visit, row.key, row.version): row for row in effects}
    for call in ledger.calls:
        visit = call.visit if call.once_per == "visit" else 0
        row = rows.get((call.of, visit, call.key, call.version)) if call.kind != "lookup" else None
        if row is not None and (row.digest, row.status, row.response) != (call.digest, call.status, call.response):
            yield violation(EFFECT, row, f"{run.run} has copied another call, status or response of this version")


def fork_noted(
    fork: Run, terms: ForkTerms, ancestor: Run | None, notes: Iterable[ForkNote], skew: int = 0
) -> Violations:
    """Check that a run that had not ended when it was forked has a note of the fork (S-28). None: it cannot be read."""
    if ancestor is None or (is_over(ancestor) and ancestor.ended_at <= fork.created_at + skew):
        return
    if note_of(notes, fork.run, terms) is None:
        yield violation(RUN, fork, f"run {ancestor.run} goes on, too, and has no note of this fork with its terms")


def fork_started(row: Meta, memo: Memo | None, start: ForkStart, *, was_started: bool) -> Violations:
    """Check that a start of a fork has made no run, and that its memo names it (S-28)."""
    if was_started:
        yield violation(META, row, f"run {start.run} was forked already")
    elif memo != start.memo():
        yield violation(META, row, f"no memo of run {start.run} names this start")


def event_delivered(
    run: Run,
    history: Sequence[Event],
    subscription: Subscription,
    cursor: Cursor | None,
    failed: dict[int, Delivery],
    unpublished: Collection[int],
) -> Violations:
    """Check that every event a subscription wants is behind its cursor, owed by it or unpublished (I23)."""
    if not deliveries.is_active(subscription) or not deliveries.wants_workflow(subscription, run.workflow):
        return
    if subscription.swept != SWEPT:
        return  # its backfill is not complete
    upto = cursor.upto if cursor else 0
    for event in history:
        wanted = event.at >= subscription.since and deliveries.wants_type(subscription, event.type)
        if wanted and event.seq > upto and event.seq not in unpublished:
            yield violation(EVENT, event, f"{subscription.subscription} will never receive it")
    for row in failed.values():
        seq = deliveries.event_seq(row)
        waits = row.status in (DeliveryStatus.OWED, DeliveryStatus.SCHEDULED)
        if cursor is None or seq > cursor.upto:
            yield violation(DELIVERY, row, f"it was sent, and its cursor is at {cursor.upto if cursor else 'nothing'}")
        elif waits and seq <= cursor.seq and not cursor.again:
            yield violation(DELIVERY, row, "it must be sent again, and its cursor does not know it")
        elif row.status is DeliveryStatus.DEAD and seq > cursor.seq:
            yield violation(DELIVERY, row, "it was given up, and its cursor has not passed it")


def cursor_due(cursor: Cursor, run: Run | None) -> Violations:
    """Check that a cursor is due exactly if it owes events, and knows no event that does not exist."""
    if wrong := wrong_cursor(cursor):
        yield violation(CURSOR, cursor, wrong)
    elif run is not None and cursor.upto > run.seq:
        yield violation(CURSOR, cursor, f"known up to {cursor.upto}; the run has {run.seq} events")
