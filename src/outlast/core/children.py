"""Child runs: a child is a row of its parent's ledger, and its end a write of the last commit of the child (S-30).

| the parent's holder | what lands in one commit |
|---|---|
| asks for a child the first time | the row in its ledger, and the first commit of the child |
| asks again, in a later execution | nothing: the row names the child |
| asks a child to end | the mark in the row, and the cancel in the child's inbox |

The child's last commit settles the row and tells the parent. Possible faults, and why none loses a child or its
outcome:

- *The parent's holder dies after the start.* The row has landed with the child, so the next holder finds both.
- *A child ends while its parent parks.* The message raises the number of the parent's inbox, so the park is refused.
- *The message is left out, because the parent is due, and a holder reads the parent before the end lands.* The end
  expects the parent's row as it was read, so it is refused and decided again.
- *The parent has ended or is purged.* The end lands without the row or the message.
- *An operator detaches a child while it ends.* Both write the row, so one is refused and decided again.
- *A detached child ends.* Its row has an outcome, which stays. No second child gets this key while the first one lives.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from outlast.core.approver_rule import OF_RUN
from outlast.core.codec import digest
from outlast.core.commit import AppendMessage, Commit, Expect, Instant, Put, When, append_to_inbox
from outlast.core.divergence import SIGNAL
from outlast.core.effect_verbs import consume
from outlast.core.limits import DETAIL_CHARS_MAX, TEXT_CHARS_MAX
from outlast.core.machine import EffectStatus, RunStatus, effect_target
from outlast.core.mailbox import check_unfinished, is_reopened
from outlast.core.row_checks import check_effect
from outlast.core.rows.columns import stored_text
from outlast.core.rows.effect_columns import CHILD, DETACHED, ERROR, NO_ERROR, ChildTerms, EffectError, FailedRun
from outlast.core.rows.effect_rows import EFFECT, MEMO, Approval, Effect, Memo
from outlast.core.rows.run_columns import REASON, Descent, Ending, WaitingFor
from outlast.core.rows.run_rows import RUN, TOKEN, Run, Token, is_due, is_over
from outlast.core.run_transition import LogEntry, fence, log_key
from outlast.core.usage import Limits
from outlast.core.verbs import NewRun, TreePlace
from outlast.core.verbs import start as start_run
from outlast.errors import Conflict

DETAIL_CHARS: Final = 500  # of each run on the path to the run that failed
CHILD_KIND: Final = "child"
"""Kind of the wait for a child, and of the message that its end leaves to the parent, under the key of the child."""


class ChildCall(NamedTuple):
    """A child as its parent asks for it."""

    visit: int  # 0: once per run
    key: str
    digest: str  # of workflow and input
    args: bytes  # the input
    undo: str  # name of the activity that undoes it; 'no: ' and the reason; '' if its workflow writes nothing
    terms: ChildTerms
    undoes: str = ""  # `visit:key` of the completed child that it undoes


def place_below(parent: Run, call: ChildCall, budget: Limits) -> TreePlace:
    """Return the place of a child in the tree of its parent. `budget`: of the parent's workflow, if it is the root."""
    descent = Descent(parent.run, f"{call.visit}:{call.key}", parent.descent.budget if parent.root else budget)
    began = parent.root_created_at or parent.created_at
    return TreePlace(parent.root or parent.run, began, parent.depth + 1, descent, parent.restored)


def child_id(parent: Run, call: ChildCall, attempt: int) -> str:
    """Return the id of a child: the same for each start that a crash repeats, another one for each retry."""
    return _id(parent.tenant, parent.run, call.visit, call.key, attempt)


def child_id_of(parent: Run, visit: int, key: str) -> str:
    """Return the id that the first child under a key gets."""
    return _id(parent.tenant, parent.run, visit, key, 1)


def _id(tenant: str, parent: str, visit: int, key: str, attempt: int) -> str:
    return "run-" + digest(tenant, parent, visit, key, attempt)[:20]


def runs_of(call: Effect) -> list[str]:
    """Return the ids of the runs that were started for a row of the ledger, the latest last."""
    earlier = (_id(call.tenant, call.run, call.visit, call.key, attempt) for attempt in range(1, call.attempts))
    return [*earlier, call.external_id]


def start_child(
    parent: Run,
    call: ChildCall,
    new: NewRun,
    previous: Effect | None,
    *,
    ordinal: int,
    now: Instant,
    limited: bool,
) -> Commit:
    """Start a child and write its row, in one commit of the parent's holder.

    `previous`: the row of a child that has failed, if a person lets the parent try again.
    """
    assert previous is None or is_reopened(previous)
    row = Effect(
        tenant=parent.tenant,
        run=parent.run,
        visit=call.visit,
        key=call.key,
        version=previous.version + 1 if previous else 1,
        status=effect_target("intend", previous.status if previous else None),
        activity=new.workflow,
        digest=call.digest,
        node=parent.node,
        args=call.args,
        response=None,
        error_text="",
        external_id=new.run,
        attempts=previous.attempts + 1 if previous else 1,
        waited_ms=0,
        ordinal=previous.ordinal if previous else ordinal,
        epoch=parent.epoch,
        first_at=now.real,
        not_after=now.real,
        settle_after=0,
        covered_until=0,
        approval="",
        allowed_by="",
        undo=call.undo,
        settled_at=0,
        settled_by="",
        first_visit=previous.first_visit if previous else parent.visit,
        undoes=call.undoes,
        child_text=CHILD.encode(call.terms),
    )
    check_effect(row)
    began = start_run(new, now, limited=limited)
    writes = (Put(EFFECT, row, row.version - 1), *began.writes)
    return Commit(writes, fence(parent), began.expects, label=f"{parent.run} child {call.key}")


def permitted(start: Commit, by: str, approval: Approval | None) -> Commit:
    """Return the start of a child with who permits it, in time. It uses the approval (S-20)."""
    (put, *others), whens = start.writes, start.whens
    assert isinstance(put, Put) and isinstance(put.row, Effect)
    row = put.row._replace(allowed_by=stored_text(by, DETAIL_CHARS_MAX))
    if approval is not None:
        row = row._replace(approval=approval.id, covered_until=approval.valid_until)
        others.append(consume(approval, (row.visit, row.key)))
        whens = (*whens, When(approval.valid_until, False, "business", "lapsed"))
    check_effect(row)
    return start._replace(writes=(put._replace(row=row), *others), whens=whens)


# --- the end of a child -------------------------------------------------------------------------------
class ParentRows(NamedTuple):
    """Rows of a parent that the end of its child changes, as the child's holder has read them."""

    run: Run | None = None
    """None: it is purged."""
    call: Effect | None = None
    """Row of the child in its ledger. None: it is purged."""
    undone: Effect | None = None
    """Row of the completed child that this one undoes."""


NO_PARENT: Final = ParentRows()


def settle_in_parent(
    commit: Commit,
    child: Run,
    ending: Ending,
    response: bytes,
    below: tuple[FailedRun, ...],
    parent: ParentRows,
    now: Instant,
) -> Commit:
    """Return the last commit of a child with its outcome for the parent.

    `below`: runs below the child whose failure ended it. Stale if the parent has changed so that the outcome must be
    told otherwise: read it, and decide again.
    """
    call = parent.call
    if call is None or call.external_id != child.run or call.status is not EffectStatus.INTENDED:
        return commit
    completed = ending.outcome is RunStatus.COMPLETED
    error = EffectError(ending.outcome.value, stored_text(ending.reason, TEXT_CHARS_MAX), below=below)
    row = call._replace(
        version=call.version + 1,
        status=effect_target("record" if completed else "refuse", call.status),
        response=response if completed else None,
        error_text="" if completed else ERROR.encode(error),
        settled_at=max(now.business, 1),
        settled_by="call",
    )
    check_effect(row)
    writes, expects = (*commit.writes, Put(EFFECT, row, call.version)), commit.expects
    if parent.undone is not None and completed:
        undone = parent.undone
        gone = undone._replace(version=undone.version + 1, status=effect_target("undo", undone.status))
        writes = (*writes, Put(EFFECT, gone, undone.version))
    if parent.run is not None and not is_over(parent.run):
        if not parent.run.owner and is_due(parent.run, now.real):  # it reads the row when it is claimed
            expects = (*expects, Expect(RUN, (child.tenant, child.parent), parent.run.version))
        else:
            writes = (*writes, append_to_inbox(child.tenant, child.parent, CHILD_KIND, call.key, child.run))
    return commit._replace(writes=writes, expects=expects)


def failed_path(call: Effect) -> tuple[FailedRun, ...]:
    """Return the runs from a child that did not complete down to the one whose failure ended it."""
    error = call.error or NO_ERROR
    detail = stored_text(error.detail, DETAIL_CHARS)
    return (FailedRun(call.activity, call.key, call.external_id, error.code, detail), *error.below)


def failed_below(child: str, effects: Mapping[tuple[int, str], Effect]) -> tuple[FailedRun, ...]:
    """Return the runs below a run whose failure ended it. `child`: visit and key of the first, from its end."""
    visit, _, key = child.partition(":")
    call = effects.get((int(visit), key)) if child else None
    return () if call is None or not call.child_text or call.status is not EffectStatus.REFUSED else failed_path(call)


# --- requests of a parent to a child, and signals between the two -----------------------------------------
def stop_child(parent: Run, call: Effect, why: str) -> tuple[Put | AppendMessage, ...]:
    """Return the writes that ask a living child to end, once. Stale if it has ended by itself."""
    row = call._replace(version=call.version + 1, child_text=CHILD.encode(call.child._replace(stop=why)))
    payload = REASON.encode(why).encode()
    cancel = append_to_inbox(parent.tenant, call.external_id, "cancel", "cancel", by_run(parent), payload)
    return (Put(EFFECT, row, call.version), cancel)


def stop(parent: Run, call: Effect, why: str) -> Commit:
    """Ask a living child to end."""
    return Commit(stop_child(parent, call, why), fence(parent), label=f"{parent.run} stop {call.key}")


def send_signal(
    sender: Run, to: str, name: str, payload: bytes, signal_id: str, *, is_over: bool, now: Instant
) -> Commit:
    """Send a signal to a child or to the parent, once per id. A run that has ended gets none. Stale if it ends now.

    `to`: id of the run that gets it. `is_over`: it has ended.
    """
    sent = Memo(sender.tenant, sender.run, 0, signal_key(to, signal_id), SIGNAL, "", None, "", now.business)
    writes: tuple[Put | AppendMessage, ...] = (Put(MEMO, sent, 0),)
    if not is_over:
        token = f"{sender.run}/{signal_id}"
        once = Put(TOKEN, Token(sender.tenant, to, f"signal/{token}", "", name, now.business), 0)
        message = append_to_inbox(sender.tenant, to, "signal", name, by_run(sender), payload, token)
        writes = (*writes, once, message)
    return Commit(writes, fence(sender), label=f"{sender.run} signal {name} to {to}")


def signal_key(to: str, signal_id: str) -> str:
    """Return the key of the memo that makes a repeated signal to a run a no-op."""
    return f"signal?{to}?{signal_id}"


def by_run(sender: Run) -> str:
    """Return the actor of the requests of a run to its child or parent."""
    return f"{OF_RUN}{sender.run}"


# --- an operator ----------------------------------------------------------------------------------------
def detach(child: Run, parent: ParentRows, *, actor: str, reason: str, now: Instant) -> Commit:
    """Let the parent of a living child go on without it. The child goes on alone, and keeps its attention.

    The parent gets ChildFailed with the code `detached`. Nothing starts another child under this key, because this one
    may still act. Raises Conflict if the child has ended or holds up no run.
    """
    if not child.parent:
        raise Conflict(f"run {child.run} is no child", "no run has started it", "cancel it, or answer its attention")
    check_unfinished(child)
    call = parent.call
    if call is not None and call.external_id == child.run and call.child.detached:
        raise Conflict(f"run {child.run} is detached", f"run {child.parent} goes on without it", "", refusal=DETACHED)
    if parent.run is None or is_over(parent.run) or call is None or call.external_id != child.run or call.settled_at:
        why = f"run {child.parent} has ended, or has another child under this key"
        raise Conflict(f"run {child.run} holds up no run", why, f"outlast runs show {child.parent}")
    row = call._replace(
        version=call.version + 1,
        status=effect_target("refuse", call.status),
        error_text=ERROR.encode(EffectError(DETACHED, stored_text(reason, TEXT_CHARS_MAX))),
        child_text=CHILD.encode(call.child._replace(detached=True)),
        settled_at=max(now.business, 1),
        settled_by=actor,
    )
    check_effect(row)
    message = append_to_inbox(child.tenant, child.parent, CHILD_KIND, call.key, actor, REASON.encode(reason).encode())
    return Commit((Put(EFFECT, row, call.version), message), label=f"{child.parent} detach {call.key}")


def detachments(calls: Iterable[Effect], memos: Iterable[tuple[int, str]]) -> Iterator[LogEntry]:
    """Yield the entries of the parent's history for children that were detached, unless an earlier visit has them."""
    for call in calls:
        if call.child_text and call.code == DETACHED:
            key = f"outlast/detached/{call.external_id}"
            if not any(written == log_key(key) for _, written in memos):
                error = call.error or NO_ERROR
                text = f"{call.activity} {call.key} was detached by {call.settled_by}: {error.detail}"
                yield LogEntry(key, text, {"child": call.external_id, "by": call.settled_by})


# --- looking --------------------------------------------------------------------------------------------
def awaited(children: Iterable[Effect]) -> list[Effect]:
    """Return the living children that the parent waits for before it ends, without runs that undo one."""
    return [each for each in children if each.child.close == "cancel" and not each.undoes]


def failed(calls: Iterable[Effect]) -> list[Effect]:
    """Return the rows of children that failed, or were cancelled though their parent did not ask them to end."""
    ended = (each for each in calls if each.child_text and each.status is EffectStatus.REFUSED)
    cancelled = RunStatus.CANCELLED.value
    found = (e for e in ended if e.code == RunStatus.FAILED or (e.code == cancelled and not e.child.stop))
    return sorted(found, key=lambda each: each.ordinal)


def waiting(call: Effect) -> WaitingFor:
    """Return what operators see of a parent that waits for a child."""
    then = "continues with its outcome" if not call.child.stop else "undoes its own effects"
    return WaitingFor(CHILD_KIND, f"{call.activity} {call.key}", who=call.external_id, then=then)


def returning(parent: Run | None, child: Run) -> Run | None:
    """Return the parent if the end of this child lets it go on and it needs a slot for that; else None (S-6)."""
    if parent is None or is_over(parent) or parent.owner or parent.queue or parent.slots_text:
        return None
    waits = any(wait.kind == CHILD_KIND and wait.who == child.run for wait in parent.waiting_for)
    return parent if waits else None


def place_of(child: Run) -> tuple[int, str]:
    """Return visit and key of a child in the ledger of its parent."""
    visit, _, key = child.called_as.partition(":")
    return int(visit), key
