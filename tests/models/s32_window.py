"""S-32: a window of history, over portions, crashes and replaced holders: no hole, nothing lost that is needed.

A run of four visits keeps one of them behind the current one. In the first, its code makes a call that stays open for
a while, and one that counts in the run. In the later ones it reads signals. Portions delete one or two rows. A holder
that was replaced may still try to purge.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from outlast.core import effect_verbs, mailbox, verbs, window
from outlast.core.commit import Commit, Put
from outlast.core.events import chain_hash
from outlast.core.machine import EffectStatus, WaitStatus
from outlast.core.rows.all_kinds import KINDS, Row
from outlast.core.rows.effect_rows import EFFECT, WAIT, Effect, Evidence, Memo, Wait
from outlast.core.rows.row_kind import key_of
from outlast.core.rows.run_rows import FLOOR, MESSAGE, Event, Floor, Message, Run
from outlast.core.window import Behind, LedgerRows, WindowTerms
from outlast.errors import Ended, Stale
from outlast.store.batch import Batch
from tests.models.explore import Variant
from tests.models.world import KIND_OF, SLICE, TENANT, Rows, at, born, find, run_of, unfenced

LAST = 4
OPEN, ONCE = "open", "once"
TERMS = WindowTerms(visits=1)


class S(NamedTuple):
    """The world."""

    rows: Rows
    view: Run | None = None  # the holder's
    floor: Floor | None = None  # as the holder knows it; None: it has not read it
    gone: Run | None = None  # a replaced holder's
    signals: int = 2  # still to be sent
    read: tuple[int, ...] = ()  # numbers of the signals that the code was given
    made: int = 0  # calls of the one that counts in the run
    crashes: int = 1
    rest: Commit | None = None  # the other half of a portion that was cut in two
    err: str = ""


@dataclass(frozen=True)
class Window:
    """The rule, or the rule with a safeguard removed."""

    rows_max: int = 1
    crashes: int = 1
    floor_first: bool = True  # the floor moves no later than the first deletion
    holds: bool = True  # an open call holds the floor
    keeps_unread: bool = True
    waits_last: bool = True  # a wait goes after the messages that it has bound
    fenced: bool = True
    keeps_once: bool = True  # rows of visit 0 stay
    counts: bool = True

    def first(self) -> tuple[S, ...]:
        return (S(_landed((), born(), 1)[0], crashes=self.crashes),)

    def good(self, s: S) -> bool:
        floor = _stored_floor(s)
        if s.view is None or floor is None or s.rest is not None or s.view.visit < LAST:
            return False
        return floor.visit == LAST - 1 and not any(self._behind(s, floor))

    def bad(self, s: S) -> str:
        if s.err:
            return s.err
        run, floor = run_of(s.rows), find(s.rows, FLOOR, "r")
        events = {row.seq: row for row in s.rows if isinstance(row, Event)}
        begins = floor.seq if isinstance(floor, Floor) else 1
        if 1 not in events or any(n not in events for n in range(begins, run.seq + 1)):
            return "a hole above the floor"
        if isinstance(floor, Floor) and events[begins].hash != chain_hash(floor.event_hash, events[begins].body):
            return "the floor does not continue the chain"
        call = find(s.rows, EFFECT, "r", 1, OPEN)
        if isinstance(floor, Floor) and isinstance(call, Effect) and not call.settled_at and floor.visit > 1:
            return "the floor has passed an open call"
        if s.made > 1:
            return "the call once per run was made twice"
        inbox = {row.n for row in s.rows if isinstance(row, Message)}
        if lost := [n for n in range(1, run.inbox_seq + 1) if n not in inbox and n not in s.read]:
            return f"signal {lost[0]} was not read, and is gone"
        if len(set(s.read)) < len(s.read):
            return "a signal was read twice"
        done = sum(row.status is EffectStatus.DONE for row in s.rows if isinstance(row, Effect))
        gone = sum(floor.purged.done.values()) if isinstance(floor, Floor) else 0
        if call is None and run.visit > 1 and done + gone < 2:
            return "a call that is gone is not counted"
        return ""

    def step(self, s: S) -> Iterator[tuple[str, S]]:
        run = run_of(s.rows)
        if s.signals:
            sent = mailbox.append_message(tenant=TENANT, run="r", kind="signal", name="n", actor="a", now=at(run.visit))
            yield "a signal is sent", self._with(s, sent, signals=s.signals - 1)
        if s.gone is not None and s.view is not None:
            yield from self._purge(s, s.gone, _stored_floor(s), is_holder=False)
        if s.view is None:
            closed = {run.owner: 0} if run.owner else {}
            commit = verbs.claim(
                run, worker="v" if run.owner == "w" else "w", now=at(run.visit), claim_ms=SLICE, closed=closed
            )
            assert commit is not None
            rows, _ = _landed(s.rows, commit, run.visit)
            yield "a worker claims the run", s._replace(rows=rows, view=run_of(rows), floor=None)
            return
        if s.crashes:
            yield "the holder is replaced", s._replace(view=None, gone=s.view, rest=None, crashes=s.crashes - 1)
        yield from self._execute(s, s.view)
        if s.rest is not None:
            yield "the other half lands", self._with(s, s.rest, rest=None, floor=None)
        else:
            yield from self._purge(s, s.view, s.floor or _stored_floor(s), is_holder=True)

    def _with(self, s: S, commit: Commit, **changes: object) -> S:
        rows, refused = _landed(s.rows, commit, run_of(s.rows).visit)
        view = run_of(rows) if s.view is not None and not refused else s.view
        return s._replace(rows=rows, view=view, **changes)  # type: ignore[arg-type]

    # --- the node ------------------------------------------------------------------------------------
    def _execute(self, s: S, view: Run) -> Iterator[tuple[str, S]]:
        now = at(view.visit)
        once, call = find(s.rows, EFFECT, "r", 0, ONCE), find(s.rows, EFFECT, "r", 1, OPEN)
        if once is None:
            yield f"visit {view.visit}: makes the call once per run", self._made(s, view)
            return
        if call is None and view.visit == 1:
            intent = effect_verbs.Intent(1, OPEN, "pay", "d", b"", "", 1, 2, 1)
            intended = effect_verbs.intend(view, intent, None, ordinal=2, now=now)
            yield "visit 1: intends a call", self._with(s, intended)
            return
        if isinstance(call, Effect) and not call.settled_at:
            yield "the open call settles", self._with(s, effect_verbs.record(view, call, b"1", now=now))
        if view.visit > 1 and find(s.rows, WAIT, "r", view.visit, "w") is None:
            yield from self._receive(s, view)
        if view.visit < LAST:
            entered = verbs.advance(
                view, node="a", status_label="", state=b"{}", now=at(view.visit + 1), claim_ms=SLICE
            )
            yield f"advance to visit {view.visit + 1}", self._with(s, entered)

    def _made(self, s: S, view: Run) -> S:
        now = at(view.visit)
        intent = effect_verbs.Intent(0, ONCE, "pay", "d", b"", "", 1, 2, 1)
        s = self._with(s, effect_verbs.intend(view, intent, None, ordinal=1, now=now))
        row = find(s.rows, EFFECT, "r", 0, ONCE)
        assert isinstance(row, Effect) and s.view is not None
        return self._with(s, effect_verbs.record(s.view, row, b"1", now=now), made=s.made + 1)

    def _receive(self, s: S, view: Run) -> Iterator[tuple[str, S]]:
        bound = {n for row in s.rows if isinstance(row, Wait) for n in row.binding or ()}
        found = [row.n for row in s.rows if isinstance(row, Message) and row.n not in bound]
        if found:
            wait = Wait(TENANT, "r", view.visit, "w", 1, WaitStatus.OPEN, "receive", "n", 0, 0, "", view.visit)
            opened = self._with(s, effect_verbs.open_wait(view, wait))
            assert opened.view is not None
            bind = effect_verbs.bind(opened.view, wait, (found[0],), inbox_seq=opened.view.inbox_seq, complete=True)
            yield f"visit {view.visit}: reads signal {found[0]}", self._with(opened, bind, read=(*s.read, found[0]))

    # --- the window -------------------------------------------------------------------------------------
    def _behind(self, s: S, floor: Floor) -> Iterator[Behind]:
        def those(kind: type[Row]) -> list[Row]:
            return [row for row in s.rows if type(row) is kind]

        rows = LedgerRows(
            {(row.visit, row.key): row for row in those(Effect)},
            {(row.visit, row.key): row for row in those(Memo)},
            {(row.visit, row.key): row for row in those(Wait)},
            those(Message),
            those(Evidence),
        )  # fmt: skip
        found = [*window.behind(floor, TERMS, rows, those(Event))]
        if not self.waits_last:
            found.sort(key=lambda each: each.kind is not WAIT)
        if not self.keeps_unread and floor.visit > 2:
            found += [Behind(MESSAGE, row) for row in those(Message) if Behind(MESSAGE, row) not in found]
        if not self.keeps_once and floor.visit > 2:
            found += [Behind(EFFECT, row) for row in those(Effect) if not row.visit]
        if not self.holds:
            found = [each for each in found if not (isinstance(each.row, Effect) and not each.row.settled_at)]
        yield from found

    def _purge(self, s: S, view: Run, before: Floor | None, *, is_holder: bool) -> Iterator[tuple[str, S]]:
        events = sorted((row for row in s.rows if isinstance(row, Event)), key=lambda row: row.seq)
        before = before or window.first_floor(view, events[0])
        open_ = [row for row in s.rows if isinstance(row, Effect) and not row.settled_at]
        hold = window.hold_of(view, open_ if self.holds else ())
        floor = window.moved(view, before, TERMS, events, hold=hold, owed=0, now=at(view.visit))
        found = window.portion(view, before, floor, self._behind(s, floor), self.rows_max)
        if floor == before and len(found.commit.writes) == 1:
            return
        commit, after = found.commit, found.floor
        if not self.counts:
            commit = commit._replace(writes=tuple(_uncounted(write) for write in commit.writes))
        commit = commit if self.fenced else unfenced(commit)
        rest = None
        if not self.floor_first and len(commit.writes) > 1:
            rest = commit._replace(writes=commit.writes[:1])
            commit = commit._replace(writes=commit.writes[1:])
        rows, refused = _landed(s.rows, commit, view.visit)
        what = f"a portion: floor {after.visit}, {len(commit.writes) - 1} rows"
        if is_holder:
            err = f"the holder cannot purge: {refused}" if refused else ""
            yield what, s._replace(rows=rows, floor=s.floor if rest else after, rest=rest, err=err)
        elif refused:
            yield f"the replaced holder: {what} ({refused})", s._replace(gone=None)
        else:
            yield (
                f"the replaced holder: {what}",
                s._replace(rows=rows, err="a process purged a run that it does not hold"),
            )


def _uncounted(write: object) -> object:
    if isinstance(write, Put) and isinstance(write.row, Floor):
        return write._replace(row=write.row._replace(purged_text=""))
    return write


def _stored_floor(s: S) -> Floor | None:
    row = find(s.rows, FLOOR, "r")
    return row if isinstance(row, Floor) else None


def _landed(rows: Rows, commit: Commit, t: int) -> tuple[Rows, str]:
    """Judge a commit as `land` does, and keep events and deletions."""
    found = {(KIND_OF[type(row)].name, key_of(KIND_OF[type(row)], row)): row for row in rows}
    batch = Batch(lambda kind, key: found.get((kind.name, key)), at(t))
    try:
        batch.land(commit)
    except Stale as stale:
        return rows, "ended" if isinstance(stale, Ended) else stale.reason
    for kind, key in batch.erased:
        found.pop((kind.name, key), None)
    for kind in KINDS:
        for key, left in batch.changes[kind.name].items():
            found[kind.name, key] = left.row
    return tuple(found[name] for name in sorted(found)), ""


VARIANTS = (
    Variant("as built", Window()),
    Variant("as built, portions of two rows", Window(rows_max=2)),
    Variant("rows are deleted before the floor moves", Window(floor_first=False, rows_max=2), "a hole above the floor"),
    Variant("the floor passes an open call", Window(holds=False), "passed an open call"),
    Variant("unread signals go", Window(keeps_unread=False), "was not read, and is gone"),
    Variant("a wait goes before its messages", Window(waits_last=False), "a signal was read twice"),
    Variant("a process that does not hold the run purges", Window(fenced=False), "does not hold"),
    Variant("calls once per run go", Window(keeps_once=False), "made twice"),
    Variant("calls that are gone are not counted", Window(counts=False), "is not counted"),
)
LARGE = (Variant("as built, two crashes", Window(crashes=2)),)
