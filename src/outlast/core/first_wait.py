"""The first of several waits of a node: which one ends, and the commit that ends it and closes the others (S-29).

| the rows say | what follows |
|---|---|
| a message or a decision for a wait, before the earliest deadline | that wait ends; of several, the lowest number |
| none, and the earliest deadline has passed by the store's clock | the wait with this deadline ends |
| none, and no deadline has passed | the run parks |

The earliest deadline is that of any wait of the set, so a later message ends none of them, whichever is bound first.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from outlast.core import effect_verbs
from outlast.core.approvals import withdraw
from outlast.core.codec import canonical, digest
from outlast.core.commit import AppendMessage, Commit, Instant, Put
from outlast.core.machine import Reason, WaitStatus, wait_target
from outlast.core.rows.effect_rows import MEMO, WAIT, Approval, Memo, Wait
from outlast.core.rows.run_columns import ATTENTION
from outlast.core.rows.run_rows import Message, Run
from outlast.core.run_transition import LogEntry, fence, write_log

WAITS_MAX: Final = 8
"""Waits of one set, so that one commit ends one of them, closes the others and withdraws their approvals."""
WON: Final = "first?"
"""Prefix of the key of a memo: the wait of a set that ended first."""


class Candidate(NamedTuple):
    """A wait of a set as an execution sees it. Their order is that of the call."""

    name: str
    """Identity of the wait in its visit."""
    number: float = 0
    """Number of the message that ends it, of a decision, too; 0 = none has come. A child ends between two messages."""
    at: int = 0
    """Business instant of this message."""
    deadline: int = 0
    """Business; 0 = it has none, or its end leaves the others open (an approval)."""
    closes: int = 0
    """Business instant at which the deadline has passed by the clocks of all senders."""


class Winner(NamedTuple):
    """The wait that ends first."""

    name: str
    by_deadline: bool


def first_of(waits: Sequence[Candidate], now: int) -> Winner | None:
    """Return the wait that ends first at the business instant `now`, or None if the run must wait."""
    ends = min((each.deadline for each in waits if each.deadline), default=0)
    in_time = [(each.number, each.name) for each in waits if each.number and (not ends or each.at < ends)]
    if in_time:
        return Winner(min(in_time)[1], False)
    due = next((each for each in waits if each.deadline == ends), None) if ends else None
    return Winner(due.name, True) if due is not None and now >= due.closes else None


def ended_between(at: int, messages: Iterable[Message]) -> float:
    """Return the place of a child's end at this business instant among the messages: after those of the instant."""
    return max((m.n for m in messages if m.at <= at), default=0) + 0.5


def decided_at(approval: Approval, messages: Iterable[Message]) -> tuple[int, int]:
    """Return the number and the instant of the message that decided an approval; zeros if none did."""
    found = [(m.n, m.at) for m in messages if m.kind == "decision" and m.name == approval.id]
    return found[-1] if found else (0, 0)


# --- the memo of a set ------------------------------------------------------------------------------------
def set_key(names: Iterable[str]) -> str:
    """Return the key of the memo of a set. It depends on the names of the waits, never on their order."""
    return WON + digest(*sorted(names))[:16]


def winner_of(memo: Memo) -> str:
    """Return the name of the wait that ended first."""
    assert memo.response is not None, "the memo of a set holds its winner"
    return str(json.loads(memo.response))


def remembered(run: Run, names: Iterable[str], won: str, now: Instant) -> Put:
    """Return the write that keeps which wait of the set ended first."""
    response = canonical(won)
    return Put(MEMO, Memo(run.tenant, run.run, run.visit, set_key(names), "", "", response, "", now.business), 0)


# --- the commit -------------------------------------------------------------------------------------------
class Bound(NamedTuple):
    """How the winner's row ends: by messages, or (None) by its deadline, which has passed at `closes`."""

    wait: Wait
    messages: tuple[int, ...] | None
    complete: bool
    closes: int | None = None
    mapping: int | None = None


def end_first(
    run: Run,
    names: Sequence[str],
    won: str,
    *,
    bound: Bound | None,
    lost: Iterable[Wait],
    withdrawn: Sequence[Approval],
    stopped: Iterable[Put | AppendMessage] = (),
    inbox_seq: int,
    now: Instant,
) -> Commit:
    """End a set of waits by its winner (S-29).

    `bound`: how the winner's own row ends; None if a decision, a child or an earlier execution has ended it. `lost`:
    the other waits, which are closed. `withdrawn`: the other approvals. `stopped`: the requests to the other children
    to end. `inbox_seq`: the last message that the holder read, because an earlier one would have won. Stale if an
    approval was decided in the meantime, or a child has ended.
    """
    assert won in names and len(names) <= WAITS_MAX
    if bound is None:
        ends = Commit((), fence(run, inbox_seq=inbox_seq))
    else:
        wait, messages, complete, closes, mapping = bound
        ends = effect_verbs.bind(
            run, wait, messages, inbox_seq=inbox_seq, complete=complete, closes=closes, mapping=mapping
        )
    writes = [*ends.writes, remembered(run, names, won, now), *(closed(wait) for wait in lost)]
    writes += stopped
    writes += [put for each in withdrawn if (put := withdraw(each, now, why=f"{won} ended first")) is not None]
    ends_of_lost = {approval.within_until for approval in withdrawn}
    over = [a for a in run.attention if a.reason is Reason.APPROVAL_TIMEOUT and a.goes_on and a.since in ends_of_lost]
    if over:  # an approval that timed out has lost, so an operator need not answer
        left = ATTENTION.encode(a for a in run.attention if a not in over)
        entry = LogEntry(set_key(names), f"{won} has ended first: {over[0].detail}, and need not be", {})
        writes += write_log(run._replace(attention_text=left), [entry], now=now).writes
    return ends._replace(writes=tuple(writes), label=f"{run.run} first {won}")


def closed(wait: Wait) -> Put:
    """Return the write that closes a wait that lost: no message ends it any more."""
    assert wait.status is WaitStatus.OPEN
    row = wait._replace(version=wait.version + 1, status=wait_target("close_wait", wait.status))
    return Put(WAIT, row, wait.version)
