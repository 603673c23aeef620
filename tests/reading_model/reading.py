"""A request to a model, as the stand-in reads it, and what it may reply."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any, Final, NamedTuple, TypeAlias

from outlast.agent import ModelAnswer, ToolCall

FINAL: Final = "final_result"


class Calls(NamedTuple):
    """Calls that the stand-in wants, each as tool and arguments."""

    calls: tuple[tuple[str, dict[str, Any]], ...]


Fields: TypeAlias = dict[str, Any]
"""A value of the type that was asked for."""
Reply: TypeAlias = Calls | Fields | str


class Skill(NamedTuple):
    """Rules for one system: `answer` returns None for a question of another system.

    `lie` returns what a lying model says instead of an honest reply. The seed chooses the question about which it lies.
    """

    answer: Callable[["Reading"], Reply | None]
    lie: Callable[["Reading", Reply, int], Reply]


@dataclass(frozen=True)
class Reading:
    """The body of a request to `/chat/completions`."""

    body: Mapping[str, Any]

    @cached_property
    def messages(self) -> list[dict[str, Any]]:
        """The messages after the instructions."""
        return [each for each in self.body["messages"] if each["role"] != "system"]

    @cached_property
    def instructions(self) -> str:
        """The words of the system."""
        return "\n".join(str(each["content"]) for each in self.body["messages"] if each["role"] == "system")

    @cached_property
    def tools(self) -> dict[str, dict[str, Any]]:
        """The offered tools by name, with their parameters."""
        offered = [each["function"] for each in self.body.get("tools", ())]
        return {each["name"]: each["parameters"] for each in offered}

    @cached_property
    def schema(self) -> dict[str, Any]:
        """The type of the result, wherever the request has it; empty without one."""
        found: dict[str, Any] = {}
        if FINAL in self.tools:
            found = self.tools[FINAL]
        elif form := self.body.get("response_format"):
            found = form["json_schema"]["schema"]
        elif text := self.instructions.partition("fits this schema: ")[2]:
            found = json.loads(text)
        return found

    @property
    def fields(self) -> set[str]:
        """The names of the fields of the result."""
        return set(self.schema.get("properties", ()))

    @cached_property
    def facts(self) -> dict[str, Any]:
        """The first message, if it is a JSON object."""
        return _object(self.messages[0]["content"])

    @cached_property
    def results(self) -> list[str]:
        """The results of the tools, without errors."""
        own = [str(each["content"]) for each in self.messages if each["role"] == "tool"]
        return [text for text in own if not {"error", "received"} & _object(text).keys()]

    @cached_property
    def is_corrected(self) -> bool:
        """True if an answer to this question came back with an error or an objection."""
        return any({"error", "objection"} & _object(each.get("content")).keys() for each in self.messages[1:])

    def dice(self, sides: int) -> int:
        """Return a number that depends on the transcript only."""
        text = json.dumps([(each["role"], each.get("content")) for each in self.messages], sort_keys=True)
        return int(sha256(text.encode()).hexdigest(), 16) % sides


def encoded(reading: Reading, reply: Reply) -> ModelAnswer | str:
    """Return a reply in the way that the request asks for."""
    if isinstance(reply, str):
        return reply
    if isinstance(reply, Calls):
        calls = (ToolCall(id=f"r{n}", tool=tool, arguments=given) for n, (tool, given) in enumerate(reply.calls))
        return ModelAnswer(text="I read first.", calls=tuple(calls))
    if FINAL in reading.tools:
        return ModelAnswer(calls=(ToolCall(id="r0", tool=FINAL, arguments=reply),))
    return json.dumps(reply, ensure_ascii=False)


def sentences(text: str) -> list[str]:
    """Return the sentences of a text."""
    return [each.strip() for each in re.split(r"(?<=[.!?])\s+|\n", text) if each.strip()]


def _object(text: Any) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (TypeError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
