"""Answers that must fit a type: how a request has it, how an answer is read, and what follows one that does not fit.

Pure functions. `propose` and `agent_workflow` carry out what they decide. A text is understood if exactly one of its
JSON values fits the type, so words and fences around it do no harm. An object that begins and cannot be read makes the
text unclear, because a value inside it, or after it, may be a draft.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import isfinite
from typing import Any, Final, Generic, Literal, NamedTuple, cast

from pydantic import BaseModel
from typing_extensions import TypeVar

from outlast.agent.model import (
    FINAL,
    Message,
    ModelAnswer,
    ModelRequest,
    OfferedTool,
    ResultBy,
    ResultFormat,
)
from outlast.core.argument_checks import Arguments
from outlast.core.codec import INVALID, compact
from outlast.core.limits import TEXT_CHARS_MAX
from outlast.core.value_problems import problems_of
from outlast.core.visible import is_blank
from outlast.flow.outcomes import Refused

M = TypeVar("M", bound=BaseModel)
ALONE: Final = "call it alone, after the results of all other calls"
PROBLEMS_MAX: Final = 20
HEAD_CHARS: Final = 1_000
"""Characters of an answer in a refusal."""
WHOLE: Final = "(the whole)"
_BEGINS: Final = re.compile(r"[\[{]")
_OBJECT: Final = re.compile(r'\{\s*["}]')
UNREADABLE_MAX: Final = 1_000
"""Unreadable places of a text that look like a value. A text with more is given up, because each costs time."""

FlawCode = Literal["answer_invalid", "answer_cut", "answer_empty", "answer_filtered", "answer_refused"]
_OF_END: Final[Mapping[str, FlawCode]] = {
    "cut": "answer_cut",
    "too_large": "answer_cut",
    "empty": "answer_empty",
    "filtered": "answer_filtered",
    "refusal": "answer_refused",
}
ASK_AGAIN: Final[Mapping[str, str]] = {
    "cut": "your answer was cut; none of its calls was made. Answer again, in fewer words",
    "too_large": "your answer was cut: it is too large; none of its calls was made. Answer again, in fewer words",
    "empty": "your answer was empty. Answer again, with words or with a call",
}
"""Text for a model about an answer that cannot be used, once in each step."""


class AnswerProblem(NamedTuple):
    """One thing that is wrong with an answer: the `path` of a field, and a sentence."""

    path: str
    text: str


class Flaw(NamedTuple):
    """Why an answer is no value of the type. `again`: asking once more may help."""

    code: FlawCode
    problems: tuple[AnswerProblem, ...]
    again: bool = True

    @property
    def summary(self) -> str:
        """The problems as one text."""
        return "; ".join(f"{path}: {text}" for path, text in self.problems)


@dataclass(frozen=True)
class TypedAnswer(Generic[M]):
    """An answer of a model that fits its type. It is advice: the workflow decides what follows.

    - `result`: the value.
    - `answer`: the answer as the model gave it.
    - `proposed_by`: the name of the model, for policy and history.
    - `before`: an earlier answer that does not fit, and the correction.
    """

    result: M
    answer: ModelAnswer
    proposed_by: str
    before: tuple[Message, ...] = ()

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages with which a transcript goes on."""
        taken = (
            Message(role="tool", text=compact({"received": True}), call_id=call.id, tool=call.tool)
            for call in self.answer.calls
        )
        return (*self.before, self.answer.message, *taken)


# --- the request -------------------------------------------------------------------------------------
def check_result_type(of: str, kind: object, where: str = "") -> None:
    """Raise DefinitionError unless `kind` is a pydantic model whose JSON is an object."""
    check = Arguments(of, where)
    given = cast(Any, kind)
    if not (isinstance(given, type) and issubclass(given, BaseModel)):
        raise check.wrong("result", given, "a result is text or a pydantic model", "wrap it in a model")
    schema = _schema_of(given)
    if schema.get("type", "object") != "object" or "anyOf" in schema or "oneOf" in schema:
        raise check.wrong("result", given, "its JSON is no object", "wrap it in a model with one field")


@lru_cache(maxsize=1_024)  # because pydantic takes 0.4 ms for it
def _schema_of(kind: type[BaseModel]) -> dict[str, Any]:
    return kind.model_json_schema()


def with_result(request: ModelRequest, kind: type[BaseModel], by: ResultBy) -> ModelRequest:
    """Return a request that tells the model the type of its result in the way that the model declares."""
    schema = _schema_of(kind)
    changes: dict[str, Any] = {"result": ResultFormat(by=by, name=FINAL, json_schema=schema)}
    if by == "tool":
        instruction = f"Give the final result. {ALONE.capitalize()}."
        changes["tools"] = (*request.tools, OfferedTool(name=FINAL, description=instruction, parameters=schema))
    elif by == "prompt":
        instruction = (
            f"Give the final result as one JSON object without other words. It fits this schema: {compact(schema)}"
        )
        changes["instructions"] = f"{request.instructions}\n\n{instruction}".strip()
    return request.model_copy(update=changes)


# --- the answer --------------------------------------------------------------------------------------
def judged(kind: type[M], answer: ModelAnswer, *, may_call: bool) -> M | Flaw | None:
    """Return the value of an answer, or why it has none; None if the model asks for calls instead.

    `may_call`: True if it was offered tools beside the one for the result.
    """
    if (code := _OF_END.get(answer.end)) is not None:
        words = answer.finish_detail or ASK_AGAIN.get(answer.end, "") or "it gave no reason"
        return Flaw(code, (AnswerProblem(WHOLE, words),), again=answer.end in ASK_AGAIN)
    if not answer.calls:
        return read_text(kind, answer.text)
    given = [call for call in answer.calls if call.tool == FINAL]
    if not given and may_call:
        return None
    if len(answer.calls) > 1 and given:
        return Flaw("answer_invalid", (AnswerProblem(FINAL, ALONE),))
    if not given:
        unknown = (AnswerProblem(call.tool[:100], "there is no such tool") for call in answer.calls[:PROBLEMS_MAX])
        return Flaw("answer_invalid", tuple(unknown))
    arguments = given[0].arguments
    return read_text(kind, arguments if isinstance(arguments, str) else compact(arguments))


def read_text(kind: type[M], text: str) -> M | Flaw:
    """Return the value of the only JSON object in a text that fits a type, or the problems."""
    values = _values_in(text)
    if isinstance(values, AnswerProblem):
        return Flaw("answer_invalid", (values,))
    found, problems = list[M](), list[AnswerProblem]()
    scalar = [text] if "object" not in _schema_of(kind).get("type", "object") else []
    for value in values or scalar:
        try:
            found.append(kind.model_validate_json(value))
        except INVALID as error:
            problems = [AnswerProblem(*each) for each in problems_of(error)]
    if len(found) == 1:
        return found[0]
    if found:
        problems = [AnswerProblem(WHOLE, f"{len(found)} objects fit, and which one is meant is not clear; give one")]
    elif not problems:
        problems = [AnswerProblem(WHOLE, "there is no JSON object in it")]
    return Flaw("answer_invalid", tuple(problems[:PROBLEMS_MAX]))


def _values_in(text: str) -> list[str] | AnswerProblem:
    """Return the outermost JSON values in a text that are objects or lists, or why it is unclear."""
    decoder = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_refuse, parse_float=_finite)
    found, at, unreadable = list[str](), 0, 0
    while (begin := _BEGINS.search(text, at)) is not None:
        at = begin.start()
        try:
            _, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            unreadable += 1
            if _OBJECT.match(text, at) or unreadable > UNREADABLE_MAX:
                return AnswerProblem(WHOLE, f"a JSON object at character {at} cannot be read: {error}"[:TEXT_CHARS_MAX])
            at += 1
        else:
            found.append(text[at:end])
            at = end
    return found


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("it has a field twice")
    return found


def _refuse(constant: str) -> float:
    raise ValueError(f"JSON has no {constant}")


def _finite(text: str) -> float:
    if not isfinite(value := float(text)):
        raise ValueError("it has a number that is too large")
    return value


# --- what follows an answer that does not fit ------------------------------------------------------------
def asked_again(answer: ModelAnswer) -> list[Message]:
    """Return the messages that tell a model why its answer cannot be used. Its calls are left out."""
    text = "(no words)" if is_blank(answer.text) else answer.text  # because a provider may refuse an empty message
    detail = f" ({answer.finish_detail})" if answer.end == "too_large" else ""
    return [Message(role="assistant", text=text), Message(role="user", text=ASK_AGAIN[answer.end] + detail)]


def correction(answer: ModelAnswer, flaw: Flaw) -> tuple[Message, ...]:
    """Return the messages that ask a model once more, with the problems of its answer as data."""
    if answer.end in ASK_AGAIN:
        return tuple(asked_again(answer))
    problems = [each._asdict() for each in flaw.problems]
    errors = compact({"error": {"code": flaw.code, "problems": problems}, "next": "give the whole result again"})
    if not answer.calls:
        return (answer.message, Message(role="user", text=errors))
    later = compact({"error": {"code": "not_now", "reason": "give the result first, or call without it"}})
    texts: Sequence[str] = [errors, *[later] * (len(answer.calls) - 1)]
    results = (
        Message(role="tool", text=text, call_id=call.id, tool=call.tool)
        for text, call in zip(texts, answer.calls, strict=True)
    )
    return (answer.message, *results)


def refused(name: str, answer: ModelAnswer, flaw: Flaw) -> Refused:
    """Return the refusal that ends the question: its code, the problems, and the beginning of the last answer."""
    head = f"; the answer of {name} begins with: {answer.head[:HEAD_CHARS]}" if answer.head else f"; asked was {name}"
    return Refused(flaw.code, flaw.summary[: TEXT_CHARS_MAX - len(head)] + head)
