"""Results of tools as text for a model. A large one stays in the ledger; the model gets its head and a handle."""

import json
from typing import Any, Final

from pydantic import JsonValue, ValidationError

from outlast.agent.model import Message, OfferedTool, Part, ToolCall
from outlast.agent.proposal import Tool
from outlast.core.codec import compact
from outlast.core.limits import KIB
from outlast.flow.calls import Plan
from outlast.flow.context import Context

RESULT_CHARS_MAX: Final = 64 * KIB
"""A longer result is read in pages."""
PAGE_CHARS: Final = 16 * KIB
READ_RESULT: Final = "read_result"


class LargeResult(Part):
    """Address of a large result in the ledger of the run: the call that has it."""

    handle: str
    activity: str
    key: str
    digest: str
    visit: int


class StartedAgent(Part):
    """An agent that goes on in the background: the call that has started it, and its run."""

    agent: str
    key: str
    digest: str
    visit: int
    run: str

    def as_large(self, handle: str) -> LargeResult:
        """Return the address of its result."""
        return LargeResult(handle=handle, activity=self.agent, key=self.key, digest=self.digest, visit=self.visit)


IN_BACKGROUND: Final = "it goes on in the background; go on with other work, its result follows as a message"


class ReadResult(Part):
    """Arguments of the tool that reads a large result."""

    handle: str
    offset: int = 0


OFFER: Final = OfferedTool(
    name=READ_RESULT,
    description="Read on in the large result of an earlier call, from this offset (characters).",
    parameters={
        "type": "object",
        "properties": {"handle": {"type": "string"}, "offset": {"type": "integer", "minimum": 0}},
        "required": ["handle"],
        "additionalProperties": False,
    },
)


def text_of_result(tool: Tool, response: Any) -> str:
    """Return a response as text for a model: text as it is, anything else as JSON."""
    return response if isinstance(response, str) else tool.response_codec.dump(response).decode()


def result_message(call: ToolCall, text: str) -> Message:
    """Return the message with the result of a call."""
    return Message(role="tool", text=text, call_id=call.id, tool=call.tool)


def error_message(call: ToolCall, code: str, reason: str) -> Message:
    """Return the message that tells a model why its call was not made, or failed."""
    return result_message(call, compact({"error": {"code": code, "reason": reason}}))


def already_done(instruction: str, response: Any, text: str) -> str:
    """Return the recorded result of a call with the sentence that it was not done again. `text`: the result as text."""
    result = text if isinstance(response, str) else json.loads(text)
    return json.dumps({"note": instruction, "result": result}, ensure_ascii=False)


def agent_message(started: StartedAgent, **end: JsonValue) -> Message:
    """Return the message about the `end` of an agent in the background: its `result` or `error`."""
    body = {"agent": started.agent, "run": started.run, "started_in_step": started.visit, **end}
    return Message(role="user", text=json.dumps(body, ensure_ascii=False))


def page(handle: str, text: str, offset: int) -> str:
    """Return one page of a large result as JSON: the text, and the offset at which it continues."""
    end = min(len(text), offset + PAGE_CHARS)
    body: dict[str, Any] = {"handle": handle, "characters": len(text), "offset": offset, "text": text[offset:end]}
    if end < len(text):
        body["next"] = f"{READ_RESULT}(handle={handle!r}, offset={end})"
    return json.dumps(body, ensure_ascii=False)


async def read_result(ctx: Context[Any], known: list[LargeResult], tools: dict[str, Tool], call: ToolCall) -> Message:
    """Answer a call of the tool that reads large results. It changes nothing, and the ledger has the answer."""
    try:
        asked = ReadResult.model_validate(call.arguments, strict=True, extra="forbid")
    except ValidationError as error:
        return error_message(call, "invalid_arguments", str(error.errors(include_url=False, include_input=False)))
    large = next((each for each in known if each.handle == asked.handle), None)
    if large is None or asked.offset < 0 or large.activity not in tools:
        return error_message(call, "invalid_arguments", f"no result has the handle {asked.handle[:100]!r} and offset")
    plan: Plan[Any] = Plan(large.activity, large.key, b"{}", large.digest)
    rows = [row for row in await ctx.recorded(plan) if row.same and row.done and row.unstored is None]
    rows.sort(key=lambda row: row.visit == large.visit)
    if not rows:
        return error_message(call, "gone", "the result is no longer kept, for instance because its call was undone")
    return result_message(
        call, page(large.handle, text_of_result(tools[large.activity], rows[-1].response), asked.offset)
    )
