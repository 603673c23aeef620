"""Slices: what the engine that schedules a run needs to know after it was executed for a while.

A slice claims one run, executes it until it is released or has ended, and returns a `SliceEnd`. It is read from the
run's row alone, before a claim and after a release, so a repeated slice returns the same end.
"""

from collections.abc import Collection, Iterable
from typing import Final, Literal, NamedTuple, TypeAlias

from outlast.core.commit import Instant
from outlast.core.durations import HEARTBEAT_EVERY
from outlast.core.machine import ApprovalStatus, WaitStatus
from outlast.core.rows.effect_rows import Approval, Wait
from outlast.core.rows.run_rows import Run, is_due, is_over
from outlast.core.run_transition import LogEntry

Then: TypeAlias = Literal["ended", "waits", "due", "held", "elsewhere", "gone", "unserved"]
NEW_HISTORY: Final = "outlast/new-history"
HELD_LOOK: Final = HEARTBEAT_EVERY  # until a held run is looked at again, if its owner's lease tells nothing


class Gate(NamedTuple):
    """Something outside that a run waits for.

    - an approval: `id` is its id, `key` the key of its wait
    - a signal (receive, collect): `id` is the name of the signal, `key` the key of the wait
    - a person (attention): `id` is the reason, `key` the key of the effect
    """

    kind: Literal["approval", "signal", "attention"]
    id: str
    key: str


class SliceEnd(NamedTuple):
    """State of a run after a slice, for the engine that schedules it.

    - ended: it has ended.
    - waits: for what `gates` say, or for `after_ms`.
    - due: another slice can continue it, after `after_ms`.
    - held: a live worker executes it. It may be taken after `after_ms`.
    - elsewhere: another engine schedules it.
    - gone: the store has no such run.
    - unserved: the worker that was asked does not serve its version.
    """

    then: Then
    version: int = 0
    node: str = ""
    lane: str = ""
    status: str = ""
    attention: tuple[str, ...] = ()
    after_ms: int | None = None
    """Until the run must be looked at again, by the store's clock; None: nothing is armed."""
    why: str = ""
    """Reason for people."""
    gates: tuple[Gate, ...] = ()


GONE: Final = SliceEnd("gone", why="the store has no such run")


def slice_end(
    run: Run | None,
    scheduler: str,
    lanes: Collection[str],
    now: Instant,
    *,
    lease_until: int = 0,
    waits: Iterable[Wait] = (),
    approvals: Iterable[Approval] = (),
) -> SliceEnd:
    """Return the state of a run for a worker of `scheduler` that serves these lanes.

    `lease_until`: lease of its owner, 0 without one.
    """
    if run is None:
        return GONE
    end = SliceEnd(
        "ended", run.version, run.node, run.lane, run.status.value, tuple(a.reason.value for a in run.attention)
    )
    if is_over(run):
        return end._replace(why=f"it has ended: {run.status.value}")
    if run.scheduler != scheduler:
        return end._replace(then="elsewhere", why=f"{run.scheduler} schedules it")
    if run.owner:
        left = max(lease_until - now.real, 1) if lease_until else HELD_LOOK
        return end._replace(then="held", after_ms=min(left, HELD_LOOK), why=f"{run.owner} executes it")
    if is_due(run, now.real):
        if run.lane not in lanes:
            return end._replace(then="unserved", after_ms=HELD_LOOK, why=f"this worker does not serve {run.lane}")
        return end._replace(then="due", after_ms=0, why=waiting_text(run))
    after_ms = None if run.due_at is None else run.due_at - now.real
    return end._replace(then="waits", after_ms=after_ms, why=waiting_text(run), gates=gates_of(run, waits, approvals))


def disagreement(run: Run, seen: int) -> str:
    """Return why a slice must not execute a run that its engine saw at a version; '' if it may.

    Rows that were lost prove nothing, so a call that they recorded could be repeated. After `outlast recover` each call
    is settled before it is made again, so the run goes on.
    """
    if seen <= run.version or run.restored:
        return ""
    what = f"{run.scheduler} saw version {seen} of this run, and the store has version {run.version}"
    return f"{what}: an older copy, without the calls made since → restore the newer copy, or continue from this one"


def new_history(run: Run, seen: int | None) -> LogEntry | None:
    """Return the entry of a run's history that says that its engine has none of the run's earlier slices."""
    if seen != 0 or not run.epoch:
        return None
    text = f"{run.scheduler} began a new history of this run, without its earlier slices"
    return LogEntry(f"{NEW_HISTORY}/{run.epoch}", text, {})


def waiting_text(run: Run) -> str:
    """Return what a run waits for."""
    return "waits for " + " and ".join(f"{wait.kind} {wait.what}" for wait in run.waiting_for)


def gates_of(run: Run, waits: Iterable[Wait], approvals: Iterable[Approval]) -> tuple[Gate, ...]:
    """Return what must come from outside before the run goes on, in an order that does not change."""
    found = [Gate("attention", a.reason.value, a.key) for a in run.attention if a.stops]
    found += [Gate("approval", a.id, a.wait) for a in approvals if a.status is ApprovalStatus.PENDING]
    found += [
        Gate("signal", wait.name, wait.key)
        for wait in waits
        if wait.status is WaitStatus.OPEN and wait.visit == run.visit and wait.kind in ("receive", "collect")
    ]
    return tuple(sorted(found))
