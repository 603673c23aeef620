"""Decision what a holder does with a claimed run: a pure function of the run's rows and the store's time."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from outlast.core.durations import APPROVAL_STALE_AFTER
from outlast.core.machine import RULES, Choice, EffectStatus, Reason
from outlast.core.mailbox import GIVEN_UP, REOPENED, stated
from outlast.core.rows.effect_columns import NO_ERROR
from outlast.core.rows.effect_rows import Effect
from outlast.core.rows.run_columns import Attention, Ending
from outlast.core.rows.run_rows import Message, Run
from outlast.core.version_move import move_request_of

STALE_REASON: Final = "approval_stale_7day_limit_exceeded"
ENGINE: Final = "outlast"  # actor of a run's end after no person has answered


class EndCancelled(NamedTuple):
    """End the run as cancelled, after open effects are settled."""

    by: str
    reason: str


class EndFailed(NamedTuple):
    """End the run as failed by a person's choice, after open effects are settled."""

    by: str
    reason: str
    child: str = ""  # visit and key of the child that failed, if the person answered this


class Rest(NamedTuple):
    """Release the run, because a person has not answered yet. `answers` of other people take effect at once."""

    left: tuple[Attention, ...]
    answers: tuple["Answer", ...] = ()


class WalkOn(NamedTuple):
    """Execute the node. `left`: attention that remains; `answers`: choices of people that the execution acts on."""

    left: tuple[Attention, ...] = ()
    answers: tuple["Answer", ...] = ()

    def chose(self, reason: Reason, choice: Choice) -> bool:
        """True if this choice was the answer to this reason."""
        return any(a.attention.reason is reason and a.choice is choice for a in self.answers)


WALK_ON: Final = WalkOn()


class Undo(NamedTuple):
    """Undo the run's effects, because its end is decided. No other call is made (S-19)."""

    ending: Ending
    left: tuple[Attention, ...] = ()
    answers: tuple["Answer", ...] = ()


class Answer(NamedTuple):
    """Choice of a person for one entry of the attention set."""

    attention: Attention
    choice: Choice
    by: str
    text: str
    by_ms: int  # extend: duration in ms


Route: TypeAlias = EndCancelled | EndFailed | Rest | WalkOn | Undo
ANSWERED_BY_CONTINUE: Final = {reason: rule.on_continue for reason, rule in RULES.items() if rule.on_continue}
"""Meaning of the operator's `continue` by reason. Other reasons need a specific choice."""


def meant(reason: Reason, choice: Choice) -> Choice:
    """Return the choice that `continue` means for this reason; return other choices unchanged."""
    return ANSWERED_BY_CONTINUE.get(reason, choice) if choice is Choice.CONTINUE else choice


def cancel_of(messages: Iterable[Message]) -> EndCancelled | None:
    """Return the first cancel in the inbox, or None."""
    for message in messages:
        if message.kind == "cancel":
            return EndCancelled(message.actor, message.reason)
    return None


def route(
    run: Run, messages: Sequence[Message], effects: Mapping[tuple[int, str], Effect], now: int, *, served: bool = False
) -> Route:
    """Return the next step of a claimed run.

    Order: a decided end, a cancel, the answers of people, a missing answer, else the execution of the node. `served`: a
    worker serves the run's lane, so a stranded run continues unless a person moves it. `now` is business time: an
    undecided approval ends the run seven days after its timeout (S-21). A decided end is final: no further cancel or
    failure changes it.
    """
    if not messages and not run.attention_text and not run.ending_text:
        return WALK_ON
    if (ending := run.ending) is not None:
        return _to_undo(run, ending, messages, effects)
    if (cancel := cancel_of(messages)) is not None:
        return cancel
    left: list[Attention] = []
    answers: list[Answer] = []
    for a in run.attention:
        answer = _answer_to(a, messages, effects)
        if answer is None and a.reason is Reason.STRANDED_VERSION and served and move_request_of(run, messages) is None:
            answer = Answer(a, Choice.CONTINUE, ENGINE, f"a worker serves {run.lane} again", 0)
        if answer is None and 0 < a.until <= now:
            answer = Answer(a, Choice.CONTINUE, ENGINE, "a new day has begun", 0)
        if answer is None:
            left.append(a)
            continue
        if answer.choice is Choice.CANCEL:
            return EndCancelled(answer.by, answer.text)
        if answer.choice is Choice.FAIL:
            return EndFailed(answer.by, answer.text, f"{a.visit}:{a.key}" if a.reason is Reason.CHILD_FAILED else "")
        answers.append(answer)
    if any(a.reason is Reason.APPROVAL_TIMEOUT and now >= a.since + APPROVAL_STALE_AFTER for a in left):
        return EndCancelled(ENGINE, STALE_REASON)
    if any(a.stops for a in left):
        return Rest(tuple(left), tuple(answers))
    return WalkOn(tuple(left), tuple(answers))


def _to_undo(
    run: Run, ending: Ending, messages: Sequence[Message], effects: Mapping[tuple[int, str], Effect]
) -> Rest | Undo:
    stated_answers = [(a, _answer_to(a, messages, effects)) for a in run.attention]
    left = tuple(a for a, answer in stated_answers if answer is None)
    answers = tuple(answer for _, answer in stated_answers if answer is not None)
    if any(a.stops for a in left):
        return Rest(left, answers)
    return Undo(ending, left, answers)


def _settled(a: Attention, effect: Effect | None) -> Answer:
    """Return the answer recorded in the row of an effect that is no longer uncertain."""
    error = (effect.error if effect is not None else None) or NO_ERROR
    choice = {REOPENED: Choice.DID_NOT_HAPPEN, GIVEN_UP: Choice.GIVE_UP}.get(error.code, Choice.HAPPENED)
    return Answer(a, choice, effect.settled_by if effect else "", error.detail, 0)


def _first_stated(a: Attention, messages: Sequence[Message]) -> Answer | None:
    """Return the first answer to an uncertain effect. Corrections of it are further events of the history."""
    for message, answer in stated(messages, after=a.seen):
        if answer.verb and (answer.visit, answer.key) == (a.visit, a.key) and not answer.corrects:
            return Answer(a, Choice(answer.verb), message.actor, answer.reason, 0)
    return None


def _answer_to(a: Attention, messages: Sequence[Message], effects: Mapping[tuple[int, str], Effect]) -> Answer | None:
    if a.reason is Reason.EFFECT_UNCERTAIN:
        effect = effects.get((a.visit, a.key))
        if effect is None or effect.status is not EffectStatus.UNCERTAIN:
            return _first_stated(a, messages) or _settled(a, effect)
        return None
    for message in messages:
        if message.n <= a.seen:
            continue
        if message.kind == Choice.CONTINUE and a.reason in ANSWERED_BY_CONTINUE:
            text = message.reason
            return Answer(a, ANSWERED_BY_CONTINUE[a.reason], message.actor, text, 0)
        if message.kind == Choice.RAISE and a.reason is Reason.BUDGET_EXHAUSTED:
            return Answer(a, Choice.RAISE, message.actor, message.reason, 0)
        if message.kind == "answer" and message.name == a.reason:
            answer = message.answer
            if answer.key in ("", a.key):
                return Answer(a, answer.choice, message.actor, answer.reason, answer.by_ms)
    return None
