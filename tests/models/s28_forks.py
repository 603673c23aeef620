"""S-28: does a fork make a call of its past again, use a recorded answer twice, or act without a person?

An ended run has one effect of each status and scope, before or after the point. Two forks of it are started in batches
that may stop. Their bodies ask for the key in two visits, each visit perhaps twice, because executions end at any
moment. The functions of `core/forks.py` choose points and copies, and answer. A fork may be cancelled at its end.

The effect may be a child run (S-30): a fork starts its own unless one that has ended answers. Its own makes a write.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any, Final, NamedTuple

from outlast.core import compensation, forks
from outlast.core.forks import (
    CopiedCall,
    Effects,
    ForkPoint,
    ForkTerms,
    FromRecording,
    WaitForAncestor,
    answer_in_fork,
)
from outlast.core.keys import OncePer
from outlast.core.machine import EffectStatus
from outlast.core.rows.effect_columns import CHILD, NO_CHILD
from outlast.core.rows.effect_rows import Effect, Memo
from outlast.core.rows.run_rows import Run
from tests.models.explore import Variant

POINT: Final = ForkPoint(seq=3, node="buy", visit=2, at=5)
FORKS: Final = ("f", "g")
UNKNOWN: Final = (EffectStatus.UNCERTAIN, EffectStatus.UNDONE)
OPEN: Final = EffectStatus.INTENDED


class Story(NamedTuple):
    """The effect of the ancestor, and the terms of the forks."""

    status: EffectStatus
    once_per: OncePer
    made_in: int
    effects: Effects
    accepts: bool
    child: bool = False  # it is a child run


class Fork(NamedTuple):
    """One fork."""

    batches: int = 0  # that have landed: 1 the copies, 2 the run
    used: frozenset[tuple[int, int, int]] = frozenset()  # number of a copy, visit, visit of the key
    visit: int = 2
    given: str = ""  # answer that the body has in this visit
    own: tuple[str, ...] = ()  # answers of calls that it made, by visit
    approved: int = 0
    over: bool = False


class S(NamedTuple):
    """The world. `made` counts the calls that reach the receiver after the end of the ancestor."""

    story: Story
    f: tuple[Fork, ...] = (Fork(), Fork())
    lineage: str = ""  # the fork that made the call once per run
    made: tuple[int, int] = (0, 0)
    undone: int = 0
    err: str = ""


@dataclass(frozen=True)
class Forks:
    """The rule, or the rule with a safeguard removed."""

    copies_first: bool = True  # the run is written after the copies
    checks_accepted: bool = True
    shares: bool = True  # a call once per run has one row for the lineage
    records_use: bool = True
    waits: bool = True  # for an open call once per run
    asks: bool = True
    copies_effects: bool = False  # as effect rows, which undo reads
    answers_undone: bool = False
    finds_past: bool = True  # calls once per run of before the point
    adopts: bool = False  # a child that has not ended
    asks_below: bool = True  # a child of a fork asks a person, as the fork does

    def first(self) -> tuple[S, ...]:
        statuses = (EffectStatus.DONE, EffectStatus.REFUSED, *UNKNOWN)
        modes: tuple[Effects, ...] = ("ask", "recorded", "live")
        scopes: tuple[OncePer, ...] = ("visit", "run")
        calls = product(statuses, scopes, (1, 2), modes, (False, True))
        ended = (EffectStatus.DONE, EffectStatus.REFUSED, EffectStatus.UNDONE)
        runs = product((*ended, OPEN), scopes, (1, 2), modes, (False, True), (True,))
        return tuple(S(Story(*each)) for each in (*calls, *runs))

    def good(self, s: S) -> bool:
        return all(fork.over or not fork.batches or self._waits_for_ever(s) for fork in s.f) or self._refused(s)

    def bad(self, s: S) -> str:
        return s.err

    # --- the rows ---------------------------------------------------------------------------------------
    def _effect(self, story: Story) -> Effect:
        plain: dict[str, Any] = dict.fromkeys(Effect._fields, 0)
        plain |= {"tenant": "t", "run": "a", "key": "k", "activity": "pay", "digest": "d", "args": b"{}"}
        plain |= {"undoes": "", "by_run": "", "error_text": "", "external_id": "", "undo": "reverse", "version": 4}
        plain |= {"visit": story.made_in if story.once_per == "visit" else 0, "first_visit": story.made_in}
        if story.child:
            plain |= {
                "child_text": CHILD.encode(NO_CHILD),
                "external_id": "its run",
                "settled_at": story.status != OPEN,
            }
        return Effect(**plain | {"status": story.status, "ordinal": 1, "response": b"1"})

    def _refused(self, s: S) -> bool:
        lost = s.story.made_in < POINT.visit and s.story.status in UNKNOWN
        return lost and not s.story.accepts

    def _waits_for_ever(self, s: S) -> bool:
        """The ancestor has ended: a person settles its uncertain effect, which is outside this search."""
        return s.story.status is EffectStatus.UNCERTAIN and s.story.once_per == "run"

    def _ledger(self, s: S, i: int) -> forks.ForkLedger:
        story = s.story
        terms = ForkTerms("a", "a", 3, story.effects, "live", "lead", accept_undone=story.accepts)
        calls: list[CopiedCall] = []
        if s.f[i].batches:
            run = _run("a")
            calls = forks.copies_of(run, POINT, [self._effect(story)], (), None)
            calls = [forks.call_of_memo(forks.memo_of_call("t", FORKS[i], each, "p", 1)) for each in calls]
        if self.answers_undone:
            calls = [c._replace(status="done") if c.status == EffectStatus.UNDONE else c for c in calls]  # type: ignore[comparison-overlap]
        if not self.waits:
            calls = [c for c in calls if c.status != EffectStatus.UNCERTAIN]
        if self.adopts:
            calls = [c._replace(status="done") if c.status == OPEN else c for c in calls]  # type: ignore[comparison-overlap]
        if not self.finds_past:
            calls = [c for c in calls if not c.past]
        ledger = forks.ForkLedger(terms, calls)
        for n, visit, scope in s.f[i].used:
            ledger.add(forks.use_of(_run(FORKS[i], visit), calls[n - 1], scope, 1))
        return ledger

    # --- steps ------------------------------------------------------------------------------------------
    def step(self, s: S) -> Iterator[tuple[str, S]]:
        for i, fork in enumerate(s.f):
            name = FORKS[i]
            if fork.batches < 2:
                yield from self._start(s, i, fork)
            elif not fork.over:
                if fork.given:
                    yield f"{name} goes on", self._with(s, i, self._next(fork))
                    yield f"{name} is executed again", self._with(s, i, fork._replace(given=""))
                else:
                    yield from self._ask(s, i, fork)

    def _start(self, s: S, i: int, fork: Fork) -> Iterator[tuple[str, S]]:
        effect = self._effect(s.story)
        (point,) = [
            p._replace(seq=3, at=5)
            for p in forks.points_of([_checkpoint()], [effect])  # type: ignore[list-item]
        ]
        if point.to_accept and not s.story.accepts and self.checks_accepted:
            return
        err = "" if s.story.accepts or not point.to_accept else "a fork began, and its past may not be in force"
        if self.copies_first or fork.batches:
            yield f"a batch of {FORKS[i]}", self._with(s, i, fork._replace(batches=fork.batches + 1), err=err)
        else:
            yield f"the run {FORKS[i]}", self._with(s, i, fork._replace(batches=2), err="it has half of its past")

    def _next(self, fork: Fork) -> Fork:
        return fork._replace(visit=3, given="") if fork.visit == 2 else fork._replace(over=True, given="")

    def _ask(self, s: S, i: int, fork: Fork) -> Iterator[tuple[str, S]]:
        """The body asks for the key: its own row answers, or a copy, or it is made."""
        story, name = s.story, FORKS[i]
        scope = 0 if story.once_per == "run" else fork.visit
        own = f"own {scope}"
        if own in fork.own:
            yield f"{name} has it", self._with(s, i, fork._replace(given=own))
            return
        if story.once_per == "run" and self.shares and s.lineage:
            yield f"{name} uses that of {s.lineage}", self._with(s, i, fork._replace(given=f"of {s.lineage}"))
            return
        ledger = self._ledger(s, i)
        kind: forks.CallKind = "child" if story.child else "write"
        answer = answer_in_fork(ledger, kind, story.once_per, fork.visit, "k", lambda call: True)
        if story.child and answer is None:
            yield f"{name} starts a child", self._started(s, i, fork, own)
        elif isinstance(answer, FromRecording):
            yield f"{name} is answered from the recording", self._answered(s, i, fork, answer, scope)
        elif isinstance(answer, WaitForAncestor):
            return
        elif story.effects == "live" or fork.approved > len(fork.own) or not self.asks:
            yield f"{name} makes it", self._made(s, i, fork, own)
        else:
            yield f"a person approves a call of {name}", self._with(s, i, fork._replace(approved=fork.approved + 1))

    def _answered(self, s: S, i: int, fork: Fork, answer: FromRecording, scope: int) -> S:
        call, used = answer.call, fork.used
        err = ""
        if any(n == call.n and of != scope for n, _, of in used):
            err = "one recorded answer served two calls"
        if call.once_per == "visit" and call.past:
            err = "an answer of the past served a call after it"
        if call.status == EffectStatus.UNDONE and not s.story.accepts:
            err = "it was answered from what is not in force"
        if s.story.status is EffectStatus.UNDONE and not s.story.accepts:
            err = "it was answered from what is not in force"
        if call.kind == "child" and s.story.status is OPEN:
            err = "two parents are told of one end"
        if answer.records and self.records_use:
            used |= {(call.n, fork.visit, scope)}
        elif answer.records and any(given == "recorded" for given in fork.own):
            err = "one recorded answer served two calls"
        kept = (*fork.own, "recorded") if answer.records and not self.records_use else fork.own
        return self._with(s, i, fork._replace(given=f"copy {call.n}", used=used, own=kept), err=err)

    def _started(self, s: S, i: int, fork: Fork, own: str) -> S:
        """Start a child of the fork, which makes a write."""
        run, terms = _run("child"), self._ledger(s, i).terms
        asks = forks.asks_of({}, terms) if self.asks_below else None
        memos = {} if asks is None else {(0, forks.ASKS): forks.memo_of_asks("t", run.run, asks, 1)}
        free = forks.asks_of(memos, None) is None
        err = "a write was made that no person approved" if free and s.story.effects != "live" else ""
        if s.story.once_per == "run" and s.story.status is EffectStatus.DONE:
            err = "a call once per run was made twice in a lineage"
        return self._with(s, i, fork._replace(own=(*fork.own, own), given=own), err=err)

    def _made(self, s: S, i: int, fork: Fork, own: str) -> S:
        story, err = s.story, ""
        if story.effects != "live" and fork.approved <= len(fork.own):
            err = "a write was made that no person approved"
        if story.once_per == "run":
            if sum(s.made) or story.status is EffectStatus.DONE:
                err = "a call once per run was made twice in a lineage"
            if story.status is EffectStatus.UNCERTAIN:
                err = "it was made while it is not known whether it happened"
        made = tuple(n + (j == i) for j, n in enumerate(s.made))
        after = fork._replace(own=(*fork.own, own), given=own)
        lineage = FORKS[i] if story.once_per == "run" else ""
        return self._with(s, i, after, err=err, made=made, lineage=lineage)

    def _with(self, s: S, i: int, fork: Fork, **changes: Any) -> S:
        if fork.over and self._undoes(s, i):
            changes["err"] = "a fork undid an effect of its past"
        after = tuple(fork if j == i else each for j, each in enumerate(s.f))
        return s._replace(f=after, **{**changes, "err": s.err or changes.get("err", "")})

    def _undoes(self, s: S, i: int) -> bool:
        """Return True if a cancel of the fork would undo an effect of its past, by the rows that it has."""
        run = _run(FORKS[i])
        memos = [forks.memo_of_call("t", FORKS[i], call, "p", 1) for call in self._ledger(s, i).calls]
        rows: list[Effect] = [self._effect(s.story)._replace(run=FORKS[i])] if self.copies_effects else []
        assert all(isinstance(memo, Memo) for memo in memos)
        return bool(compensation.owed(run, rows))


def _run(name: str, visit: int = 2) -> Run:
    plain: dict[str, Any] = dict.fromkeys(Run._fields, "")
    return Run(**plain | {"tenant": "t", "run": name, "visit": visit})


class _Checkpoint(NamedTuple):
    type: str = "dev.outlast.workflow.checkpoint"
    snapshot: bytes = b"{}"
    seq: int = 3
    node: str = "buy"
    visit: int = 2
    at: int = 5


def _checkpoint() -> _Checkpoint:
    return _Checkpoint()


VARIANTS = (
    Variant("as built", Forks()),
    Variant("the run is written before the copies", Forks(copies_first=False), "half of its past"),
    Variant("undone effects are not named", Forks(checks_accepted=False), "may not be in force"),
    Variant("a lineage shares nothing", Forks(shares=False), "twice in a lineage"),
    Variant("calls once per run of the past are not found", Forks(finds_past=False), "twice in a lineage"),
    Variant("a use is not recorded", Forks(records_use=False), "served two calls"),
    Variant("an open call is not waited for", Forks(waits=False), "not known whether"),
    Variant("no person is asked", Forks(asks=False), "no person approved"),
    Variant("copies are effects", Forks(copies_effects=True), "undid an effect"),
    Variant("undone effects answer", Forks(answers_undone=True), "not in force"),
    Variant("a living child is adopted", Forks(adopts=True), "two parents are told"),
    Variant("a child of a fork asks no person", Forks(asks_below=False), "no person approved"),
)
"""Removals. `finds_past` and `waits` remove copies that `answer_in_fork` would find."""
LARGE: tuple[Variant, ...] = ()
