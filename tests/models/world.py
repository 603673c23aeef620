"""The rows of a small world as a value, and the store's own judge of commits applied to them.

Everything a model does to its rows goes through the real verbs and the real `Batch`. Counters that only ever grow
(versions, epochs, event numbers) are renumbered after each step, so that the models are finite; values that they
are compared with are renumbered alike.
"""

from typing import NamedTuple

from outlast.core.commit import IDENTITY, Commit, Instant
from outlast.core.events import chain_hash
from outlast.core.machine import ENDED, EffectStatus, RunStatus
from outlast.core.rows.all_kinds import KINDS, Row
from outlast.core.rows.effect_rows import STATED, Effect
from outlast.core.rows.row_kind import AnyKind, Key, key_of
from outlast.core.rows.run_rows import EVENT, MESSAGE, RUN, Event, Message, Run
from outlast.core.verbs import NewRun, start
from outlast.errors import Ended, Stale
from outlast.store.batch import Batch

TENANT, LANE = "t", "w@1"
MAPPING = IDENTITY
SLICE = SLICE_END = 1_000  # how long a slice lasts, far beyond any model's time, and the due_at of every owned run
NEW, OLD = 9, 8  # a counter that equals the row's, and one that is older
KIND_OF = {kind.row: kind for kind in KINDS}
KEPT = tuple(kind for kind in KINDS if kind is not EVENT)

Rows = tuple[Row, ...]


class Landed(NamedTuple):
    """Outcome of a commit: the rows after it, why it was refused, its answer's mail, which invariant it broke."""

    rows: Rows
    refused: str
    inbox_seq: int
    broke: str


def at(t: int) -> Instant:
    """The store's time; real and business time are one."""
    return Instant(t, t, MAPPING.version)


def born(run: str = "r", *, t: int = 1, limited: bool = False) -> Commit:
    """A run as `start` makes it."""
    now = at(t)
    new = NewRun(TENANT, run, "w", LANE, "a", "", b"{}", now.business + SLICE_END, "tester")
    return start(new, now, limited=limited)


def find(rows: Rows, kind: AnyKind, *key: str | int) -> Row | None:
    """One row of tenant `t`."""
    whole = (TENANT, *key)
    return next((row for row in rows if type(row) is kind.row and row[: kind.key] == whole), None)


def run_of(rows: Rows, run: str = "r") -> Run:
    """Return the row of a run."""
    row = find(rows, RUN, run)
    assert isinstance(row, Run)
    return row


def notes_of(rows: Rows) -> tuple[Message, ...]:
    """Return every message of a run, in order."""
    return tuple(row for row in rows if isinstance(row, Message))


def land(rows: Rows, commit: Commit, t: int, judge: type[Batch] = Batch) -> Landed:
    """Judge one commit against the rows, as a store does."""
    found = {(KIND_OF[type(row)].name, key_of(KIND_OF[type(row)], row)): row for row in rows}
    batch = judge(lambda kind, key: found.get((kind.name, key)), at(t))
    try:
        done = batch.land(commit)
    except Stale as stale:
        return Landed(rows, "ended" if isinstance(stale, Ended) else stale.reason, 0, "")
    return Landed(merged(found, batch), "", done.inbox_seq, broken(rows, batch))


def merged(found: dict[tuple[str, Key], Row], batch: Batch) -> Rows:
    """The rows as a batch leaves them, in one order; events are judged by `broken` and then forgotten."""
    after = dict(found)
    for kind, key in batch.erased:
        after.pop((kind.name, key), None)
    for kind in KEPT:
        for key, left in batch.changes[kind.name].items():
            after[kind.name, key] = left.row
    return tuple(after[name] for name in sorted(after))


def broken(rows: Rows, batch: Batch) -> str:
    """The first invariant of DESIGN §8 that a batch breaks; '' when it keeps them all."""
    for key, left in batch.changes[RUN.name].items():
        after = left.row
        assert isinstance(after, Run)
        before = next((row for row in rows if type(row) is Run and row[:2] == key), None)
        events = [x.row for _, x in sorted(batch.changes[EVENT.name].items()) if x.row[:2] == key]
        if wrong := _chained(before, after, events):
            return wrong
        if isinstance(before, Run) and (wrong := _moved(before, after)):
            return wrong
        posted = sum(1 for note in batch.changes[MESSAGE.name] if note[:2] == key)
        if after.inbox_seq != (before.inbox_seq if isinstance(before, Run) else 0) + posted:
            return "mail does not count the notes"
    for key, left in batch.changes["effect"].items():
        old = next((row for row in rows if type(row) is Effect and row[:4] == key), None)
        if isinstance(old, Effect) and old.status is EffectStatus.DONE and not _stands(old, left.row):
            return "a done effect was written again"
    return ""


def _stands(old: Effect, after: Row) -> bool:
    """A done effect stays as it is, but for its use, its undo, and a person's answer that nothing has used yet."""
    assert isinstance(after, Effect)
    if old.shared == STATED:
        same = after._replace(version=old.version, shared=old.shared)
        corrected = same._replace(
            status=old.status, response=old.response, external_id=old.external_id, error_text=old.error_text,
            settled_at=old.settled_at, settled_by=old.settled_by,
        )  # fmt: skip
        return corrected == old and (after.shared in (0, STATED) or bool(old.by_run))
    undone = after.status is EffectStatus.UNDONE
    same = after._replace(version=old.version, shared=old.shared, status=old.status if undone else after.status)
    return same == old and (after.shared == old.shared or bool(old.by_run))


def _moved(before: Run, after: Run) -> str:
    if before.owner == ENDED:
        return "a terminal run was written again"
    if after.epoch < before.epoch or after.version < before.version or after.inbox_seq < before.inbox_seq:
        return "a counter fell"
    if before.owner != after.owner and after.epoch != before.epoch + 1:
        return "the owner changed and the epoch did not rise"
    return ""


def _chained(before: Run | None, after: Run, events: list[Row]) -> str:
    head, seq = (before.event_hash, before.seq) if before else ("", 0)
    for event in events:
        assert isinstance(event, Event)
        seq += 1
        head = chain_hash(head, event.body)
        if (event.seq, event.hash) != (seq, head):
            return "events are not numbered and chained"
    if (after.seq, after.event_hash) != (seq, head):
        return "the run row does not name its last event"
    if before is not None and (after.version != before.version) != bool(events):
        return "a version without an event, or an event without a version"
    return ""


def renumbered(run: Run) -> Run:
    """A run row with its counters at one value each, and without words that only people read."""
    owned = run.owner not in ("", ENDED)
    return run._replace(
        version=NEW,
        epoch=NEW,
        seq=1,
        event_hash="",
        due_at=SLICE_END if owned and run.due_at and run.due_at > SLICE_END // 2 else run.due_at,
        waiting_for_text="something" if run.waiting_for_text else "",
        timers_text="",
        ended_at=min(run.ended_at, 1),
    )


def seen_by(view: Run | None, run: Run) -> Run | None:
    """A holder's copy of the run row, renumbered as the row `run` itself is about to be."""
    if view is None:
        return None
    if view.epoch == run.epoch:
        return renumbered(view)._replace(version=NEW if view.version == run.version else OLD)
    return renumbered(view)._replace(
        version=OLD,
        epoch=OLD,
        status=RunStatus.RUNNING,
        owner="gone",
        due_at=SLICE_END,
        waiting_for_text="",
        inbox_seq=0,
    )


def with_run(rows: Rows, run: Run) -> Rows:
    """The rows with this run row in its place."""
    return tuple(run if type(row) is Run and row[:2] == run[:2] else row for row in rows)


def fresh(rows: Rows, run: str = "r") -> Rows:
    """The rows with the run row, and the epochs its effects name, renumbered."""
    row = run_of(rows, run)
    return tuple(
        renumbered(other)
        if other is row
        else other._replace(epoch=NEW if other.epoch == row.epoch else OLD)
        if isinstance(other, Effect) and other.run == run
        else other
        for other in rows
    )


def unfenced(commit: Commit) -> Commit:
    """The commit without the claim it names."""
    return commit._replace(fence=None)


def nameless(commit: Commit) -> Commit:
    """Return the commit without the message number that it names."""
    assert commit.fence is not None
    return commit._replace(fence=commit.fence._replace(inbox_seq=None))


def whenless(commit: Commit) -> Commit:
    """The commit without the instants it depends on."""
    return commit._replace(whens=())
