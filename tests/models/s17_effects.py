"""S-4 and S-17: can the world see one effect twice without a person having decided in between?

Process A intends, passes the last-instant check, and may then be frozen for up to `freeze` ticks before its packet
leaves; a packet lands at most `flight` ticks after it left. Anyone may be replaced at any moment (its row closed, or
only slow) and goes on with a stale epoch. The next holder settles as the engine's own `next_step` decides.

A receiver that `refuses` may refuse each request, unless it has executed one of that key. It remembers no refusal.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from outlast.core import attention, effect_verbs, mailbox, verbs
from outlast.core.commit import Commit, Instant
from outlast.core.effect_steps import (
    AskReceiver,
    Defer,
    DidNotHappen,
    Happened,
    Intend,
    Known,
    MarkUncertain,
    Moment,
    No,
    RecordResponse,
    Refuse,
    Step,
    Terms,
    next_step,
)
from outlast.core.machine import EffectStatus, Reason
from outlast.core.rows.effect_rows import EFFECT, Effect
from outlast.core.rows.run_columns import Attention
from outlast.core.rows.run_rows import Message, Run
from tests.models.explore import Variant
from tests.models.world import (
    MAPPING,
    NEW,
    SLICE,
    Landed,
    Rows,
    at,
    born,
    find,
    fresh,
    land,
    run_of,
    seen_by,
    unfenced,
    whenless,
)

START, BUDGET, TIMEOUT, MARGIN = 1, 2, 1, 1  # ticks: of an intent, of an attempt, of the quiet margin
ASK: Final = "ask_person"
PERSON: Final = 3  # place of the person's clock
ANY, NEVER = 1_000, 1_000  # without a limit; a time that no schedule reaches
LANDED = TIMEOUT + MARGIN


class P(NamedTuple):
    """A process: waits for its turn, reads, intends (ready), checks (frozen), sends, hears a refusal, is gone."""

    pc: str = "-"
    until: int = 0  # not_after of its intent
    at: int = 0  # frozen since, or sent at
    view: Run | None = None
    copy: Effect | None = None
    doubt: Intend = Intend()  # what its attempt follows


class S(NamedTuple):
    """The world."""

    rows: Rows
    t: int = START
    p: tuple[P, ...] = (P(), P(), P())
    who: int = -1  # the latest process to claim the run
    fly: tuple[tuple[int, int], ...] = ()  # packets in the air: when they left, and who may hear a refusal (-1: none)
    world: int = 0  # effects the receiver has applied
    knows: int = -1  # when it saw the key last
    human: bool = False  # a person said: it did not happen, do it
    saw: bool = False  # it had happened by then
    err: str = ""


@dataclass(frozen=True)
class Effects:
    """The rule, or the rule with a safeguard removed."""

    mode: Literal["reconcile", "resend", "ask_person"] = "reconcile"
    freeze: int = 0
    flight: int = TIMEOUT
    refuses: bool = False  # may the receiver refuse a request?
    refusal_waits: bool = True  # does a refusal count only once no earlier request can arrive?
    window: int = 0  # how long the receiver remembers keys; 0: no end
    end: int = 11
    intent_first: bool = True
    fenced: bool = True
    check: bool = True
    settle_time: str = "kept"  # or "ignored", "not_after alone"
    opens: str = "with the first intent"  # the window; or "with each attempt", "and ends with the sending"
    person_waits: bool = True
    blame: bool = True  # is it wrong when a person looked and the first call landed afterwards?
    ahead: tuple[int, int, int, int] = (0, 0, 0, 0)  # ticks by which the clocks of A, B, C and the person are ahead
    skew: int = 0  # of the store, by which the settle margin is widened (S-4)

    def first(self) -> tuple[S, ...]:
        return (S(fresh(land((), born(), START).rows)),)

    def good(self, s: S) -> bool:
        return True

    def bad(self, s: S) -> str:
        if s.err:
            return s.err
        if s.world > 1 and not s.human:
            return "the receiver saw the effect twice without a decision"
        if s.world and self._is_refused(s):
            return "the ledger says refused, and the receiver has done it"
        if s.world > 1 and self.blame and not s.saw:
            return "twice: a person looked, it had not happened, and the first call landed afterwards"
        return ""

    def _is_refused(self, s: S) -> bool:
        effect = _effect(s.rows)
        return effect is not None and effect.status is EffectStatus.REFUSED and not mailbox.is_reopened(effect)

    def step(self, s: S) -> Iterator[tuple[str, S]]:
        held = any(p.pc == "frozen" and s.t - p.at >= self.freeze for p in s.p)
        held = held or any(s.t - left >= self.flight for left, _ in s.fly)
        began = _effect(s.rows) is not None or not self.intent_first
        moving = s.fly or any(p.pc in ("ready", "frozen") for p in s.p)
        if s.t < self.end and not held and began and (moving or not _is_done(s.rows)):
            yield f"t={s.t + 1}", s._replace(t=s.t + 1)
        yield from self._packets(s)
        yield from self._claim(s)
        yield from self._person(s)
        for i, p in enumerate(s.p):
            act = getattr(self, f"_{p.pc}", None)
            if act is not None:
                yield from act(s, i, p)

    # --- the world --------------------------------------------------------------------------------------
    def _packets(self, s: S) -> Iterator[tuple[str, S]]:
        for i, (left, who) in enumerate(s.fly):
            rest = s.fly[:i] + s.fly[i + 1 :]
            forgot = self.window and s.t - s.knows >= self.window
            if self.mode == "resend" and s.knows >= 0 and not forgot:
                yield f"t={s.t}: a packet lands, the receiver knows its key", s._replace(fly=rest)
            else:
                if self.refuses:
                    after = self._refuse(s._replace(fly=rest), left, who)
                    yield f"t={s.t}: a packet lands, the receiver refuses", after
                after = s._replace(fly=rest, world=s.world + 1, knows=s.t if self.window else 0)
                yield f"t={s.t}: a packet lands: effect {after.world}", after

    def _refuse(self, s: S, left: int, who: int) -> S:
        """Let the process hear the refusal, if it still waits for its answer."""
        p = s.p[who] if who >= 0 else P()
        if p.pc != "sent" or p.at != left or s.t - left > TIMEOUT or p.view is None:
            return s
        return s._replace(p=(*s.p[:who], p._replace(pc="refused", at=0), *s.p[who + 1 :]))

    def _person(self, s: S) -> Iterator[tuple[str, S]]:
        effect = _effect(s.rows)
        if effect is None or effect.status is not EffectStatus.UNCERTAIN or s.human:
            return
        for verb in ("did_not_happen", "happened"):
            now = s.t + self.ahead[PERSON]
            commit = mailbox.resolve_effect(effect, verb, by="p", reason="", now=at(now), response=b"1")
            left = land(s.rows, commit if self.person_waits else whenless(commit), now)
            if not left.refused:
                redo = verb == "did_not_happen"
                after = self._with(s, left, human=s.human or redo, saw=redo and s.world > 0)
                yield f"t={s.t}: a person (the world has {s.world}): {verb}", after

    # --- processes ----------------------------------------------------------------------------------------
    @property
    def _margin(self) -> int:
        return MARGIN + self.skew

    def _now(self, s: S, i: int) -> Instant:
        """Return the time by the clock of a process."""
        return at(s.t + self.ahead[i])

    def _with(self, s: S, left: Landed, i: int = -1, p: P | None = None, **changes: object) -> S:
        run = run_of(left.rows)
        if p is not None:
            changes["p"] = (*s.p[:i], p, *s.p[i + 1 :])
        s = s._replace(**changes)  # type: ignore[arg-type]
        ps = tuple(self._plain(x._replace(view=seen_by(x.view, run), copy=_settled(x.copy))) for x in s.p)
        rows = tuple(_settled(row) if isinstance(row, Effect) else row for row in _unstamped(fresh(left.rows)))
        return s._replace(rows=rows, p=ps, err=s.err or left.broke)  # type: ignore[arg-type]

    def _plain(self, p: P) -> P:
        """A process that was replaced can do no more than send: the fence refuses whatever it writes (S-2)."""
        if not self.fenced or p.view is None or p.view.epoch == NEW:
            return p
        return P(p.pc, p.until, p.at) if p.pc in ("ready", "frozen") else P("gone")

    def _claim(self, s: S) -> Iterator[tuple[str, S]]:
        """The next process takes the run: at first, when a person answered, or from the one before at any time."""
        run, effect, i = run_of(s.rows), _effect(s.rows), s.who + 1
        if i >= len(s.p) or (effect is not None and effect.status is EffectStatus.DONE):
            return
        closed = {run.owner: 0} if run.owner else {}
        commit = verbs.claim(run, worker=f"w{i}", now=self._now(s, i), claim_ms=SLICE, closed=closed)
        if commit is not None:
            left = land(s.rows, commit, self._now(s, i).real)
            p = P("holds", view=run_of(left.rows), copy=_effect(left.rows))
            yield f"t={s.t}: {'ABC'[i]} takes the run", self._with(s, left, i, p, who=i)

    def _speak(self, s: S, i: int, commit: Commit, then: P, what: str) -> tuple[str, S]:
        view = s.p[i].view
        assert view is not None
        left = land(s.rows, commit if self.fenced else unfenced(commit), self._now(s, i).real)
        if left.refused:
            return f"t={s.t}: {what} refused ({left.refused})", self._with(s, left, i, P("gone"))
        late = view.epoch != run_of(s.rows).epoch
        then = then._replace(copy=_effect(left.rows)) if then.pc != "gone" else then
        after = self._with(s, left, i, then, err="a holder that had been replaced wrote" if late else "")
        return f"t={s.t}: {what}", after

    def _holds(self, s: S, i: int, p: P) -> Iterator[tuple[str, S]]:
        name, effect = "ABC"[i], p.copy
        assert p.view is not None
        if effect is None and not self.intent_first:
            yield (
                f"t={s.t}: {name} calls at once",
                self._with(s, Landed(s.rows, "", 0, ""), i, p._replace(pc="frozen", at=s.t)),
            )
        elif effect is None or effect.status is EffectStatus.REFUSED:
            step = self._next(s, i, effect)
            assert isinstance(step, Intend)
            yield self._intend(s, i, p._replace(doubt=step))
        elif effect.status is EffectStatus.UNCERTAIN:
            reason = Attention(Reason.EFFECT_UNCERTAIN, 1, key="k", visit=1)
            commit = attention.flag(
                p.view, [reason], inbox_seq=run_of(s.rows).inbox_seq, now=self._now(s, i), mapping=MAPPING
            )
            yield self._speak(s, i, commit, P("gone"), f"{name} calls a person")
        elif effect.status is EffectStatus.INTENDED:
            yield from self._settle(s, i, p, effect)

    def _intend(self, s: S, i: int, p: P) -> tuple[str, S]:
        assert p.view is not None
        margin = -TIMEOUT if self.settle_time == "not_after alone" else self._margin
        what = effect_verbs.Intent(1, "k", "pay", "d", b"", "", TIMEOUT, BUDGET, margin)
        commit = effect_verbs.intend(p.view, what, p.copy, ordinal=1, now=self._now(s, i))
        until = effect_verbs.intended(commit).not_after
        return self._speak(s, i, commit, p._replace(pc="ready", until=until), f"{'ABC'[i]} intends")

    def _settle(self, s: S, i: int, p: P, effect: Effect) -> Iterator[tuple[str, S]]:
        """Yield the step for an effect that an earlier holder left open; none while it waits."""
        name = "ABC"[i]
        assert p.view is not None
        step = self._next(s, i, effect)
        if isinstance(step, Intend):
            yield self._intend(s, i, p._replace(doubt=step) if self.refuses else p)
        elif isinstance(step, RecordResponse):
            commit = effect_verbs.settle(p.view, effect, b"1", now=self._now(s, i))
            yield self._speak(s, i, commit, P("gone"), f"{name} asks the receiver: found")
        elif isinstance(step, MarkUncertain):
            commit = effect_verbs.mark_uncertain(p.view, effect, *step, now=self._now(s, i))
            yield self._speak(s, i, commit, p, f"{name} doubts")

    def _terms(self) -> Terms:
        remembered_for = (self.window or ANY) if self.mode == "resend" else 0
        return Terms(self.mode == "reconcile", ANY, ANY, 1, 1.0, ANY, remembered_for, TIMEOUT, self._margin, BUDGET)

    def _next(self, s: S, i: int, effect: Effect | None) -> Step:
        """Return the engine's decision, with the receiver's answer if it asks. The receiver knows what has landed."""
        now = self._now(s, i)
        known = Known(asked_at=NEVER if self.settle_time == "ignored" else now.real)
        terms = self._terms()
        if self.opens != "with the first intent":
            terms = terms._replace(timeout=0, settle_margin=0, start_budget=0)
        if self.opens == "with each attempt" and effect is not None:
            effect = effect._replace(first_at=effect.not_after - BUDGET)
        step = next_step(effect, terms, Moment.START, now, known)
        if isinstance(step, AskReceiver):
            answer = Happened(1) if s.world else DidNotHappen()
            step = next_step(effect, terms, answer, now, known)
        return step

    def _ready(self, s: S, i: int, p: P) -> Iterator[tuple[str, S]]:
        here = Landed(s.rows, "", 0, "")
        if self.check and self._now(s, i).real >= p.until:
            yield f"t={s.t}: {'ABC'[i]} is past not_after and does not send", self._with(s, here, i, P("gone"))
        else:
            after = self._with(s, here, i, p._replace(pc="frozen", at=s.t, until=0))
            yield f"t={s.t}: {'ABC'[i]} passes the last-instant check", after

    def _frozen(self, s: S, i: int, p: P) -> Iterator[tuple[str, S]]:
        then = p._replace(pc="sent", at=s.t) if p.view is not None else P("gone")
        after = self._with(s, Landed(s.rows, "", 0, ""), i, then, fly=(*s.fly, (s.t, i if self.refuses else -1)))
        yield f"t={s.t}: {'ABC'[i]} sends", after

    def _sent(self, s: S, i: int, p: P) -> Iterator[tuple[str, S]]:
        if not s.world or s.t - p.at > TIMEOUT or p.view is None:
            yield f"t={s.t}: {'ABC'[i]} hears nothing", self._with(s, Landed(s.rows, "", 0, ""), i, P("gone"))
        elif p.copy is not None and p.copy.status is EffectStatus.INTENDED:
            commit = effect_verbs.record(p.view, p.copy, b"1", now=self._now(s, i))
            yield self._speak(s, i, commit, P("gone"), f"{'ABC'[i]} records the answer")

    def _refused(self, s: S, i: int, p: P) -> Iterator[tuple[str, S]]:
        name, effect, now = "ABC"[i], p.copy, self._now(s, i)
        assert p.view is not None and effect is not None
        known = Known(maybe_done=p.doubt.maybe_done, in_transit=p.doubt.in_transit and self.refusal_waits)
        step = next_step(effect, self._terms(), No("no", ""), now, known)
        if isinstance(step, Refuse):
            commit = effect_verbs.refuse(p.view, effect, *step, now=now)
            yield self._speak(s, i, commit, P("gone"), f"{name} records the refusal")
        elif isinstance(step, MarkUncertain):
            commit = effect_verbs.mark_uncertain(p.view, effect, *step, now=now)
            yield self._speak(s, i, commit, p._replace(pc="holds"), f"{name} doubts the refusal")
        else:
            assert isinstance(step, Defer)
            commit = effect_verbs.defer(p.view, effect, **step._asdict(), now=now)
            yield self._speak(s, i, commit, p._replace(pc="holds"), f"{name} waits with the refusal")


def _effect(rows: Rows) -> Effect | None:
    row = find(rows, EFFECT, "r", 1, "k")
    return row if isinstance(row, Effect) else None


def _is_done(rows: Rows) -> bool:
    effect = _effect(rows)
    return effect is not None and effect.status is EffectStatus.DONE


def _settled(row: Effect | None) -> Effect | None:
    """An effect row without what nothing here asks for any more."""
    if row is None:
        return None
    row = row._replace(settled_at=min(row.settled_at, 1), attempts=1, interrupted=0)
    if row.status is EffectStatus.DONE:
        return row._replace(first_at=1, not_after=1, settle_after=1, version=NEW, error_text="", settled_by="")
    return row


def _unstamped(rows: Rows) -> Rows:
    return tuple(row._replace(at=0) if isinstance(row, Message) else row for row in rows)


FREEZE = LANDED - TIMEOUT  # time that settle time and flight leave for a freeze in between check and sending
LARGE = (
    Variant("repeat, never forgets, any freeze, longer", Effects(mode="resend", freeze=5, end=8)),
    Variant("repeat within its window, longer", Effects(mode="resend", window=8, freeze=1, end=14)),
    Variant("reconcile, longer", Effects(freeze=FREEZE, end=15)),
    Variant("ask, any freeze, any answer, longer", Effects(mode=ASK, freeze=6, person_waits=False, blame=False)),
)
VARIANTS = (
    Variant("repeat, the receiver never forgets, any freeze", Effects(mode="resend", freeze=3, end=5)),
    Variant("repeat within its window", Effects(mode="resend", window=8, end=9)),
    Variant("repeat, refused", Effects(mode="resend", refuses=True, freeze=FREEZE, end=9)),
    Variant("reconcile, refused", Effects(refuses=True)),
    Variant("reconcile", Effects()),
    Variant("reconcile, frozen as long as the margin covers", Effects(freeze=FREEZE)),
    Variant("ask", Effects(mode=ASK)),
    Variant("ask, any freeze, any answer", Effects(mode=ASK, freeze=5, person_waits=False, blame=False, end=8)),
    Variant("the call comes before the intent", Effects(intent_first=False), "without a decision"),
    Variant("no fence", Effects(fenced=False), "had been replaced wrote"),
    Variant("no last-instant check", Effects(check=False), "without a decision"),
    Variant("settle time is not waited for", Effects(settle_time="ignored"), "without a decision"),
    Variant("settle time is not_after alone", Effects(settle_time="not_after alone"), "without a decision"),
    Variant(
        "the window opens again with each attempt",
        Effects(mode="resend", window=6, opens="with each attempt"),
        "without a decision",
    ),
    Variant(
        "the window bounds the sending, not the landing",
        Effects(mode="resend", window=5, opens="and ends with the sending"),
        "without a decision",
    ),
    Variant("a refusal counts at once", Effects(mode="resend", refuses=True, refusal_waits=False), "says refused"),
    Variant("a person may answer at once", Effects(mode=ASK, person_waits=False), "landed afterwards"),
    # Cases left by design, so that the documents can name it: docs/semantics.md, "Claims and remaining risk".
    Variant("RESIDUAL reconcile, frozen a tick longer than covered", Effects(freeze=FREEZE + 1), "without a decision"),
    Variant("RESIDUAL reconcile, a flight longer than covered", Effects(flight=LANDED + 2), "without a decision"),
    Variant(
        "RESIDUAL repeat, refused, frozen longer than covered",
        Effects(mode="resend", refuses=True, freeze=FREEZE + 1),
        "says refused",
    ),
    Variant("RESIDUAL ask, frozen longer than covered", Effects(mode=ASK, freeze=FREEZE + 1), "landed afterwards"),
)
