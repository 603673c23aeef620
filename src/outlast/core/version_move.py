"""A run goes over to another version of its workflow, or to another node: asked for by people, moved by its holder."""

import json
from collections.abc import Sequence
from typing import Final, NamedTuple

from outlast.core.commit import AppendMessage, Commit, Instant
from outlast.core.events import EventType
from outlast.core.machine import Choice, Reason
from outlast.core.rows import Message, Run
from outlast.core.run_transition import LogEntry, fence, transition

TO: Final = "to"  # of the payload of an answer that names where to


class MoveRequest(NamedTuple):
    """Where a person wants a run to go on: a version, and a node of it ('' = where it stands)."""

    version: int
    node: str
    by: str
    reason: str


class MoveTarget(NamedTuple):
    """Where a run stands once it has gone over. The visit is the same: its ledger goes on answering (S-15)."""

    lane: str
    node: str
    status_label: str
    visits: dict[str, int]
    state: bytes
    by: str
    reason: str


def lane_of(workflow: str, version: int) -> str:
    """The lane of one version of a workflow."""
    return f"{workflow}@{version}"


def version_in(lane: str) -> int:
    """The version that a lane names."""
    return int(lane.rpartition("@")[2])


def request_move(run: Run, reason: Reason, version: int, node: str, *, actor: str, text: str) -> Commit:
    """Leave the wish that a run go over to a version and a node, as an answer to `reason`.

    It counts only while the run stands where it stood when it was asked for: it can never act twice.
    """
    payload = {
        "choice": Choice.MOVE.value, "key": "", "reason": text, "by_ms": 0,
        TO: {"version": version, "node": node}, "from": [run.lane, run.node, run.visit],
    }  # fmt: skip
    message = Message(run.tenant, run.run, 0, "answer", reason.value, json.dumps(payload).encode(), "", actor, 0)
    return Commit((AppendMessage(message),), label=f"{run.run} post move")


def move_request_of(run: Run, messages: Sequence[Message]) -> MoveRequest | None:
    """The latest wish that still speaks of where the run stands."""
    for message in reversed(messages):
        if message.kind == Choice.CONTINUE:
            return None
        if message.kind != "answer" or message.name not in (Reason.NODE_GONE, Reason.STRANDED_VERSION):
            continue
        payload = json.loads(message.payload)
        if TO not in payload or payload["from"] != [run.lane, run.node, run.visit]:
            return None  # said later: go on where it stands
        return MoveRequest(payload[TO]["version"], payload[TO]["node"], message.actor, payload["reason"])
    return None


def move_to_version(run: Run, to: MoveTarget, *, now: Instant, log_entries: Sequence[LogEntry] = ()) -> Commit:
    """The holder moves its run to another lane or node; the state as it is from here on goes with the event (S-22).

    Visit, waits, approvals and effects stay as they are, and so does the claim.
    """
    assert to.node and to.lane.startswith(f"{run.workflow}@")
    assert (to.lane, to.node) != (run.lane, run.node), "it stands there already"
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
        visits=json.dumps(to.visits),
    )
    return Commit(puts, fence(run), label=f"{run.run} move {to.lane}")
