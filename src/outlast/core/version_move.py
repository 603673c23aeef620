"""Moves of a run: to another version or node, carried out by its holder; and to another scheduler."""

from collections.abc import Sequence
from typing import NamedTuple

from outlast.core.commit import AppendMessage, Commit, Instant, Put
from outlast.core.divergence import drop_memo
from outlast.core.events import EventType
from outlast.core.lanes import lane_of, scheduler_of, version_in, workflow_in
from outlast.core.machine import Choice, Reason
from outlast.core.rows.effect_rows import MEMO
from outlast.core.rows.run_columns import PERSON_ANSWER, WAITING_FOR, PersonAnswer, placed_visits
from outlast.core.rows.run_rows import Message, Run
from outlast.core.run_transition import LogEntry, fence, transition

UNSERVED = "unserved"
"""Refusal of a move to a version that no live worker serves."""


class MoveRequest(NamedTuple):
    """Version and node requested by a person; node '' = the current node."""

    version: int
    node: str
    by: str
    reason: str


class MoveTarget(NamedTuple):
    """Position of a run after a move. The visit stays, so its ledger still answers calls (S-15)."""

    lane: str
    node: str
    status_label: str
    visits: dict[str, int]
    state: bytes
    by: str
    reason: str
    dropped: tuple[str, ...] = ()
    """Activities whose recorded calls in this visit the new version does not make any more."""
    elsewhere: bool = False
    """A person chose another node, which asks for none of the recorded calls of this visit."""


def request_move(run: Run, reason: Reason, version: int, node: str, *, actor: str, text: str) -> Commit:
    """Request a move to a version and a node, as the answer to `reason`.

    The request counts only while the run is at the position of the request, so it never acts twice.
    """
    request = PersonAnswer(Choice.MOVE, "", text, to=(version, node), at=(run.lane, run.node, run.visit))
    payload = PERSON_ANSWER.encode(request).encode()
    message = Message(run.tenant, run.run, 0, "answer", reason.value, payload, "", actor, 0)
    return Commit((AppendMessage(message),), label=f"{run.run} post move")


def move_request_of(run: Run, messages: Sequence[Message]) -> MoveRequest | None:
    """Return the latest request that still matches the run's position, or None."""
    for message in reversed(messages):
        if message.kind == Choice.CONTINUE:
            return None
        if message.kind != "answer" or message.name not in (Reason.NODE_GONE, Reason.STRANDED_VERSION):
            continue
        answer = message.answer
        if answer.to is None or answer.at != (run.lane, run.node, run.visit):
            return None  # a later answer: continue at the current position
        return MoveRequest(*answer.to, message.actor, answer.reason)
    return None


def move_to_version(
    run: Run, to: MoveTarget, *, now: Instant, log_entries: Sequence[LogEntry] = (), ordinal: int = 0
) -> Commit:
    """Move the run to another lane or node. The event carries the new state (S-22).

    Visit, waits, approvals, effects and claim are unchanged. A memo says what the new code need not ask for again.
    `ordinal`: that of the run's latest effect.
    """
    assert to.node and (workflow_in(to.lane), scheduler_of(to.lane)) == (run.workflow, run.scheduler)
    assert (to.lane, to.node) != (run.lane, run.node), "it is there already"
    data: dict[str, object] = {
        "from": run.lane, "lane": to.lane, "node_before": run.node, "next": to.node, "by": to.by, "reason": to.reason,
    }  # fmt: skip
    puts = transition(
        run,
        "move",
        EventType.MOVED,
        now,
        data,
        log_entries=log_entries,
        snapshot=to.state,
        lane=to.lane,
        node=to.node,
        status_label=to.status_label,
        visits_text=placed_visits(to.visits),
    )
    if to.dropped or to.elsewhere:
        puts = (*puts, Put(MEMO, drop_memo(run, to.dropped, ordinal if to.elsewhere else 0, now), 0))
    return Commit(puts, fence(run), label=f"{run.run} move {to.lane}")


def transfer(run: Run, scheduler: str, *, now: Instant, by: str, reason: str) -> Commit:
    """Give a run that no worker holds to another scheduler, due at once, so that its engine learns of it.

    The epoch rises: a slice of the engine before can write nothing more, and its next one finds that the run is
    scheduled elsewhere. Visit, waits, approvals, effects and state are unchanged.
    """
    assert not run.owner and scheduler != run.scheduler
    lane = lane_of(run.workflow, version_in(run.lane), scheduler)
    waiting = [
        wait._replace(what=f"a worker that serves {lane}") if wait.kind == "worker" else wait
        for wait in run.waiting_for
    ]
    data: dict[str, object] = {"from": run.lane, "lane": lane, "by": by, "reason": reason}
    puts = transition(
        run,
        "transfer",
        EventType.MOVED,
        now,
        data,
        lane=lane,
        epoch=run.epoch + 1,
        due_at=now.real,
        waiting_for_text=WAITING_FOR.encode(waiting),
    )
    return Commit(puts, label=f"{run.run} transfer {lane}")
