"""Invariants of single rows. Stores check them before a write, and `outlast fsck` checks them in what is stored.

Both use the functions of this module, so no commit can write a row that fsck reports. Invariants between rows are in
`upkeep/fsck_checks.py` and `upkeep/fsck_history.py`.
"""

import json
from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import cache, partial
from itertools import product
from typing import Any, Final, get_args, get_type_hints

from outlast.core.approver_rule import Rule, identity
from outlast.core.causes import Flags, causes_in, flags_of
from outlast.core.commit import changed
from outlast.core.detail_fields import Bounds
from outlast.core.machine import (
    ENDED,
    HELD,
    TERMINAL,
    ApprovalStatus,
    DeliveryStatus,
    EffectStatus,
    LeaseStatus,
    Reason,
    RunStatus,
    SubscriptionStatus,
    WaitStatus,
)
from outlast.core.rows.all_kinds import KINDS, R, Row
from outlast.core.rows.approval_columns import PLANS, OfferedCall
from outlast.core.rows.columns import SUFFIX
from outlast.core.rows.effect_columns import ANSWER, ANSWER_NOT_STORED, EvidenceAnswer
from outlast.core.rows.effect_rows import (
    APPROVAL,
    EFFECT,
    EVIDENCE,
    STATED,
    UNDO_RESERVED,
    USED,
    WAIT,
    Approval,
    Effect,
    Wait,
)
from outlast.core.rows.limit_rows import CALL_USAGE, SLOT, Slot
from outlast.core.rows.outbox_rows import CURSOR, DELIVERY, SUBSCRIPTION, Cursor
from outlast.core.rows.row_kind import AnyKind, Kind
from outlast.core.rows.run_columns import ATTENTION, Attention
from outlast.core.rows.run_rows import RUN, Run
from outlast.core.rows.store_rows import WORKER, Worker
from outlast.core.start_details import DECLARED
from outlast.core.usage import CallUsage, day_of
from outlast.core.webhooks.webhook_details import WEBHOOK_DETAILS
from outlast.errors import Corrupt, InvalidInput

DECIDED: Final = frozenset({ApprovalStatus.APPROVED, ApprovalStatus.REJECTED, ApprovalStatus.AGAIN})


def check_run(run: Run) -> None:
    """Raise Corrupt unless the run row keeps its invariants. Called before a write and after a read."""
    over = run.status in TERMINAL
    owned = run.owner not in ("", ENDED)
    if over != (run.owner == ENDED) or over != (run.ended_at > 0):
        raise Corrupt(f"run {run.run}: status {run.status}, owner {run.owner!r}, ended_at {run.ended_at}")
    if over and (run.due_at is not None or run.waiting_for_text or run.slots_text or run.queue):
        raise Corrupt(f"run {run.run}: it has ended but still waits or holds a slot")
    if owned and (run.status not in HELD or run.due_at is None):
        raise Corrupt(f"run {run.run}: owned by {run.owner} but {run.status} with due_at {run.due_at}")
    if not over and not owned and run.due_at is None and not run.waiting_for_text:
        raise Corrupt(f"run {run.run}: neither due, owned nor waiting")
    if run.version < 1 or run.seq < 1 or run.visit < 1 or run.inbox_seq < 0 or run.epoch < 0:
        raise Corrupt(f"run {run.run}: a counter below its first value")
    # because a group of -1 would let no run be claimed, and a run with a ceiling before 0 would be due again at once
    if run.crash_count < 0 or run.group_max < 0 or run.restored < 0 or run.ceiling_at < 0 or run.ended_at < 0:
        raise Corrupt(f"run {run.run}: crash_count, group_max, restored, ceiling_at or ended_at is below 0")


def check_effect(effect: Effect, *, stored: bool = False) -> None:
    """Raise Corrupt unless the effect row keeps its invariants.

    `stored`: the row was read. Then it may lack who settled it and why, because earlier versions withheld undos so,
    and a run must stay readable.
    """
    status = effect.status
    is_open = status in (EffectStatus.INTENDED, EffectStatus.UNCERTAIN)
    if is_open == (effect.settled_at > 0):
        raise Corrupt(f"effect {effect.key}: {status} with settled_at {effect.settled_at}")
    if effect.attempts < 1 or effect.ordinal < 1 or effect.not_after < effect.first_at:
        raise Corrupt(f"effect {effect.key}: attempts, ordinal or not_after below the first intent")
    if status is EffectStatus.DONE and effect.response is None and effect.code != ANSWER_NOT_STORED:
        raise Corrupt(f"effect {effect.key}: done without a response")
    if effect.by_run or effect.shared or effect.keep_ms or effect.redone or not effect.run:
        _check_shared(effect)
    if is_open or stored:
        return
    if not effect.settled_by:
        raise Corrupt(f"effect {effect.key}: it is {status} without settled_by")
    if status is EffectStatus.REFUSED and not effect.code:
        raise Corrupt(f"effect {effect.key}: it is refused without a reason")


def _check_shared(effect: Effect) -> None:
    status, shared = effect.status, effect.shared
    if bool(effect.run) == bool(effect.by_run):
        raise Corrupt(f"effect {effect.key}: of run {effect.run!r} and shared by run {effect.by_run!r}")
    if effect.run and (shared not in (0, STATED) or effect.keep_ms or effect.redone):
        raise Corrupt(f"effect {effect.key}: of one run but shared, kept or redone")
    if shared == STATED and status not in (EffectStatus.DONE, EffectStatus.REFUSED):
        raise Corrupt(f"effect {effect.key}: {status} but a person's answer may be corrected")
    if shared in (USED, UNDO_RESERVED) and status not in (EffectStatus.DONE, EffectStatus.UNDONE):
        raise Corrupt(f"effect {effect.key}: {status} but its answer was used or taken back")


# --- rows of each kind: why a row is wrong; '' if it keeps its invariants ------------------------------
def wrong_details(row: Row, bounds: Bounds = DECLARED.stored_bounds) -> str:
    """Return why a fact that a caller stated is too long. `bounds`: those of the facts of a run, or of another row."""
    for name, noun, chars_max in bounds:
        if len(text := getattr(row, name)) > chars_max:
            return f"its {noun} has {len(text)} characters"
    return ""


def wrong_visits(run: Run) -> str:
    """Return why the visit number differs from the entries into nodes, the present one included (S-15)."""
    visits = run.visits
    if sum(visits.values()) != run.visit or not visits.get(run.node):
        return f"visit {run.visit} at node {run.node}, but it was entered {dict(visits)}"
    return ""


def wrong_flags(run: Run) -> str:
    """Return why the columns by which flagged runs are counted do not follow from the attention of the run."""
    if run.ended_at:
        return ""
    flags, has = flags_of(run.attention_text), Flags(run.causes, run.flagged_at, run.flagged_until)
    earlier = any(each.reason == each.cause for each in causes_in(flags.causes))  # its instants are not known
    if has == flags or (earlier and has.causes == flags.causes):
        return ""
    return f"its row says {tuple(has)}, its attention {tuple(flags)}"


def wrong_approval(a: Approval) -> str:
    """Return why an approval was not decided by permitted people before it expired (I26, I28)."""
    if a.status in DECIDED and not (a.decided_by and a.decided_at):
        return f"it is {a.status} without decided_by"
    if a.status in (ApprovalStatus.PENDING, ApprovalStatus.EXPIRED) and (a.decided_by or a.decided_at):
        return f"it is {a.status}, and {a.decided_by or 'an unnamed person'} decided it"
    if a.decided_at and a.decided_at >= a.within_until:
        return f"decided at {a.decided_at}; it expired at {a.within_until}"
    if a.decided_at and a.decided_at < a.asked_at:
        return f"decided at {a.decided_at}, before it was asked for at {a.asked_at}"
    if a.status is ApprovalStatus.APPROVED and not a.chosen:
        return "it is approved, and no plan was chosen"
    if a.status is ApprovalStatus.APPROVED and a.not_requester and identity(a.decided_by) == identity(a.requested_by):
        return f"{a.decided_by} asked for the run and approved it"
    if a.status is ApprovalStatus.APPROVED and a.quorum > 1:
        voters = {identity(each) for each in (*(vote.by for vote in a.votes), a.decided_by)}
        if len(voters) < a.quorum:
            return f"{len(voters)} people approved it; {a.quorum} are required"
    return ""


def wrong_offer(a: Approval) -> str:
    """Return why an approval offers or chose no plan that it has (I27)."""
    if not a.plans:
        return "it offers no plan"
    if a.chosen and not a.editable and a.chosen not in {plan.digest for plan in a.plans}:
        return "the chosen plan is not among its plans"
    return ""


def wrong_wait(wait: Wait) -> str:
    """Return why the status of a wait and its binding differ (S-14)."""
    if (wait.status is WaitStatus.BOUND) != bool(wait.binding_text):
        return f"it is {wait.status} with the binding {wait.binding_text!r}"
    return ""


def wrong_slot(slot: Slot) -> str:
    """Return why a free slot is not free (I32)."""
    return f"it is free, and names the tenant {slot.holder_tenant}" if slot.holder_tenant and not slot.holder else ""


def wrong_lease(worker: Worker) -> str:
    """Return why a lease ends before its last renewal (S-2)."""
    if worker.lease_until < worker.renewed_at:
        return f"its lease ended at {worker.lease_until}, before its renewal {worker.renewed_at}"
    return ""


def wrong_usage(row: CallUsage) -> str:
    """Return why a row of usage has another day than its time, or a negative amount."""
    if row.day != day_of(row.at) or min(row.amounts) < 0:
        return f"its day is {row.day} and its amounts are {tuple(row.amounts)}"
    return ""


def wrong_cursor(cursor: Cursor) -> str:
    """Return why a cursor is not due exactly if it owes events."""
    owes = cursor.seq < cursor.upto or cursor.again > 0
    if owes != (cursor.due_at is not None) and not cursor.owner:
        return f"it owes {'something' if owes else 'nothing'}, and is due at {cursor.due_at}"
    if not 0 <= cursor.last <= cursor.seq <= cursor.upto:
        return f"last {cursor.last}, told {cursor.seq}, known {cursor.upto}"
    if cursor.owner and cursor.due_at is None:
        return f"held by {cursor.owner} without an end"
    return ""


WRONG: Final[dict[str, Callable[[Any], str]]] = {
    RUN.name: wrong_details,
    APPROVAL.name: wrong_approval,
    WAIT.name: wrong_wait,
    SLOT.name: wrong_slot,
    WORKER.name: wrong_lease,
    CALL_USAGE.name: wrong_usage,
    CURSOR.name: wrong_cursor,
    SUBSCRIPTION.name: partial(wrong_details, bounds=WEBHOOK_DETAILS.stored_bounds),
}
"""Checks of a store beside `check_run` and `check_effect`.

It decodes no structured column: `Column.encode` has written them, and fsck decodes each.
"""


CHECKED: Final = frozenset({RUN.name, EFFECT.name, *WRONG})
"""Kinds of rows with invariants: `check_row` accepts each row of another kind."""


def check_row(kind: AnyKind, row: Row) -> None:
    """Raise Corrupt unless a row keeps its own invariants. Every store calls it before a write."""
    if kind is RUN:
        assert isinstance(row, Run)
        check_run(row)
    elif kind is EFFECT:
        assert isinstance(row, Effect)
        check_effect(row)
    if (wrong := WRONG.get(kind.name)) is not None and (why := wrong(row)):
        raise Corrupt(f"{kind.name} {'/'.join(map(str, row[: kind.key]))}: {why}")


# --- rows in lists: one that cannot be read must not hide the others -----------------------------------
STRUCTURED: Final = {kind.name: tuple([name for name in kind.row._fields if name.endswith(SUFFIX)]) for kind in KINDS}
"""Fields with a structured value, by kind of row."""
UNREADABLE: Final = "unreadable"
_CLOSED: Final[dict[str, StrEnum]] = {
    RUN.name: RunStatus.WAITING,
    APPROVAL.name: ApprovalStatus.WITHDRAWN,
    EFFECT.name: EffectStatus.REFUSED,
    WAIT.name: WaitStatus.BOUND,
    WORKER.name: LeaseStatus.CLOSED,
    SUBSCRIPTION.name: SubscriptionStatus.DISABLED,
    DELIVERY.name: DeliveryStatus.DEAD,
}
"""Status that a list shows in place of an unknown one: nothing can be decided about such a row."""
_IN_PLACE: Final = {
    "plans_text": PLANS.encode([OfferedCall(UNREADABLE, UNREADABLE, "", "{}")]),
    "answer_text": ANSWER.encode(EvidenceAnswer(UNREADABLE)),
}


def check_readable(run: Run) -> None:
    """Raise Corrupt unless each structured column of a run can be read."""
    for field in STRUCTURED[RUN.name]:
        if getattr(run, field):
            getattr(run, field.removesuffix(SUFFIX))


def listed(kind: Kind[R], row: R) -> R:
    """Return a row as a list shows it: columns that cannot be read are replaced, and a run says so."""
    for field in STRUCTURED[kind.name]:
        try:
            getattr(row, field.removesuffix(SUFFIX))
        except Corrupt as error:
            row = _without(kind, row, {field: _IN_PLACE.get(field, "")}, error.what)
    if kind.name == EFFECT.name:
        return _listed_effect(kind, row)
    if kind.name == EVIDENCE.name:
        return _listed_evidence(kind, row)
    return _listed_approval(kind, row) if kind.name == APPROVAL.name else row


def _listed_evidence(kind: Kind[R], row: R) -> R:
    """Return a late answer of which a list can show the response."""
    evidence: Any = row
    try:
        answer = evidence.answer
        texts = [answer.status, *([answer.error.code, answer.error.detail] if answer.error is not None else ())]
        if not all(isinstance(each, str) for each in texts):
            raise TypeError("its status or error is no text")
        answer.response()
    except (Corrupt, TypeError, ValueError) as error:
        return _without(kind, row, {"answer_text": _IN_PLACE["answer_text"]}, repr(error))
    return row


def _listed_approval(kind: Kind[R], row: R) -> R:
    """Return an approval of which a list can show the calls and the approvers."""
    approval: Any = row
    try:
        for plan in approval.plans:
            plan.arguments()
            if plan.change is not None:
                plan.change.values()
        why = "" if approval.plans else "it offers no plan"
    except (Corrupt, TypeError, ValueError) as error:
        why = f"its calls cannot be read: {error!r}"
    if why:
        row = _without(kind, row, {"plans_text": _IN_PLACE["plans_text"]}, why)
    if str(listed_rule(approval.who)) == UNREADABLE:
        row = _without(kind, row, {"who": UNREADABLE}, "its approvers cannot be read")
    return row


def listed_rule(who: str) -> Rule:
    """Return who may decide an approval, or a role that no person has if the text cannot be read."""
    try:
        return Rule.parse(who)
    except InvalidInput:
        return Rule.parse(UNREADABLE)


def listed_attention(text: str) -> tuple[Attention, ...]:
    """Return the attention of a run, or one entry that says why it cannot be read."""
    try:
        return ATTENTION.decode(text)
    except Corrupt as error:
        return tuple(_of_unreadable(error.what))


def _listed_effect(kind: Kind[R], row: R) -> R:
    """Return an effect of which a list can show the request and the answer."""
    for field, read in (("args", Effect.arguments), ("response", Effect.answer)):
        try:
            read(row)  # type: ignore[arg-type]
        except (Corrupt, TypeError, ValueError) as error:
            data = json.dumps({UNREADABLE: str(getattr(error, "what", error))[:200]}).encode()
            row = changed(row, **{field: data})
    return row


_TYPE_NAMES: Final[dict[type, str]] = {int: "a number", str: "a text", bytes: "bytes"}
_IN_LISTS: Final[dict[type, object]] = {int: 0, str: UNREADABLE, bytes: b"null"}


@cache
def _column_types(kind: AnyKind) -> tuple[tuple[type, bool], ...]:
    """Return the type of each column of a kind, and whether it may be NULL."""
    hints = get_type_hints(kind.row)
    found: list[tuple[type, bool]] = []
    for field in kind.row._fields:
        options = get_args(hints[field]) or (hints[field],)
        (of,) = [str if issubclass(each, str) else each for each in options if each is not type(None)]
        found.append((of, type(None) in options))
    return tuple(found)


@cache
def stored_types(kind: AnyKind) -> frozenset[tuple[type, ...]]:
    """Return the types that the values of a row may have. A status is a text, or in memory its member."""
    status = get_type_hints(kind.row).get("status", str)
    choices: list[tuple[type, ...]] = []
    for field, (of, nullable) in zip(kind.row._fields, _column_types(kind), strict=True):
        of_null = (type(None),) if nullable else ()
        of_status = (status,) if field == "status" and of is str else ()
        choices.append((of, *of_null, *of_status))
    return frozenset(product(*choices))


def wrong_type(kind: AnyKind, values: Sequence[Any]) -> str:
    """Return which column holds a value of another type than it declares."""
    for name, (of, nullable), value in zip(kind.columns, _column_types(kind), values, strict=True):
        if type(value) is not of and not (nullable and value is None):
            return f"its {name} is {repr(value)[:80]}, not {_TYPE_NAMES[of]}"
    return "it has another number of columns"


def listed_as_unreadable(kind: Kind[R], values: tuple[Any, ...], why: str) -> R:
    """Return the row of values that break an invariant, have an unknown status or a wrong type, for a list."""
    values = tuple(
        value if type(value) is of or (nullable and value is None) else _in_list(of, value)
        for (of, nullable), value in zip(_column_types(kind), values, strict=True)
    )
    row, shown = kind.row(*values), _CLOSED.get(kind.name)
    if shown is None:
        return row
    at = kind.columns.index("status")
    known = {member.value: member for member in type(shown)}
    return _without(kind, row, {"status": known.get(values[at], shown)}, why)


def _in_list(of: type, value: object) -> object:
    """Return what a list shows of a value of another type than its column."""
    return value.decode(errors="replace") if of is str and isinstance(value, bytes) else _IN_LISTS[of]


def _without(kind: Kind[R], row: R, changes: dict[str, object], why: str) -> R:
    if kind.name == RUN.name:
        assert isinstance(row, Run)
        changes = {**changes, "attention_text": ATTENTION.encode(_of_unreadable(why, row.causes))}
    return changed(row, **changes)


def _of_unreadable(why: str, causes: str = "") -> list[Attention]:
    """Return the attention that a list shows of a run that cannot be read: the reasons by which it is counted."""
    entry = Attention(Reason.CONTRADICTION, 0, f"its row cannot be read: {why}; check the store: outlast fsck")
    known = {each.value: each for each in Reason}
    found = (name.partition("/") for name in causes.split())
    return [entry._replace(reason=known[reason], cause=cause) for reason, _, cause in found if reason in known] or [
        entry
    ]
