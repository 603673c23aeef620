"""Recorded forms of the results of tools."""

from dataclasses import replace
from typing import Any, Final, cast

from pydantic import JsonValue

from outlast.core.codec import plain_json
from outlast.core.effect_steps import Happened

RETURNED: Final = "tool_return"


def stored(payload: Any) -> JsonValue:
    """Return the recorded form of a tool's result: the plain result, unless it says more than that."""
    plain = set(payload) == {"kind", "result"} and payload["kind"] == RETURNED
    if plain and not (isinstance(payload["result"], dict) and "kind" in payload["result"]):
        return cast(JsonValue, payload["result"])
    return cast(JsonValue, payload)


def plain_result(stored: Any) -> Any:
    """Return the tool's own result of its recorded form."""
    return stored["result"] if isinstance(stored, dict) and stored.get("kind") == RETURNED else stored


def recorded(answer: object) -> object:
    """Return the answer of a reconcile function with the result of the tool in its recorded form."""
    if not isinstance(answer, Happened):
        return answer
    return replace(answer, response=stored({"kind": RETURNED, "result": plain_json(answer.response, by_alias=True)}))
