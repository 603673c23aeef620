"""What people and programs outside answer in a test: one function of what the run waits for, and its possible answers.

The function is asked again after every crash, so it answers from what it is asked and from nothing else.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel


@dataclass(frozen=True)
class PendingQuestion:
    """What a run waits for that only the outside can give."""

    kind: Literal["approval", "signal", "effect", "attention"]
    name: str
    """The approval's name, the signal's name, the uncertain effect's key, or the reason for attention."""
    node: str
    visit: int
    state: Mapping[str, Any] = field(default_factory=dict)
    """The state as this visit found it."""
    summary: str = ""
    """What a person is told: the approval's summary, or the detail."""
    plans: tuple[Mapping[str, Any], ...] = ()
    """Of an approval: each plan as {activity, key, arguments}; of an effect: the call itself."""


@dataclass(frozen=True)
class ScriptedAnswer:
    """What the outside says. Made by `approve`, `reject`, `send`, `choose`, `happened`, `did_not_happen`."""

    verb: str
    given: Mapping[str, Any] = field(default_factory=dict)


Decide: TypeAlias = Callable[[PendingQuestion], ScriptedAnswer | BaseModel | Mapping[str, Any] | None]
"""Answers what is asked; None: nobody does, and time passes to the next deadline. A model or a mapping is a signal."""


def approve(reason: str = "in order", *, alternative: int = 0) -> ScriptedAnswer:
    """A person approves the plan, or the n-th alternative."""
    return ScriptedAnswer("approve", {"reason": reason, "alternative": alternative})


def reject(reason: str = "too much", *, again: bool = False) -> ScriptedAnswer:
    """A person rejects it; `again`: and wants another round."""
    return ScriptedAnswer("reject", {"reason": reason, "again": again})


def send(*payloads: BaseModel | Mapping[str, Any]) -> ScriptedAnswer:
    """These signals arrive, in this order."""
    return ScriptedAnswer("send", {"payloads": [to_json(payload) for payload in payloads]})


def choose(choice: str, reason: str = "looked at it") -> ScriptedAnswer:
    """A person answers an attention with one of its choices."""
    return ScriptedAnswer("choose", {"choice": choice, "reason": reason})


def happened(response: Any = None) -> ScriptedAnswer:
    """The receiver has it: this is what the call would have returned."""
    return ScriptedAnswer("happened", {"response": response})


def did_not_happen() -> ScriptedAnswer:
    """The receiver does not have it: it may be called again."""
    return ScriptedAnswer("did_not_happen")


def approve_all(asked: PendingQuestion) -> ScriptedAnswer | None:
    """Approves whatever a person is asked for, and answers nothing else."""
    return approve() if asked.kind == "approval" else None


def no_answer(asked: PendingQuestion) -> None:
    """Nobody answers anything."""


def to_json(payload: BaseModel | Mapping[str, Any]) -> dict[str, Any]:
    """A signal's payload as JSON can say it."""
    return payload.model_dump(mode="json") if isinstance(payload, BaseModel) else dict(payload)


def answer_of(decide: Decide, asked: PendingQuestion) -> ScriptedAnswer | None:
    """What `decide_approval` says, as an Answer. Raises TypeError for what is none."""
    said: object = decide(asked)
    if said is None or isinstance(said, ScriptedAnswer):
        return said
    if isinstance(said, BaseModel | Mapping):
        return send(said)
    if isinstance(said, Sequence) and not isinstance(said, str):
        return send(*said)
    raise TypeError(
        f"decide answered {said!r} to {asked.kind} {asked.name}: it has to be approve(), reject(), send(…), choose(…), "
        "a signal's model, or None"
    )
