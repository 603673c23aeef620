"""S-17, S-18, S-27: is a call made twice, or a body given what it must not get, before anything is decided further?

A body asks for a key, perhaps with other arguments than before, perhaps twice, perhaps before the calls that an earlier
execution asked for, perhaps from a task that it left behind. The row of the key has each status and each scope at
first. The engine's `answer_of` answers. Executions end at any moment. People answer, and correct their answers.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, NamedTuple

from outlast.core import effect_verbs, verbs
from outlast.core.commit import Commit
from outlast.core.effect_steps import MarkUncertain, Moment, Terms, next_step
from outlast.core.first_answer import (
    AskPerson,
    Compare,
    Compared,
    Drive,
    DriveWith,
    FirstAnswer,
    Gathered,
    GiveStated,
    Hold,
    RaiseRefused,
    ReadShared,
    Replay,
    SharedFacts,
    UseShared,
    VisitFacts,
    WaitForOther,
    answer_of,
)
from outlast.core.keys import OncePer
from outlast.core.machine import EffectStatus
from outlast.core.mailbox import GIVEN_UP, REOPENED, is_reopened, resolve_effect
from outlast.core.rows.effect_columns import ERROR, EffectError
from outlast.core.rows.effect_rows import EFFECT, STATED, UNDO_RESERVED, USED, Effect
from outlast.core.rows.run_rows import Run
from tests.models.explore import Variant
from tests.models.world import NEW, SLICE, Rows, at, born, find, fresh, land, run_of

T, LATE = 1, 100  # an intent, and a time when nothing can arrive any more
ASK: Final = Terms(False, 9, 9, 1, 1.0, 9, 0, 1, 1, 2)
OTHER = "q"
Decide = Callable[..., FirstAnswer]


class Rules(NamedTuple):
    """Declaration of the activity."""

    once_per: OncePer
    name: str = "pay"
    kind: Any = "write"
    durable: bool = False


class Request(NamedTuple):
    """A call of the body."""

    digest: str


class S(NamedTuple):
    """The world."""

    rows: Rows
    pc: str = "between"  # executions; then asks, held, begins (no intent yet), flies (it is sent), over
    asks: str = ""  # digest of the call
    begun: str = ""  # digest of the first call under the key in this execution
    drives: Effect | None = None  # row that the intent replaces
    digest: str = ""  # of the call that is made
    joined: str = ""  # digest of a second call, which waits for the answer of the first
    behind: bool = False  # recorded calls of the activity have not been asked for
    returned: bool = False  # the body has returned, and a task of it asks
    noted: bool = False
    chosen: bool = False  # a person chose the recorded answer for the other call
    left: int = 2  # executions
    sent: int = 0  # calls that the receiver may have got
    allowed: int = 1  # by the first intent, and by people
    given: str = ""  # digest of the call whose answer the body has
    err: str = ""


@dataclass(frozen=True)
class Answers:
    """The rule, or the rule with a case removed."""

    once_per: OncePer
    decide: Decide = answer_of

    # --- the beginning --------------------------------------------------------------------------------
    def first(self) -> Iterator[S]:
        for row, sent in _beginnings(self.once_per):
            yield S((_run(), *row), sent=sent, allowed=max(1, sent))

    def good(self, s: S) -> bool:
        return bool(s.given) or s.pc == "over"

    def bad(self, s: S) -> str:
        if s.err:
            return s.err
        return "the receiver got the call again without a decision" if s.sent > s.allowed else ""

    def step(self, s: S) -> Iterator[tuple[str, S]]:
        yield from self._person(s)
        if s.pc in ("between", "over") and s.left:
            for asks in ("d", "e"):
                for behind, returned in ((False, False), (True, False), (False, True)):
                    after = s._replace(begun="", joined="", given="", behind=behind, returned=returned)
                    yield f"an execution asks for {asks}", after._replace(pc="asks", asks=asks, left=s.left - 1)
        elif s.pc == "asks":
            yield self._answer(s)
        elif s.pc == "held":
            yield "the body asks for the recorded calls", s._replace(pc="asks", behind=False)
            yield "the body asks for nothing more", s._replace(pc="over")
        elif s.pc == "begins":
            yield "its intent lands", self._intend(s)
            yield from self._second(s)
        elif s.pc == "flies":
            yield from self._flies(s)
        if self.once_per == "tenant":
            yield from self._other(s)

    # --- the execution -----------------------------------------------------------------------------------
    def _decided(self, s: S, asks: str, *, flies: bool = False) -> tuple[FirstAnswer, Effect | None]:
        """Ask until nothing is to be gathered. Returns the answer and the row that was compared last."""
        own = _row(s.rows, self.once_per)
        recorded = None if own is not None and own.by_run == OTHER else own
        seen, gathered = recorded, Gathered()
        facts = VisitFacts(s.behind, s.returned, s.begun, flies and s.chosen, s.noted)
        while True:
            answer = self.decide(recorded, Request(asks), Rules(self.once_per), facts, gathered)
            if isinstance(answer, Compare):
                gathered = gathered._replace(compared=Compared.CHOSEN if s.chosen else Compared.DIFFERS)
            elif isinstance(answer, ReadShared):
                seen = own
                gathered = gathered._replace(shared=SharedFacts(own, fresh=True))
            else:
                return answer, seen

    def _answer(self, s: S) -> tuple[str, S]:
        answer, row = self._decided(s, s.asks)
        what = f"answer: {type(answer).__name__}"
        match answer:
            case Hold():
                return what, s._replace(pc="held")
            case Drive(arguments):
                return what, self._drive(s, row, arguments)
            case GiveStated(given):
                return what, self._given(self._land(s, effect_verbs.give(run_of(s.rows), given)), given)
            case UseShared(given, records):
                after = s
                if records:
                    commit = effect_verbs.use(run_of(s.rows), given, noted=s.noted, now=at(LATE))
                    after = self._land(s, commit)._replace(noted=True)
                return what, self._given(after, given)
            case Replay(Effect() as given) | RaiseRefused(Effect() as given):
                return what, self._given(s, given)
        return what, s._replace(pc="over")

    def _drive(self, s: S, row: Effect | None, arguments: DriveWith) -> S:
        """Make the call, or settle what an earlier execution left open, as the engine's next step says."""
        begun = s._replace(begun=s.begun or s.asks)
        is_open = row is not None and row.status is EffectStatus.INTENDED
        if s.returned and not (row is not None and row.status is EffectStatus.UNDONE):  # a run that undoes has ended
            return begun._replace(err="a call began after the body had returned")
        if s.behind and row is None and not s.noted:
            return begun._replace(err="a call was made before the recorded ones were asked for")
        if row is None or is_reopened(row) or (row.status is EffectStatus.UNDONE and row.by_run):
            digest = row.digest if row is not None and arguments is DriveWith.RECORDED else s.asks
            return begun._replace(pc="begins", drives=row, digest=digest)
        if row.status in (EffectStatus.DONE, EffectStatus.UNCERTAIN):
            return begun._replace(pc="flies", sent=s.sent + 1)  # no intent can be recorded
        if not is_open:
            return begun._replace(err="a call was made that was refused or undone")
        if row.by_run == OTHER:
            return begun._replace(err="a run resolved the open effect of another")
        if row.digest != s.asks and arguments is DriveWith.REQUESTED:
            return begun._replace(err="an open effect got other arguments than its receiver has seen")
        step = next_step(row, ASK, Moment.START, at(LATE))
        assert isinstance(step, MarkUncertain)
        uncertain = effect_verbs.mark_uncertain(run_of(s.rows), row, *step, now=at(LATE))
        return self._land(begun, uncertain)._replace(pc="over")

    def _intend(self, s: S) -> S:
        shared, visit = self.once_per == "tenant", 1 if self.once_per == "visit" else 0
        what = effect_verbs.Intent(visit, "k", "pay", s.digest, b"{}", "", 1, 2, 1, shared=shared, noted=s.noted)
        landed = self._land(s, effect_verbs.intend(run_of(s.rows), what, s.drives, ordinal=1, now=at(T)))
        landed = landed._replace(drives=None, digest="")
        return landed if landed.pc == "between" else landed._replace(pc="flies", sent=s.sent + 1, noted=shared)

    def _second(self, s: S) -> Iterator[tuple[str, S]]:
        """The body asks for the key a second time, while the first call is under way."""
        for asks in () if s.joined else ("d", "e"):
            answer, _ = self._decided(s, asks, flies=True)
            if isinstance(answer, Drive | Replay | UseShared):
                yield f"a second call for {asks} joins the first", s._replace(joined=asks)

    def _flies(self, s: S) -> Iterator[tuple[str, S]]:
        row, run = _row(s.rows, self.once_per), run_of(s.rows)
        yield "the worker dies", s._replace(pc="over")
        yield from self._second(s)
        if row is not None and row.status is EffectStatus.INTENDED and row.by_run != OTHER:
            done = self._land(s, effect_verbs.record(run, row, b"1", now=at(LATE)))
            yield "its answer is recorded", self._given(done, row._replace(status=EffectStatus.DONE))
            refused = effect_verbs.refuse(run, row, "http_400", "no", now=at(LATE))
            yield "the receiver refuses", self._land(s, refused)._replace(pc="over", sent=s.sent - 1)

    def _given(self, s: S, row: Effect) -> S:
        """The body gets the response or the refusal of a row."""
        s = s._replace(pc="over", given=row.digest, begun=s.begun or s.asks)
        if row.status in (EffectStatus.INTENDED, EffectStatus.UNCERTAIN) or is_reopened(row):
            return s._replace(err="a body was given an answer that is not known")
        if row.shared == UNDO_RESERVED or (row.status is EffectStatus.UNDONE and row.by_run):
            return s._replace(err="a run got the answer of what is undone")
        if not s.chosen and any(asks not in ("", row.digest) for asks in (s.asks, s.joined)):
            return s._replace(err="a body was given the answer of another call")
        return s

    def _land(self, s: S, commit: Commit) -> S:
        left = land(s.rows, commit, LATE)
        if left.refused:  # the row has changed: another execution begins
            return s._replace(pc="between")
        return s._replace(rows=_bare(left.rows), err=s.err or left.broke)

    # --- people, and the other run ---------------------------------------------------------------------
    def _person(self, s: S) -> Iterator[tuple[str, S]]:
        row = _row(s.rows, self.once_per)
        if not s.chosen and row is not None and s.pc == "over":
            yield "a person chooses the recorded answer", s._replace(chosen=True)
        stated = row is not None and row.shared == STATED
        if row is None or not (row.status is EffectStatus.UNCERTAIN or stated) or s.pc in ("begins", "flies"):
            return
        for verb in ("happened", "did_not_happen", "give_up"):
            redo = verb == "did_not_happen"
            if is_reopened(row) if redo else row.code == {"give_up": GIVEN_UP}.get(verb, "-"):
                continue
            after = self._land(s, resolve_effect(row, verb, by="p", reason="", now=at(LATE), response=b"2"))  # type: ignore[arg-type]
            if stated and s.given and row.digest == s.given:
                after = after._replace(err="a person corrected an answer that a body had been given")
            allowed = max(s.allowed, s.sent + 1) if redo else s.allowed
            yield f"a person: {verb}", after._replace(allowed=allowed, pc="over")

    def _other(self, s: S) -> Iterator[tuple[str, S]]:
        """The run that made the call settles its effect, or undoes it if no other run uses it."""
        row = _row(s.rows, self.once_per)
        if row is None or row.by_run != OTHER or s.pc in ("begins", "flies"):
            return
        if row.status is EffectStatus.INTENDED:
            after = row._replace(status=EffectStatus.DONE, response=b"1", settled_at=9)
            yield "the other run records it", self._written(s, after._replace(settled_by="call"))
        if row.status is EffectStatus.DONE and row.shared in (0, UNDO_RESERVED):
            after = row._replace(status=EffectStatus.UNDONE, shared=UNDO_RESERVED)
            undone = self._written(s, after)._replace(sent=0)
            yield "the other run undoes it", undone._replace(err="what a body was given was undone" if s.given else "")

    def _written(self, s: S, row: Effect) -> S:
        return s._replace(rows=tuple(row if isinstance(each, Effect) else each for each in s.rows))


@cache
def _run() -> Run:
    """Return the row of a run that is held."""
    rows = land((), born(), T).rows
    commit = verbs.claim(run_of(rows), worker="w", now=at(T), claim_ms=SLICE, closed={})
    assert commit is not None
    return run_of(fresh(land(rows, commit, T).rows))


def _row(rows: Rows, once_per: OncePer) -> Effect | None:
    row = find(rows, EFFECT, "" if once_per == "tenant" else "r", 1 if once_per == "visit" else 0, "k")
    return row if isinstance(row, Effect) else None


def _bare(rows: Rows) -> Rows:
    """The run as it was, and the effect without counters that only grow."""
    return (_run(), *(_plain(row) for row in rows if isinstance(row, Effect)))


def _plain(row: Effect) -> Effect:
    times = {"settled_at": min(row.settled_at, 9), "first_at": 1, "not_after": 1, "settle_after": 1}
    response = row.response and b"1"
    return row._replace(version=NEW, attempts=1, ordinal=1, epoch=NEW, response=response, **times)  # type: ignore[arg-type]


def _beginnings(once_per: OncePer) -> Iterator[tuple[tuple[Effect, ...], int]]:
    """Yield the row in each status and with each mark, and how many calls the receiver has got."""
    yield (), 0
    run, shared = _run(), once_per == "tenant"
    what = effect_verbs.Intent(1 if once_per == "visit" else 0, "k", "pay", "d", b"{}", "", 1, 2, 1, shared=shared)
    row = _plain(effect_verbs.intended(effect_verbs.intend(run, what, None, ordinal=1, now=at(T))))
    settled = row._replace(settled_at=9, settled_by="call")
    refused = settled._replace(status=EffectStatus.REFUSED, error_text=ERROR.encode(EffectError("http_400", "no")))
    by_person = refused._replace(settled_by="p", shared=STATED)
    done = settled._replace(status=EffectStatus.DONE, response=b"1")
    found = [
        (row, 1),
        (row._replace(status=EffectStatus.UNCERTAIN, error_text=refused.error_text), 1),
        (done, 1),
        (done._replace(settled_by="p", shared=STATED), 1),
        (refused, 0),
        (by_person._replace(error_text=ERROR.encode(EffectError(GIVEN_UP, "no"))), 0),
        (by_person._replace(error_text=ERROR.encode(EffectError(REOPENED, "no"))), 0),
        (done._replace(status=EffectStatus.UNDONE), 0),
    ]
    if shared:
        found += [(done._replace(shared=USED), 1), (done._replace(shared=UNDO_RESERVED), 1)]
    for each, sent in found:
        if each.shared != UNDO_RESERVED:  # a run that undoes does not execute its node
            yield (each,), sent
        if shared:
            yield (each._replace(by_run=OTHER),), sent


# --- removed cases ------------------------------------------------------------------------------------
def _without(kind: type, instead: Callable[[Any], FirstAnswer]) -> Decide:
    """Return the decision, with another answer in place of one kind of answers."""

    def decide(*facts: Any) -> FirstAnswer:
        answer = answer_of(*facts)
        return instead(answer) if isinstance(answer, kind) else answer

    return decide


def _blind(**changes: Any) -> Decide:
    """Return the decision without some facts of the visit."""
    return lambda row, call, rules, visit, gathered: answer_of(row, call, rules, visit._replace(**changes), gathered)


def _any_call(*facts: Any) -> FirstAnswer:
    *others, gathered = facts
    chosen = gathered._replace(compared=gathered.compared and Compared.CHOSEN)
    return answer_of(*others, chosen)


def _replayed(answer: Any) -> FirstAnswer:
    return Replay(answer.row)


def _driven(answer: Any) -> FirstAnswer:
    return Drive()


VARIANTS = (
    Variant("a key of a visit", Answers("visit")),
    Variant("a key of a run", Answers("run")),
    Variant("a key of a tenant", Answers("tenant")),
    Variant("no call contradicts", Answers("visit", _any_call), "of another call"),
    Variant("a call under way is joined by any", Answers("visit", _blind(first_digest="")), "of another call"),
    Variant("nothing is held", Answers("visit", _blind(holds=False)), "before the recorded ones"),
    Variant("tasks left behind begin calls", Answers("visit", _blind(lingering=False)), "had returned"),
    Variant("what is done is made again", Answers("visit", _without(Replay, _driven)), "without a decision"),
    Variant("what is uncertain is made again", Answers("run", _without(AskPerson, _driven)), "without a decision"),
    Variant("a stated answer is replayed", Answers("visit", _without(GiveStated, _replayed)), "a person corrected"),
    Variant("a refused call is made again", Answers("run", _without(RaiseRefused, _driven)), "refused or undone"),
    Variant("an open call gets new arguments", Answers("run", _without(Drive, _driven)), "other arguments"),
    Variant("other runs are not waited for", Answers("tenant", _without(WaitForOther, _replayed)), "not known"),
    Variant("a use is not recorded", Answers("tenant", _without(UseShared, _replayed)), "was undone"),
    Variant("shared rows are not read", Answers("tenant", _without(ReadShared, _driven)), "stuck"),
)
