"""What a holder does with a run it has just claimed: a pure function of the run's rows and the store's time."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from outlast.core.budget import APPROVAL_STALE_AFTER
from outlast.core.compensation import Ending, ending_of
from outlast.core.machine import CHOICES, OVERLAY_ONLY, Choice, EffectStatus, Reason
from outlast.core.overlay import Attention, attention_of
from outlast.core.people import GIVEN_UP, REOPENED
from outlast.core.rows import Effect, Message, Run
from outlast.core.version_move import move_request_of

STALE_REASON: Final = "approval_stale_7day_limit_exceeded"  # source A, REQ-G203a
ENGINE: Final = "outlast"  # who ends a run that nobody answered for


class EndCancelled(NamedTuple):
    """The run is to end cancelled; open effects settle first."""

    by: str
    reason: str


class EndFailed(NamedTuple):
    """A person chose to end the run as failed; open effects settle first."""

    by: str
    reason: str


class Rest(NamedTuple):
    """A person has not answered yet: give the run back. What others were asked and have answered counts at once."""

    left: tuple[Attention, ...]
    answers: tuple["Answer", ...] = ()


class WalkOn(NamedTuple):
    """Walk the node. `left` is the attention that stays; `answers` what people chose, for the walk to act on."""

    left: tuple[Attention, ...] = ()
    answers: tuple["Answer", ...] = ()

    def chose(self, reason: Reason, choice: Choice) -> bool:
        """Was this the answer to this reason?"""
        return any(a.attention.reason is reason and a.choice is choice for a in self.answers)


class Undo(NamedTuple):
    """It is decided how the run ends: what it did is undone first, and nothing else begins (S-19)."""

    ending: Ending
    left: tuple[Attention, ...] = ()
    answers: tuple["Answer", ...] = ()


class Answer(NamedTuple):
    """What a person chose for one entry of the attention set."""

    attention: Attention
    choice: Choice
    by: str
    text: str
    by_ms: int  # extend: by how much


Route: TypeAlias = EndCancelled | EndFailed | Rest | WalkOn | Undo
ANSWERED_BY_CONTINUE: Final = {
    Reason.EXCEPTION: Choice.CONTINUE,
    Reason.WALK_DIVERGED: Choice.CONTINUE,
    Reason.CONTRADICTION: Choice.CONTINUE,
    Reason.POLICY_DENIED: Choice.CONTINUE,
    Reason.POISONED: Choice.CONTINUE,
    Reason.RESTORED: Choice.CONTINUE,
    Reason.RESULTS_MISSING: Choice.CONTINUE,
    Reason.RETRIES_EXHAUSTED: Choice.RETRY,
    Reason.VISITS_EXHAUSTED: Choice.ONE_MORE,
    Reason.NODE_GONE: Choice.MOVE,
    Reason.STRANDED_VERSION: Choice.MOVE,
}
"""What the operator's `continue` means for each reason it answers; the others have answers of their own."""
assert all(choice in CHOICES[reason] for reason, choice in ANSWERED_BY_CONTINUE.items())


def meant(reason: Reason, choice: Choice) -> Choice:
    """Return the choice of this reason that `continue` means; any other choice is itself."""
    return ANSWERED_BY_CONTINUE.get(reason, choice) if choice is Choice.CONTINUE else choice


def cancel_of(messages: Iterable[Message]) -> EndCancelled | None:
    """The first cancel in the mailbox, if there is one."""
    for message in messages:
        if message.kind == "cancel":
            return EndCancelled(message.actor, json.loads(message.payload).get("reason", ""))
    return None


def route(
    run: Run, messages: Sequence[Message], effects: Mapping[tuple[int, str], Effect], now: int, *, served: bool = False
) -> Route:
    """Cancel before all else; then what people answered; rest while one who must answer has not; else walk.

    `served`: a worker serves the run's own lane, so a run that was stranded goes on, unless a person moves it.

    `now` is business time: an approval that was not decided goes stale seven days after its timeout (S-21). Once it
    is decided how the run ends, nothing leads back to a walk, and no further cancel or failure changes it.
    """
    if (ending := ending_of(run)) is not None:
        return _to_undo(run, ending, messages, effects)
    if (cancel := cancel_of(messages)) is not None:
        return cancel
    left: list[Attention] = []
    answers: list[Answer] = []
    for a in attention_of(run):
        answer = _answer_to(a, messages, effects)
        if answer is None and a.reason is Reason.STRANDED_VERSION and served and move_request_of(run, messages) is None:
            answer = Answer(a, Choice.CONTINUE, ENGINE, f"a worker serves {run.lane} again", 0)
        if answer is None:
            left.append(a)
            continue
        if answer.choice is Choice.CANCEL:
            return EndCancelled(answer.by, answer.text)
        if answer.choice is Choice.FAIL:
            return EndFailed(answer.by, answer.text)
        answers.append(answer)
    if any(a.reason is Reason.APPROVAL_TIMEOUT and now >= a.since + APPROVAL_STALE_AFTER for a in left):
        return EndCancelled(ENGINE, STALE_REASON)
    if any(a.reason not in OVERLAY_ONLY for a in left):
        return Rest(tuple(left), tuple(answers))
    return WalkOn(tuple(left), tuple(answers))


def _to_undo(
    run: Run, ending: Ending, messages: Sequence[Message], effects: Mapping[tuple[int, str], Effect]
) -> Rest | Undo:
    said = [(a, _answer_to(a, messages, effects)) for a in attention_of(run)]
    left = tuple(a for a, answer in said if answer is None)
    answers = tuple(answer for _, answer in said if answer is not None)
    if any(a.reason not in OVERLAY_ONLY for a in left):
        return Rest(left, answers)
    return Undo(ending, left, answers)


def _settled(a: Attention, effect: Effect | None) -> Answer:
    """An effect that is no longer uncertain: what was said of it stands in its row."""
    error = json.loads(effect.error) if effect is not None and effect.error else {"code": "", "detail": ""}
    choice = {REOPENED: Choice.DID_NOT_HAPPEN, GIVEN_UP: Choice.GIVE_UP}.get(error["code"], Choice.HAPPENED)
    return Answer(a, choice, effect.settled_by if effect else "", error["detail"], 0)


def _answer_to(a: Attention, messages: Sequence[Message], effects: Mapping[tuple[int, str], Effect]) -> Answer | None:
    if a.reason is Reason.EFFECT_UNCERTAIN:
        effect = effects.get((a.visit, a.key))
        if effect is None or effect.status is not EffectStatus.UNCERTAIN:
            return _settled(a, effect)
        return None
    for message in messages:
        if message.n <= a.seen:
            continue
        if message.kind == Choice.CONTINUE and a.reason in ANSWERED_BY_CONTINUE:
            text = json.loads(message.payload).get("reason", "")
            return Answer(a, ANSWERED_BY_CONTINUE[a.reason], message.actor, text, 0)
        if message.kind == "answer" and message.name == a.reason:
            payload = json.loads(message.payload)
            if payload["key"] in ("", a.key):
                return Answer(a, Choice(payload["choice"]), message.actor, payload["reason"], payload["by_ms"])
    return None
