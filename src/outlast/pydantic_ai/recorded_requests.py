"""Requests to models as they are recorded: the words of each, and an answer in a form that can be stored.

The outline of a request is stored with its answer. A later execution of the node may ask with other instructions, for
instance with the date of today; its messages and tools must be the same.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any, Final, Literal, cast

from pydantic import BaseModel, JsonValue, ValidationError
from pydantic_ai.exceptions import ContentFilterError, ModelRetry, OutputTokenLimitExceeded, UnexpectedModelBehavior
from pydantic_ai.messages import (
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.settings import ModelSettings
from pydantic_core import to_jsonable_python

from outlast.core.limits import KIB, RESPONSE_BYTES_MAX, TEXT_CHARS_MAX
from outlast.core.model_ends import finish_of
from outlast.core.model_texts import texts_of_request
from outlast.core.usage import ModelText
from outlast.core.visible import is_blank
from outlast.flow.outcomes import Fail

LEFT_OUT: Final = frozenset({"timestamp", "run_id", "conversation_id"})
"""Fields of messages that differ between executions of one agent run."""
OUTLINE: Final = "outlast"
"""Field of a recorded answer that holds the outline of its request."""
DIGEST_CHARS: Final = 32
TEXT_CHARS: Final = 4_000
"""Stored of a text of the request, to show where another one differs."""
SHOWN_CHARS: Final = 200
HEAD_CHARS: Final = 1_000
MESSAGES_MAX: Final = 500
SPARE_BYTES: Final = 16 * KIB
"""Bytes kept free beside the answer for its outline and the other fields."""
_TEXT_MAX: Final = (RESPONSE_BYTES_MAX - SPARE_BYTES) // 6
"""Characters that are kept of the texts of an answer that is too large: JSON may need six bytes for each."""

_KEPT: Final = ("usage", "model_name", "timestamp", "kind", "provider_name", OUTLINE)
"""Fields of an answer that is cut."""


class RequestOutline(BaseModel):
    """Content of a request.

    - `messages`: a digest of each message without its instructions and system parts.
    - `last`: the last message as text.
    - `tools`: a digest of the parameters of each tool, by name.
    - `about`: instructions and system parts as text, and `settings`: a digest of the settings.
    """

    messages: list[str]
    last: str = ""
    tools: dict[str, str] = {}
    about: str = ""
    settings: str = ""


def digest_of(messages: Sequence[Any]) -> str:
    """Return a digest of messages without the fields that differ between executions of one agent run."""
    return _digest(_lasting(ModelMessagesTypeAdapter.dump_python(list(messages), mode="json")), DIGEST_CHARS)


def request_digest(messages: str, outline: RequestOutline) -> str:
    """Return the digest of a request: of its `messages` and tools."""
    return _digest([messages, outline.tools], DIGEST_CHARS)


def outline_of(
    messages: Sequence[Any], parameters: ModelRequestParameters | None, settings: ModelSettings | None
) -> RequestOutline:
    """Return the outline of a request."""
    plain = _lasting(ModelMessagesTypeAdapter.dump_python(list(messages), mode="json"))
    about, bodies = list[str](), list[dict[str, Any]]()
    for message in plain:
        parts = message.get("parts", [])
        system = [part for part in parts if part.get("part_kind") == "system-prompt"]
        about += [str(part.get("content")) for part in system]
        if message.get("instructions"):
            about.append(str(message["instructions"]))
        others = [part for part in parts if part.get("part_kind") != "system-prompt"]
        bodies.append({**message, "parts": others, "instructions": None})
    offered = [] if parameters is None else [*parameters.function_tools, *parameters.output_tools]
    return RequestOutline(
        messages=[_digest(body, 16) for body in bodies[-MESSAGES_MAX:]],
        last=_head("\n".join(_lines(bodies[-1])) if bodies else ""),
        tools={tool.name: _digest(_shape(tool.parameters_json_schema), 16) for tool in offered},
        about=_head("\n".join(about)),
        settings=_digest(to_jsonable_python(settings or {}, fallback=lambda value: type(value).__name__), 16),
    )


def texts_of(messages: Sequence[Any], parameters: ModelRequestParameters | None) -> tuple[ModelText, ModelText]:
    """Return the instructions of a request with its system parts, each once, and the tools that it offers."""
    parts = dict[str, None]()
    for message in messages:
        parts |= dict.fromkeys(part.content for part in message.parts if isinstance(part, SystemPromptPart))
    given = [message.instructions for message in messages if isinstance(message, ModelRequest) and message.instructions]
    offered = [] if parameters is None else [*parameters.function_tools, *parameters.output_tools]
    tools = [
        {"name": tool.name, "description": tool.description or "", "parameters": tool.parameters_json_schema}
        for tool in offered
    ]
    return texts_of_request("\n".join([*parts, *given[-1:]]), tools)


def difference(recorded: RequestOutline, now: RequestOutline) -> str:
    """Return how the messages or tools of two requests differ: the first differing line of both; '' if they are equal.

    Instructions, system parts and settings may differ, because the recorded answer was paid for.
    """
    if recorded.tools != now.tools:
        names = [name for name in {**recorded.tools, **now.tools} if recorded.tools.get(name) != now.tools.get(name)]
        name = min(names)
        was = "had other parameters" if name in recorded.tools else "was not offered"
        became = "is offered" if name in now.tools else "is not offered"
        return f"the tool {name} {was} when the answer was recorded, and {became} now"
    if recorded.messages == now.messages:
        return ""
    if len(recorded.messages) != len(now.messages):
        return f"the recorded request has {len(recorded.messages)} messages, and this one has {len(now.messages)}"
    first = next(n for n, (a, b) in enumerate(zip(recorded.messages, now.messages, strict=True)) if a != b)
    if first < len(now.messages) - 1:
        return f"message {first + 1} of {len(now.messages)} is another one than in the recorded request"
    return _both("the last message differs", recorded.last, now.last)


def other_instructions(recorded: RequestOutline, now: RequestOutline) -> str:
    """Return how instructions, system parts or settings of two requests differ; '' if they are equal."""
    if recorded.about != now.about:
        return _both("the instructions differ", recorded.about, now.about)
    return "the settings of the model differ" if recorded.settings != now.settings else ""


def recorded_outline(payload: object) -> RequestOutline | None:
    """Return the outline that is stored with an answer; None if an earlier version recorded it without one."""
    found = payload.get(OUTLINE) if isinstance(payload, Mapping) else None
    try:
        return RequestOutline.model_validate(found) if found is not None else None
    except ValidationError:  # of a later version
        return None


# --- answers ------------------------------------------------------------------------------------------
def storable(response: ModelResponse) -> ModelResponse:
    """Return an answer with numbers that JSON has: NaN in arguments stays in their text, and was null in JSON."""
    parts = [
        replace(part, args=json.dumps(part.args))
        if isinstance(part, ToolCallPart) and isinstance(part.args, dict) and not _is_finite(part.args)
        else part
        for part in response.parts
    ]
    return replace(response, parts=parts)


def with_outline(payload: dict[str, Any], outline: RequestOutline | None) -> dict[str, Any]:
    """Return an answer as it is recorded: with its outline, as valid Unicode, and cut if it is too large.

    An answer that is cut has none of its calls, and the finish reason `length`.
    """
    kept: dict[str, Any] = {**payload, OUTLINE: outline.model_dump()} if outline is not None else payload
    text = json.dumps(kept, ensure_ascii=False, separators=(",", ":"))
    if not _is_unicode(text):
        kept = cast(dict[str, Any], _unicode(kept))
    size = len(text.encode(errors="surrogatepass"))
    return kept if size <= RESPONSE_BYTES_MAX else _cut(kept, size)


def _cut(payload: dict[str, Any], size: int) -> dict[str, Any]:
    """Return an answer of `size` bytes with the beginning of its texts."""
    chars_left, parts = _TEXT_MAX, list[dict[str, Any]]()
    for part in payload["parts"]:
        if part["part_kind"] == "text" and chars_left > 0:
            parts.append({"part_kind": "text", "content": part["content"][:chars_left]})
            chars_left -= len(parts[-1]["content"])
    why = f"the answer has {size:,} bytes, and {RESPONSE_BYTES_MAX:,} can be stored"
    small: dict[str, Any] = {name: payload[name] for name in _KEPT if name in payload}
    return {**small, "parts": parts, "finish_reason": "length", "provider_details": {"outlast": why}}


Fault = Literal["", "cut", "declined", "empty"]
"""Reason for which an answer is no result."""


class AnswerRefused(ContentFilterError, Fail):
    """The model, or a filter of its provider, refused to answer: the run fails with its words."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class AnswerEmpty(UnexpectedModelBehavior, Fail):
    """The model gave an empty answer twice: the run fails."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def fault_of(response: ModelResponse) -> Fault:
    """Return the reason for which an answer is no result; '' if it is one, or a turn of the model."""
    if response.state == "suspended":
        return ""
    raw = (response.provider_details or {}).get("finish_reason")
    finish = finish_of(response.finish_reason or str(raw or ""))
    if finish in ("filtered", "refusal"):
        return "declined"
    silent = all(isinstance(part, TextPart | ThinkingPart) for part in response.parts)
    if finish == "cut" or (silent and response.finish_reason == "tool_call"):  # its calls are missing
        return "cut"
    saying = (part for part in response.parts if not isinstance(part, ThinkingPart))
    return "" if any(not isinstance(part, TextPart) or not is_blank(part.content) for part in saying) else "empty"


def judge_answer(response: ModelResponse, faults: Sequence[Fault]) -> ModelRetry | Exception | None:
    """Return the exception that follows an answer: a request to the model to answer again, an end, or None.

    `faults`: those of the answers of the agent run so far, without this one. A cut or empty answer is asked for once
    more. Another cut one needs a person, another empty one and a refusal fail the run.
    """
    fault, again = fault_of(response), bool(faults) and faults[-1] == fault_of(response)
    details = response.provider_details or {}
    if fault == "declined":
        words = details.get("refusal") or text_of(response) or details.get("finish_reason") or "it gave no reason"
        return AnswerRefused(f"the model did not answer, or its answer was filtered: {words}"[:TEXT_CHARS_MAX])
    if fault == "cut" and again:
        head = text_of(response)[:HEAD_CHARS]
        return OutputTokenLimitExceeded(f"the answer of the model was cut twice. It begins: {head}")
    if fault == "cut":
        why = f": {details['outlast']}" if "outlast" in details else ""
        return ModelRetry(f"your answer was cut{why}. None of its calls was made. Answer again, and shorter.")
    if fault == "empty" and again:
        return AnswerEmpty("the model gave an empty answer twice")
    blank = fault == "empty" and any(isinstance(part, TextPart) and part.content for part in response.parts)
    return ModelRetry("your answer was empty. Answer again.") if blank else None  # pydantic-ai asks again of others


def used_part(response: ModelResponse) -> ModelResponse:
    """Return an answer without its calls if it was cut: the history must have no call that gets no answer."""
    if fault_of(response) != "cut":
        return response
    return replace(response, parts=[part for part in response.parts if not isinstance(part, ToolCallPart)])


def text_of(response: ModelResponse) -> str:
    """Return the text of an answer."""
    return "".join(part.content for part in response.parts if isinstance(part, TextPart))


# --- plain data ------------------------------------------------------------------------------------------
def _lasting(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _lasting(each) for name, each in value.items() if name not in LEFT_OUT}
    return [_lasting(each) for each in value] if isinstance(value, list) else value


def _digest(value: Any, chars: int) -> str:
    return sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:chars]


def _shape(schema: Any) -> Any:
    """Return a schema without the texts for the model."""
    if isinstance(schema, dict):
        return {
            name: _shape(each) for name, each in schema.items() if not (name == "description" and isinstance(each, str))
        }
    return [_shape(each) for each in schema] if isinstance(schema, list) else schema


def _lines(message: Mapping[str, Any]) -> Iterator[str]:
    for part in message.get("parts", []):
        content = part.get("content", part.get("args"))
        text = content if isinstance(content, str) else json.dumps(content)
        name = f" {part['tool_name']}" if part.get("tool_name") else ""
        yield f"{part.get('part_kind')}{name}: {text}"


def _head(text: str) -> str:
    return text.encode(errors="replace").decode()[:TEXT_CHARS]


def _both(what: str, recorded: str, now: str) -> str:
    """Return the first line in which two texts differ, of both, after the sentence `what`."""
    if recorded == now:
        return f"{what} after the first {TEXT_CHARS:,} characters"
    old, new = recorded.splitlines(), now.splitlines()
    n = next((n for n, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    a, b = (lines[n] if n < len(lines) else "" for lines in (old, new))
    same = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    start = max(0, same - SHOWN_CHARS // 2)
    shown = (
        ("…" if start else "") + a[start : start + SHOWN_CHARS],
        ("…" if start else "") + b[start : start + SHOWN_CHARS],
    )
    return f"{what} in line {n + 1}: recorded «{shown[0]}», now «{shown[1]}»"


def _is_finite(value: JsonValue | object) -> bool:
    if isinstance(value, float):
        return value - value == 0
    if isinstance(value, dict):
        return all(_is_finite(each) for each in value.values())
    return all(_is_finite(each) for each in value) if isinstance(value, list) else True


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _unicode(value: Any) -> Any:
    """Return plain data with a replacement character in place of each part of text that is not Unicode."""
    if isinstance(value, str):
        return value if _is_unicode(value) else value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {_unicode(name): _unicode(each) for name, each in value.items()}
    return [_unicode(each) for each in value] if isinstance(value, list) else value
