"""All rows that say where a run stands, as they were at one moment, and what a sentence about them consists of."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from outlast.core.budget import CLOCK_STEP, DEATHS_ALONE_MAX
from outlast.core.commit import Instant
from outlast.core.durations import span
from outlast.core.events import iso
from outlast.core.machine import Choice
from outlast.core.overlay import attention_of
from outlast.core.quarantine import ALONE, group_of
from outlast.core.route import ANSWERED_BY_CONTINUE
from outlast.core.rows import (
    MESSAGE,
    Approval,
    Effect,
    Event,
    Evidence,
    Message,
    Pause,
    Run,
    Slot,
    Wait,
    Worker,
    is_over,
)
from outlast.runtime.labels import blocked_ms, is_alive, is_held
from outlast.store.port import Store


class RunFacts(NamedTuple):
    """The rows. `events`: the newest ones at least, in order; `workers`: those of the store, closed ones too."""

    run: Run
    now: Instant
    events: Sequence[Event] = ()
    effects: Sequence[Effect] = ()
    waits: Sequence[Wait] = ()
    approvals: Sequence[Approval] = ()
    messages: Sequence[Message] = ()
    workers: Sequence[Worker] = ()
    holds: Sequence[Pause] = ()
    slots: Sequence[Slot] = ()
    evidence: Sequence[Evidence] = ()
    clock_step: int = 0  # how far the wall clock of this machine is ahead of business time
    used: Sequence[Effect] = ()  # of other runs, which this one uses or waits for

    def ago(self, at: int) -> str:
        """How long ago a business instant was."""
        return span(max(0, self.now.business - at))

    def left(self, until: int) -> str:
        """How long until a business instant."""
        return span(max(0, until - self.now.business))

    def left_real(self, until: int) -> str:
        """How long until a real instant."""
        return span(max(0, until - self.now.real))

    def ago_real(self, at: int) -> str:
        """How long ago a real instant was."""
        return span(max(0, self.now.real - at))

    def takers(self) -> list[Worker]:
        """The live workers that serve the run's lane, but for its owner; those whose event loop turns come first."""
        found = [
            w for w in self.workers
            if w.id != self.run.owner and self.run.lane in w.lanes.split() and is_alive(w, self.now)
        ]  # fmt: skip
        return sorted(found, key=lambda worker: blocked_ms(worker, self.now))

    def is_due(self) -> bool:
        """May a worker take it now?"""
        return self.run.due_at is not None and self.run.due_at <= self.now.real

    def instant(self, at: int) -> str:
        """An instant for a fact: relative and exact."""
        text = f"{self.ago(at)} ago" if at <= self.now.business else f"in {self.left(at)}"
        return f"{text}, {iso(at)}"


class ExplanationPart(NamedTuple):
    """What is to be said: `clause` has the run as its subject, and everything else follows from it."""

    clause: str
    next: str
    unblock: tuple[str, ...] = ()
    since: int = 0  # business; 0 = not known, or of no interest
    until: int = 0
    facts: tuple[tuple[str, str], ...] = ()


class Explanation(NamedTuple):
    """Where a run stands: one sentence, its facts by name, what comes next, and the commands that would unblock it."""

    sentence: str
    facts: tuple[tuple[str, str], ...]
    next: str
    unblock: tuple[str, ...]

    def view(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "sentence": self.sentence,
            "facts": dict(self.facts),
            "next": self.next,
            "unblock": list(self.unblock),
        }


def in_order(run: str, effects: Iterable[Effect]) -> tuple[Effect, ...]:
    """Return a run's own effects in the order of their intents, then the shared effects of other runs."""
    return tuple(sorted(effects, key=lambda e: (e.by_run not in ("", run), e.ordinal)))


def clock_step_text(step: int) -> str:
    """Say that the wall clock was set; '' below CLOCK_STEP."""
    if abs(step) < CLOCK_STEP:
        return ""
    if step > 0:
        return f"it was set {span(step)} forward; business time follows within two heartbeats of a worker"
    return f"it is {span(-step)} behind the store's time, which never runs backwards; timers and leases go on"


START_WORKER = "outlast worker MODULE"


def taker_text(seen: RunFacts) -> str:
    """Say which live worker takes the run, in a clause."""
    takers = seen.takers()
    if not takers:
        return f"no live worker serves {seen.run.lane}"
    blocked = blocked_ms(takers[0], seen.now)
    room = capacity_text(seen.run)
    return f"{takers[0].id} takes it{room}" + (
        f"{' and' if room else ''} once {blocked_text(blocked)}" if blocked else ""
    )


def blocked_text(ms: int) -> str:
    """Say that the event loop of a worker is blocked."""
    return f"its event loop turns again: a call has blocked it for {span(ms)}"


def capacity_text(run: Run) -> str:
    """The condition under which a worker takes a run of a small group; '' for other runs (S-5)."""
    group = group_of(run)
    if not group:
        return ""
    return " once it holds no other run" if group == ALONE else f" once it holds at most {group - 1} others"


def group_text(run: Run) -> str:
    """Why a run is executed alone, or in a group of a certain size; '' for other runs (S-5)."""
    if not run.group_max:
        return ""
    how = "alone" if run.group_max == ALONE else f"with at most {run.group_max - 1} other runs"
    counted = f"; {run.crash_count} of {DEATHS_ALONE_MAX} deaths alone" if run.group_max == ALONE else ""
    return f"executed {how} until it advances, because workers that held it died{counted}"


def start_one(seen: RunFacts) -> tuple[str, ...]:
    """The command that starts a worker, where none is there."""
    return () if seen.takers() else (START_WORKER,)


def first_line(text: str, width: int = 300) -> str:
    """The first line of a text that may be a traceback."""
    lines = text.splitlines()
    return lines[0][:width] if lines else ""


NOTES_PER_READ = 1_000


def may_have_pending_requests(run: Run, now: Instant) -> bool:
    """May it have an unread note? A note makes a run that nobody holds due, so a run at rest has read all (S-1)."""
    return (
        run.inbox_seq > 0 and not is_over(run) and (is_held(run) or (run.due_at is not None and run.due_at <= now.real))
    )


async def messages_of(store: Store, run: Run) -> list[Message]:
    """Every note of a run, in the order they were left."""
    found: list[Message] = []
    after = 0
    while True:
        key = (run.tenant, run.run)
        page = await store.rows(MESSAGE, key, after=(*key, after), limit=NOTES_PER_READ)
        found += [row for row in page if isinstance(row, Message)]
        if len(page) < NOTES_PER_READ:
            return found
        after = found[-1].n


def pending_requests_of(run: Run, notes: Iterable[Message]) -> list[dict[str, Any]]:
    """The first cancel, or else the `continue` that answers the present attention, as plain data."""
    if is_over(run):
        return []
    posted: Sequence[Message] = list(notes)
    found = [message for message in posted if message.kind == Choice.CANCEL]
    seen = [a.seen for a in attention_of(run) if a.reason in ANSWERED_BY_CONTINUE]
    if not found and seen:
        found = [message for message in posted if message.kind == Choice.CONTINUE and message.n > max(seen)]
    return [_view(message) for message in found[:1]]


def _view(message: Message) -> dict[str, Any]:
    payload: Mapping[str, Any] = json.loads(message.payload)
    return {"verb": message.kind, "by": message.actor, "at": iso(message.at), "reason": payload.get("reason", "")}
