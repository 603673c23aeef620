"""Runs whose history is a window: where it begins, and which rows behind it go (S-32).

Theory of operation. The holder of the run purges, in commits with the fence of its claim, so no other process writes
rows of a held run. Each commit moves the *floor* (`Floor`) or leaves it, and deletes a portion of the rows behind it.
Possible faults, and why none of them loses a row that is needed:

1. *The holder dies between two portions.* The floor moves no later than the first deletion behind it. So a reader
   never finds a hole above the floor. Rows behind it that are left are found by the next holder, because it loads them.
2. *Another worker has claimed the run.* The fence refuses the portion, floor and deletions alike.
3. *A call behind the floor is open or uncertain.* `hold_of` stops the floor at its visit.
4. *A signal was not read.* Only messages that a wait has bound go, in the commit of that wait or before it. If the wait
   went first, its message would be free to end another wait.
5. *A key counts beyond its visit.* Rows of visit 0 never go.
"""

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Mapping as Facts
from itertools import takewhile
from typing import Final, Literal, NamedTuple, TypeAlias

from outlast.core.commit import EMPTY, Commit, Erase, Instant, Put, bytes_of, changed
from outlast.core.compensation import can_undo
from outlast.core.durations import DAY
from outlast.core.events import EventType
from outlast.core.failed_calls import EffectKey
from outlast.core.limits import PORTION_BYTES, PORTION_ROWS_MAX
from outlast.core.machine import DeliveryStatus, EffectStatus
from outlast.core.rows.all_kinds import Row
from outlast.core.rows.effect_rows import EFFECT, EVIDENCE, MEMO, WAIT, Effect, Evidence, Memo, Wait
from outlast.core.rows.limit_rows import CALL_USAGE
from outlast.core.rows.map_rows import MapInputs, MapOutcome, MapProgress
from outlast.core.rows.outbox_rows import Delivery
from outlast.core.rows.row_kind import AnyKind, key_of
from outlast.core.rows.run_columns import PURGED, PurgedCounts
from outlast.core.rows.run_rows import EVENT, FLOOR, MESSAGE, Event, Flagging, Floor, Message, Result, Run, Token
from outlast.core.run_transition import fence
from outlast.core.usage import SUMMED, CallUsage, day_of, no_request
from outlast.core.webhooks.deliveries import event_seq

UndoTerm: TypeAlias = Literal["keep", "window"]
ResultsTerm: TypeAlias = Literal["keep", "purge"]
OWED_MAX: Final = 7 * DAY
"""Business; an event that a webhook has not received yet stays for so long."""
SLACK_MAX: Final = 16
"""Visits beyond the window after which the floor moves, so that a commit deletes rows of several visits."""
SHARE_OF_AGE: Final = 100
"""A window of time moves once for each hundredth of its length."""
SUMMED_AT_ONCE: Final = 45
"""Rows of usage that one commit replaces. At worst each becomes a sum of its own."""
SWEEP_EVERY: Final = 16
"""Visits between two looks at rows that have no visit, at least."""
DEDUPE_FOR: Final = 30 * DAY
"""Business; how long the id of a signal is remembered."""
NOTICES: Final = frozenset({"child", "decision"})
"""Kinds of messages that only tell a holder to look at a row."""


class WindowTerms(NamedTuple):
    """What a workflow declares about the history of its runs. Exactly one of `visits` and `age_ms` is above 0."""

    visits: int = 0
    age_ms: int = 0
    undo: UndoTerm | None = None
    results: ResultsTerm = "keep"
    dedupe_ms: int = DEDUPE_FOR

    @property
    def slack(self) -> int:
        """Return the visits beyond the window after which the floor moves."""
        return max(1, min(SLACK_MAX, self.visits // 10))


class Behind(NamedTuple):
    """A row behind the floor that goes."""

    kind: AnyKind
    row: Row


class LedgerRows(NamedTuple):
    """Rows of a held run from which those behind the floor are taken, each in the order of visits and numbers."""

    effects: Facts[EffectKey, Effect]
    memos: Facts[EffectKey, Memo]
    waits: Facts[EffectKey, Wait]
    messages: Sequence[Message]
    evidence: Sequence[Evidence] = ()


# --- where the window begins -----------------------------------------------------------------------------
def first_floor(run: Run, first: Event) -> Floor:
    """Return the floor of a run of which nothing was purged. `first`: its first event."""
    return Floor(run.tenant, run.run, 0, 1, "", first.visit, first.at, "", first.visit, 0)


def hold_of(run: Run, open_effects: Iterable[Effect]) -> int:
    """Return the first visit that must stay: that of an open or uncertain call, or the current one.

    A living child holds nothing: its row stays behind the floor.
    """
    return min((e.visit or e.first_visit for e in open_effects), default=run.visit)


def is_due(run: Run, floor: Floor, terms: WindowTerms, now: Instant) -> bool:
    """True if so many visits, or so much time, have been added that the floor should move."""
    if terms.visits:
        return run.visit - floor.visit >= terms.visits + terms.slack
    return floor.entered_at <= now.business - terms.age_ms - terms.age_ms // SHARE_OF_AGE


def must_sweep(run: Run, floor: Floor) -> bool:
    """True if rows without a visit must be looked through: once for each length of the window."""
    return run.visit - floor.swept >= max(SWEEP_EVERY, run.visit - floor.visit)


def moved(
    run: Run, floor: Floor, terms: WindowTerms, oldest: Sequence[Event], *, hold: int, owed: int, now: Instant
) -> Floor:
    """Return the floor as far as it may move over the `oldest` events, which include the one that it names.

    `hold`: as of `hold_of`. `owed`: number of the first event that a webhook waits for; 0 = none. The version stays.
    """
    last = min(hold, run.visit - terms.visits if terms.visits else run.visit)
    counts = dict(floor.purged.visits)
    found, before = floor, ""
    entry = floor.visit, ""
    for event in oldest:
        if event.seq < floor.seq or event.seq == 1 < floor.seq:
            before = event.hash
            continue
        if event.seq == floor.seq:
            entry = event.visit, event.node
        elif event.visit > entry[0]:
            is_old = not terms.age_ms or event.at <= now.business - terms.age_ms
            is_owed = 0 < owed < event.seq and event.at > now.business - OWED_MAX
            if event.visit > last or not is_old or is_owed or event.kind != _CHECKPOINT:
                break
            counts[entry[1]] = counts.get(entry[1], 0) + 1
            entry = event.visit, event.node
            purged = PURGED.encode(floor.purged._replace(visits=dict(counts)))
            found = floor._replace(
                seq=event.seq, event_hash=before, visit=event.visit, entered_at=event.at, purged_text=purged
            )
        before = event.hash
    return found


_CHECKPOINT: Final = EventType.CHECKPOINT.value.removeprefix("dev.outlast.")


# --- rows behind it -----------------------------------------------------------------------------------------
def behind(floor: Floor, terms: WindowTerms, rows: LedgerRows, oldest: Sequence[Event]) -> Iterator[Behind]:
    """Return the rows behind the floor that go, in an order that is safe if only a part of it lands."""
    waits = [wait for wait in takewhile(lambda each: each.visit < floor.visit, rows.waits.values()) if wait.visit]
    inbox = {each.n: each for each in rows.messages} if any(wait.binding_text for wait in waits) else {}
    for wait in waits:
        yield from (Behind(MESSAGE, inbox[n]) for n in wait.binding or () if n in inbox)
        yield Behind(WAIT, wait)
    for message in takewhile(lambda each: each.at < floor.entered_at, rows.messages):
        if message.kind in NOTICES or (message.kind == "resolve" and message.payload == EMPTY):
            yield Behind(MESSAGE, message)
    yield from (Behind(EVIDENCE, each) for each in rows.evidence if 0 < each.visit < floor.visit)
    for effect in takewhile(lambda each: each.visit < floor.visit, rows.effects.values()):
        if leaves(effect, floor, terms):
            yield Behind(EFFECT, effect)
    for memo in takewhile(lambda each: each.visit < floor.visit, rows.memos.values()):
        if memo.visit:
            yield Behind(MEMO, memo)
    yield from (Behind(EVENT, each) for each in oldest if 1 < each.seq < floor.seq)


def leaves(effect: Effect, floor: Floor, terms: WindowTerms) -> bool:
    """True if a row behind the floor goes: it is settled, counts in its visit alone, and nothing may undo it.

    A child goes once its end is behind the floor, too: until then the run may ask for its outcome.
    """
    if not effect.visit or not effect.settled_at or effect.undoes:
        return False
    if effect.child_text and effect.settled_at >= floor.entered_at:
        return False
    return not stays_undoable(effect, terms)


def stays_undoable(effect: Effect, terms: WindowTerms) -> bool:
    """True if the row of a done effect stays, because the end of the run may undo it."""
    return effect.status is EffectStatus.DONE and can_undo(effect) and terms.undo != "window"


# --- a portion ----------------------------------------------------------------------------------------------
class Portion(NamedTuple):
    """A commit that moves the floor or deletes rows behind it, and whether rows are left."""

    commit: Commit
    floor: Floor
    rows: int  # deleted
    is_last: bool


def portion(
    run: Run,
    before: Floor,
    floor: Floor,
    gone: Iterable[Behind],
    rows_max: int = PORTION_ROWS_MAX - 1,
    puts: Sequence[Put] = (),
) -> Portion:
    """Move the floor from `before` to `floor`, and delete as many of the rows as one commit may.

    The effects among them are counted in the same commit, so that the end of the run can count them.
    `puts`: rows that replace some of them.
    """
    erased: list[Erase] = []
    done = dict(floor.purged.done)
    left, is_last = PORTION_BYTES, True
    for kind, row in gone:
        size = bytes_of(row)
        if len(erased) == rows_max or (erased and size > left):
            is_last = False
            break
        left -= size
        erased.append(Erase(kind, key_of(kind, row), size))
        if isinstance(row, Effect) and row.status is EffectStatus.DONE:
            done[row.activity] = done.get(row.activity, 0) + 1
    after = changed(floor, version=before.version + 1, purged_text=PURGED.encode(floor.purged._replace(done=done)))
    commit = Commit(
        (Put(FLOOR, after, before.version), *puts, *erased), fence(run), label=f"{run.run} purge {after.visit}"
    )
    return Portion(commit, after, len(erased), is_last)


def remaining(purged: PurgedCounts) -> list[str]:
    """Return the number of calls of each activity that stay in force and whose rows are gone, for the end of a run."""
    return [
        f"{activity}: {n:,} {'call' if n == 1 else 'calls'} before the window of its history"
        for activity, n in purged.done.items()
    ]


# --- rows without a visit -----------------------------------------------------------------------------------
def summed(floor: Floor, rows: Sequence[CallUsage], now: Instant) -> tuple[tuple[Put, ...], list[Behind]]:
    """Return the sums of usage behind the floor, and the rows that they replace; nothing if no row is behind it.

    A sum is of one model. That of today and of the day before counts for each activity apart, because the budget of a
    tenant is for one day.
    """
    gone = [row for row in rows if row.epoch == SUMMED or row.visit < floor.visit]
    if all(row.epoch == SUMMED for row in gone):
        return (), []
    recent = day_of(now.business) - 1
    sums: dict[tuple[str, str, int], CallUsage] = {}
    for row in gone:
        is_recent = row.day >= recent
        name = (row.model, row.activity if is_recent else "", row.day if is_recent else 0)
        before = sums.get(name)
        sums[name] = before.plus(row) if before else row
    puts = tuple(
        Put(CALL_USAGE, no_request(row)._replace(epoch=SUMMED, n=n, visit=0, key="", attempt=0, activity=name[1]), 0)
        for n, (name, row) in enumerate(sums.items(), floor.usage_n + 1)
    )
    return puts, [Behind(CALL_USAGE, row) for row in gone]


def is_forgotten(token: Token, terms: WindowTerms, now: Instant) -> bool:
    """True if the id of a signal need not be remembered any more."""
    return token.at < now.business - terms.dedupe_ms


def is_old(result: Result, floor: Floor, terms: WindowTerms, last: int) -> bool:
    """True if a result goes. The last one stays, because the next gets the number after it."""
    return terms.results == "purge" and result.at < floor.entered_at and result.ordinal != last


def is_of_earlier_map(row: object, floor: Floor) -> bool:
    """True for a row of a map whose visit is behind the floor. The map has ended, because its visit has."""
    return isinstance(row, MapInputs | MapProgress | MapOutcome) and row.visit < floor.visit


def is_past_flagging(row: object, run: Run, floor: Floor) -> bool:
    """True for a row of a flagging behind the floor that a person has answered."""
    return isinstance(row, Flagging) and row.seq < floor.seq and not 0 < run.flagged_at <= row.at


def is_delivered(delivery: Delivery, floor: Floor) -> bool:
    """True if a delivery is over, and its event is behind the floor."""
    return event_seq(delivery) < floor.seq and delivery.status not in _OPEN


_OPEN: Final = (DeliveryStatus.OWED, DeliveryStatus.SCHEDULED)


def floor_swept(run: Run, floor: Floor) -> Portion:
    """Note that the rows without a visit were looked through."""
    return portion(run, floor, floor._replace(swept=run.visit), ())
