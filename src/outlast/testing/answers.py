"""Answers of people and other programs in a test: one function from a pending question to an answer.

The function is called again after every crash, so its answer must depend on the question only.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel

from outlast.core.approvals import EVERY_ROLE
from outlast.core.approver_rule import Rule, identity
from outlast.core.argument_checks import Arguments
from outlast.core.limits import PLANS_PER_APPROVAL_MAX
from outlast.core.machine import Choice
from outlast.core.rows.approval_columns import OfferedCall
from outlast.core.usage import amounts_of


@dataclass(frozen=True)
class PendingQuestion:
    """An item that a run waits for and that only a person or another program can provide.

    `kind` says what is asked; `node` and `visit` say where the run is.
    """

    kind: Literal["approval", "signal", "effect", "attention"]
    name: str
    """Name of the approval or signal, key of the uncertain effect, or reason for attention."""
    node: str
    visit: int
    state: Mapping[str, Any] = field(default_factory=dict)
    """The state at the entry into this visit."""
    summary: str = ""
    """The approval's summary, or the detail of the attention."""
    plans: tuple[Mapping[str, Any], ...] = ()
    """Plans of an approval, each as {activity, key, arguments}; of an effect, the call itself."""
    child: str = ""
    """Keys of the children from the run under test to the run that asks, as in "ada/hotel"; '' if it asks itself."""


def asked_plans(offered: Iterable[OfferedCall]) -> tuple[dict[str, Any], ...]:
    """Return the calls that an approval offers, in the form of `PendingQuestion.plans`."""
    return tuple({"activity": p.activity, "key": p.key, "arguments": p.arguments()} for p in offered)


@dataclass(frozen=True)
class ScriptedAnswer:
    """An answer, created by `approve`, `reject`, `send`, `choose`, `happened` or `did_not_happen`."""

    verb: str
    given: Mapping[str, Any] = field(default_factory=dict)


Decide: TypeAlias = Callable[[PendingQuestion], ScriptedAnswer | BaseModel | Mapping[str, Any] | None]
"""Answers a question. None gives no answer, and time passes to the next deadline. A model or a mapping is a signal."""


def approve(reason: str = "in order", *, alternative: int = 0) -> ScriptedAnswer:
    """Approve the plan, or the `alternative` with this number (1, 2, …), for this `reason`."""
    check = Arguments("approve")
    check.is_text("reason", reason, 'reason="in order"')
    check.number("alternative", alternative, 0, PLANS_PER_APPROVAL_MAX)
    return ScriptedAnswer("approve", {"reason": reason, "alternative": alternative})


def reject(reason: str = "too much", *, again: bool = False) -> ScriptedAnswer:
    """Reject the plan for this `reason`. `again` asks for another round."""
    check = Arguments("reject")
    check.is_text("reason", reason, 'reason="too much"')
    check.flag("again", again)
    return ScriptedAnswer("reject", {"reason": reason, "again": again})


def send(*payloads: BaseModel | Mapping[str, Any]) -> ScriptedAnswer:
    """Send these `payloads` as signals, in this order."""
    for payload in payloads:
        if not isinstance(payload, BaseModel | Mapping):
            raise Arguments("send").wrong("payloads", payload, "a payload is a model or a dict", 'send({"value": 1})')
    return ScriptedAnswer("send", {"payloads": [to_json(payload) for payload in payloads]})


def choose(
    choice: str,
    reason: str = "looked at it",
    *,
    tokens: int = 0,
    money: Decimal | str | int = 0,
    calls: int = 0,
    minutes: float = 0,
    children: int = 0,
) -> ScriptedAnswer:
    """Answer a reason for attention with one of its choices: `choice`, and the `reason` for it.

    The choice "raise" adds `tokens`, `money`, `calls`, `minutes` and `children` to the budget of the run.
    """
    check = Arguments("choose")
    check.one_of("choice", choice, [each.value for each in Choice])
    check.is_text("reason", reason, 'reason="looked at it"')
    amounts_of(tokens, money, calls, minutes, children)
    more = {"tokens": tokens, "money": str(money), "calls": calls, "minutes": minutes, "children": children}
    return ScriptedAnswer("choose", {"choice": choice, "reason": reason, "more": more})


def happened(response: Any = None) -> ScriptedAnswer:
    """State that the receiver executed the call and returned this `response`."""
    return ScriptedAnswer("happened", {"response": response})


def did_not_happen() -> ScriptedAnswer:
    """State that the receiver did not execute the call, so it may be sent again."""
    return ScriptedAnswer("did_not_happen")


def next_approver(name: str, rule: str, voters: Sequence[str]) -> str:
    """Return a person who has not voted: `name`, then «name-2», because a person votes once; if the `rule` does not
    allow that name, a person whom the rule names.
    """
    any_name = f"{name}-{len(voters) + 1}" if voters else name
    parsed = Rule.parse(rule)
    named = [each for each in sorted(parsed.persons) if each not in map(identity, voters)]
    return next((each for each in (any_name, *named) if parsed.allows(EVERY_ROLE, each)), any_name)


def approve_all(asked: PendingQuestion) -> ScriptedAnswer | None:
    """Approve if `asked` is an approval, and answer nothing else."""
    return approve() if asked.kind == "approval" else None


def no_answer(asked: PendingQuestion) -> None:
    """Give no answer to any question."""


def to_json(payload: BaseModel | Mapping[str, Any]) -> dict[str, Any]:
    """Return the payload of a signal as plain JSON data."""
    return payload.model_dump(mode="json") if isinstance(payload, BaseModel) else dict(payload)


def answer_of(decide: Decide, asked: PendingQuestion) -> ScriptedAnswer | None:
    """Return the answer of `decide`. Raises TypeError if it is not a valid answer."""
    answer: object = decide(asked)
    if answer is None or isinstance(answer, ScriptedAnswer):
        return answer
    if isinstance(answer, BaseModel | Mapping):
        return send(answer)
    if isinstance(answer, Sequence) and not isinstance(answer, str):
        return send(*answer)
    raise TypeError(
        f"decide answered {answer!r} to {asked.kind} {asked.name}: it has to be approve(), reject(), send(…), "
        "choose(…), a signal's model, or None"
    )
