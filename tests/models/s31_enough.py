"""S-31: a set of calls that ends early, over executions and crashes: one set, and no call of it begins afterwards.

One visit. The set has the calls a, b and c, two at a time. Each ends as the world decides, in any order, and may wait
at a gate before its intent. Once the code has its result it makes a call that the set never began, by itself.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

from outlast.core import effect_verbs, verbs
from outlast.core.commit import Commit, Put
from outlast.core.enough import SetBounds, SetState, end_early, never_started, set_of_calls, state_of
from outlast.core.machine import EffectStatus
from outlast.core.rows.effect_rows import EFFECT, MEMO, Effect, Memo
from outlast.core.rows.run_rows import Run
from tests.models.explore import Variant
from tests.models.world import SLICE, Rows, at, born, find, fresh, land, run_of, seen_by

T = 1  # nothing depends on time
CALLS = ("a", "b", "c")
NAMES = tuple(f"act?{key}" for key in CALLS)
WINDOW = 2


class S(NamedTuple):
    """The world."""

    rows: Rows
    answers: tuple[bool, ...]  # what the receiver says to each call: True if it does it
    crashes: int = 1
    view: Run | None = None  # the holder's
    gate: tuple[str, ...] = ()  # calls of its execution that wait at a gate
    counted: tuple[str, ...] = ()  # calls of which its execution has the outcome
    ended: str = ""  # state of the set when it had ended first in this execution
    given: tuple[str, ...] = ()  # the result that the code got first
    own: bool = False  # the code makes its own call in this execution
    over: bool = False
    err: str = ""


@dataclass(frozen=True)
class Enough:
    """The rule, or the rule with a safeguard removed."""

    bounds: SetBounds
    crashes: int = 1
    remembers: bool = True  # a row names the calls that never begin
    counts_first: bool = True  # recorded outcomes count before another call begins
    closes_gates: bool = True  # a call that waits at a gate when the set ends goes no further
    awaits: bool = True  # calls under way settle before the code gets the result
    judged: str = "by the numbers"  # or "when it ended"

    def first(self) -> tuple[S, ...]:
        rows = fresh(land((), born(), T).rows)
        return tuple(S(rows, answers, self.crashes) for answers in product((True, False), repeat=len(CALLS)))

    def good(self, s: S) -> bool:
        return s.over

    def bad(self, s: S) -> str:
        return s.err

    def step(self, s: S) -> Iterator[tuple[str, S]]:
        if s.over or s.err:
            return
        if s.view is None:
            commit = verbs.claim(run_of(s.rows), worker="w", now=at(T), claim_ms=SLICE, closed=_closed(s))
            if commit is not None:
                rows = land(s.rows, commit, T).rows
                yield "a holder begins", self._begin(self._with(s, rows, view=run_of(rows)))
            return
        if s.crashes:
            yield "the holder dies", s._replace(view=None, gate=(), counted=(), own=False, crashes=s.crashes - 1)
        yield from self._execute(s, s.view)

    def _begin(self, s: S) -> S:
        known = [key for key in CALLS if _settled(s.rows, key) and key not in self._never(s)]
        counted = tuple(known) if self.counts_first else ()
        return s._replace(counted=counted, ended="")

    def _with(self, s: S, rows: Rows, **changes: object) -> S:
        s = s._replace(**changes)  # type: ignore[arg-type]
        return s._replace(rows=fresh(rows), view=seen_by(s.view, run_of(rows)))

    def _land(self, s: S, commit: Commit, **changes: object) -> S:
        left = land(s.rows, commit, T)
        assert not left.refused, "there is one holder"
        return self._with(s, left.rows, err=s.err or left.broke)._replace(**changes)  # type: ignore[arg-type]

    # --- one execution ---------------------------------------------------------------------------------
    def _execute(self, s: S, view: Run) -> Iterator[tuple[str, S]]:
        if s.own:
            yield from self._own_call(s, view)
            return
        never, state = self._never(s), self._state(s)
        under_way = [key for key in CALLS if key in s.gate or (_open(s.rows, key) and key not in never)]
        for key in under_way:
            yield from self._go_on(s, view, key)
        if state is SetState.GOES_ON or never:
            ready = [key for key in CALLS if key not in (*under_way, *s.counted, *never)]
            if ready and len(under_way) < WINDOW:
                yield from self._next(s, ready[0])
        if state is SetState.GOES_ON:
            return
        left = [key for key in CALLS if key not in never and key not in s.counted and _row(s.rows, key) is None]
        if left and self.remembers and not never and not (under_way and not s.gate):
            if s.gate and not self.closes_gates:
                return
            names = {f"act?{key}" for key in left}
            commit = end_early(view, set_of_calls(self.bounds, NAMES), NAMES, names, at(T))
            after = self._land(s, commit, gate=())  # from a gate the node runs again
            yield f"the set ends without {left}", self._begin(after) if s.gate else after
        elif not under_way or not self.awaits:
            yield from self._give(s, never | (set(left) if not self.remembers else set()))

    def _never(self, s: S) -> set[str]:
        """Return the calls that never begin, by the row of the set."""
        memo = find(s.rows, MEMO, "r", 1, set_of_calls(self.bounds, NAMES))
        return {name.partition("?")[2] for name in never_started(memo, NAMES)} if isinstance(memo, Memo) else set()

    def _state(self, s: S) -> SetState:
        done = sum(_is(s.rows, key, EffectStatus.DONE) for key in s.counted)
        return state_of(self.bounds, done, len(s.counted) - done)

    def _next(self, s: S, key: str) -> Iterator[tuple[str, S]]:
        if _settled(s.rows, key):
            yield f"{key} is answered from the ledger", self._count(s, key)
        else:
            yield f"{key} comes to a gate", s._replace(gate=(*s.gate, key))

    def _go_on(self, s: S, view: Run, key: str) -> Iterator[tuple[str, S]]:
        if key in s.gate:
            had_enough = self._by_rows(s) is not SetState.GOES_ON
            err = f"{key} began after the set had ended" if had_enough else ""
            gate = tuple(each for each in s.gate if each != key)
            if self._state(s) is SetState.GOES_ON or not self.closes_gates:
                yield f"{key} is sent", self._land(s, _intent(view, key), gate=gate, err=err)
            return
        row = _row(s.rows, key)
        assert row is not None
        yield f"{key} is answered", self._count(self._land(s, self._outcome(view, row, s)), key)

    def _outcome(self, view: Run, row: Effect, s: S) -> Commit:
        if s.answers[CALLS.index(row.key)]:
            return effect_verbs.record(view, row, b"1", now=at(T))
        return effect_verbs.refuse(view, row, "no", "", now=at(T))

    def _count(self, s: S, key: str) -> S:
        s = s._replace(counted=(*s.counted, key))
        state = self._state(s)
        return s._replace(ended=s.ended or ("" if state is SetState.GOES_ON else state.value))

    def _by_rows(self, s: S) -> SetState:
        done = sum(_is(s.rows, key, EffectStatus.DONE) for key in CALLS)
        return state_of(self.bounds, done, sum(_settled(s.rows, key) for key in CALLS) - done)

    def _give(self, s: S, never: set[str]) -> Iterator[tuple[str, S]]:
        state = self._state(s).value if self.judged == "by the numbers" else s.ended or self._state(s).value
        of = {key: "never" if key in never else _status(s.rows, key) for key in CALLS}
        result = (state, *of.values())
        err = f"the code was given {s.given}, and later {result}" if s.given and s.given != result else ""
        yield f"the code gets {result}", s._replace(given=result, own=True, err=err)

    def _own_call(self, s: S, view: Run) -> Iterator[tuple[str, S]]:
        """The code calls what the set never began, then its node ends."""
        mine = next((key for key, of in zip(CALLS, s.given[1:], strict=True) if of == "never"), "")
        row = _row(s.rows, mine) if mine else None
        if mine and row is None:
            yield f"the code calls {mine}", self._land(s, _intent(view, mine))
        elif row is not None and _open(s.rows, mine):
            yield f"the call {mine} of the code is answered", self._land(s, self._outcome(view, row, s))
        else:
            err = next((f"{key} is left open" for key in CALLS if _open(s.rows, key)), "")
            yield "the node ends", s._replace(over=True, err=err)


def _closed(s: S) -> dict[str, int]:
    owner = run_of(s.rows).owner
    return {owner: 0} if owner else {}


def _intent(view: Run, key: str) -> Commit:
    what = effect_verbs.Intent(1, key, "act", key, b"{}", "no: a model", 1, SLICE, 1)
    ordinal = CALLS.index(key) + 1
    commit = effect_verbs.intend(view, what, None, ordinal=ordinal, now=at(T))
    assert isinstance(commit.writes[0], Put)
    return commit


def _row(rows: Rows, key: str) -> Effect | None:
    row = find(rows, EFFECT, "r", 1, key)
    assert row is None or isinstance(row, Effect)
    return row


def _open(rows: Rows, key: str) -> bool:
    row = _row(rows, key)
    return row is not None and not row.settled_at


def _settled(rows: Rows, key: str) -> bool:
    row = _row(rows, key)
    return row is not None and bool(row.settled_at)


def _is(rows: Rows, key: str, status: EffectStatus) -> bool:
    row = _row(rows, key)
    return row is not None and row.status is status


def _status(rows: Rows, key: str) -> str:
    row = _row(rows, key)
    return "-" if row is None else row.status.value


ONE, TWO, STRICT = SetBounds(3, 1), SetBounds(3, 2), SetBounds(3, 1, 0)
VARIANTS = (
    Variant("as built, one of three", Enough(ONE)),
    Variant("as built, two of three", Enough(TWO)),
    Variant("as built, one of three and no failure", Enough(STRICT)),
    Variant("as built, one failure is tolerated", Enough(SetBounds(3, None, 1))),
    Variant("the set is not remembered", Enough(ONE, remembers=False), "the code was given"),
    Variant("recorded outcomes do not count first", Enough(ONE, counts_first=False), "began after the set had ended"),
    Variant("a call at a gate goes on", Enough(ONE, closes_gates=False), "began after the set had ended"),
    Variant("calls under way are left", Enough(ONE, awaits=False), "left open"),
    Variant("the first end of a set counts", Enough(STRICT, judged="when it ended"), "the code was given"),
)
LARGE = (Variant("as built, two of three, three crashes", Enough(TWO, crashes=3)),)
