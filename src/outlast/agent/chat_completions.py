"""A model behind an OpenAI-compatible address (`/chat/completions`), without an SDK."""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from httpx2 import USE_CLIENT_DEFAULT, Timeout

from outlast.agent.model import (
    WAYS,
    Message,
    ModelAnswer,
    ModelRequest,
    OfferedTool,
    ResultBy,
    ToolCall,
    is_json,
    storable,
    usage_of,
)
from outlast.agent.prices import Price, has_price
from outlast.core.argument_checks import Arguments
from outlast.core.model_ends import finish_of
from outlast.flow.outcomes import Perhaps
from outlast.http import AsyncClient, checked

TIMEOUT_S: Final = 600.0
TIMEOUT_S_MAX: Final = 86_400.0
CONNECT_S: Final = 10.0
SHOWN_CHARS: Final = 200
CALLING: Final = ("tool_calls", "function_call")
"""Reasons of an answer that ends with calls."""


class ChatCompletions:
    """A model at an OpenAI-compatible address. It sends each request once; the engine retries.

    - `name`: the name with which policies and the history know the model. The part after the colon is sent.
    - `url`: the address of the API, without `/chat/completions`.
    - `key`: the credential, sent as bearer token.
    - `timeout_s`: seconds without a byte of the answer. After it, the request may have been paid.
    - `price`: the price of its tokens (default: the list price of a model of this name).
    - `result_by`: how a request tells it the type of a result: as the "tool" `final_result`, as a JSON schema in
      "response_format", or in the "prompt".
    """

    def __init__(
        self,
        name: str,
        *,
        url: str,
        key: str = "",
        timeout_s: float = TIMEOUT_S,
        price: Price | None = None,
        result_by: ResultBy = "tool",
    ) -> None:
        check = Arguments("ChatCompletions", of_call=True)
        check.text("name", name, 'ChatCompletions("openai:gpt-5", url="https://…")')
        check.text("url", url, 'url="http://127.0.0.1:8000/v1"')
        if not url.startswith(("http://", "https://")):
            raise check.wrong("url", url, "it is an address", 'url="http://127.0.0.1:8000/v1"')
        check.is_text("key", key, 'key="sk-…"')
        check.amount("timeout_s", timeout_s, 0.001, TIMEOUT_S_MAX)
        check.instance("price", price, Price, "price=Price(1.25, 10)")
        check.one_of("result_by", result_by, WAYS)
        self.name: Final = name
        self.price: Final = price
        self.result_by: Final = result_by
        self._url: Final = f"{url.rstrip('/')}/chat/completions"
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._http = AsyncClient(headers=headers, timeout=Timeout(timeout_s, connect=CONNECT_S))

    @property
    def has_price(self) -> bool:
        """True if the price of a request is known."""
        return has_price(self)

    async def request(self, request: ModelRequest) -> ModelAnswer:
        """Return the answer to a `request`. Raises httpx2.HTTPError, Perhaps if the answer cannot be read."""
        response = checked(await self._http.post(self._url, json=self._body(request)))
        try:
            body = json.loads(response.content)
            choice = body["choices"][0]
            message = choice.get("message") or {}
            calls: dict[int, list[str]] = {}
            _add_calls(calls, [{"index": n, **each} for n, each in enumerate(_objects(message.get("tool_calls")))])
            lost = _has_lost(message.get("tool_calls"))
            end = _End(str(choice.get("finish_reason") or ""), _refusal(message), lost)
            return _answer(_text(message.get("content")), calls, str(body.get("model") or ""), body.get("usage"), end)
        except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
            head = response.text[:SHOWN_CHARS]
            raise Perhaps(f"the answer of {self.name} cannot be read: {error!r}; it begins with: {head}") from error

    async def stream(self, request: ModelRequest) -> AsyncIterator[str | ModelAnswer]:
        """Yield the words of the answer as they come, then the answer. Raises as `request`."""
        body = {**self._body(request), "stream": True, "stream_options": {"include_usage": True}}
        text: list[str] = []
        calls: dict[int, list[str]] = {}
        usage: Any = None
        model, ended, end = "", False, _End()
        sent = self._http.build_request("POST", self._url, json=body)
        response = await self._http.send(sent, stream=True, auth=USE_CLIENT_DEFAULT)
        try:
            if not response.is_success:
                await response.aread()
            checked(response)
            async for line in response.aiter_lines():
                data = line.removeprefix("data:").strip()
                if not line.startswith("data:") or not data:
                    continue
                if data == "[DONE]":
                    ended = True
                    break
                chunk = json.loads(data)
                if error := chunk.get("error"):
                    raise Perhaps(f"the stream of {self.name} ended with an error: {str(error)[:SHOWN_CHARS]}")
                model, usage = chunk.get("model") or model, chunk.get("usage") or usage
                for choice in chunk.get("choices") or ():
                    delta = choice.get("delta") or {}
                    if words := _text(delta.get("content")):
                        text.append(words)
                        yield storable(words)
                    reason = choice.get("finish_reason") or end.reason
                    lost = end.lost or _has_lost(delta.get("tool_calls"))
                    end = _End(str(reason), end.refusal + _refusal(delta), lost)
                    _add_calls(calls, _objects(delta.get("tool_calls")))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Perhaps(f"the answer of {self.name} cannot be read: {error!r}") from error
        finally:
            await response.aclose()
        if not ended or not (end.reason or usage):  # a whole stream has one of the two
            raise Perhaps(f"the answer of {self.name} was cut off after {len(''.join(text))} characters")
        yield _answer("".join(text), calls, str(model), usage, end)

    def _body(self, request: ModelRequest) -> dict[str, Any]:
        messages = [{"role": "system", "content": request.instructions}] if request.instructions else []
        body: dict[str, Any] = {
            **request.settings,
            "model": self.name.partition(":")[2] or self.name,
            "messages": [*messages, *(_message(each) for each in request.messages)],
        }
        if request.tools:
            body["tools"] = [_tool(each) for each in request.tools]
        if request.result is not None and request.result.by == "response_format":
            schema = {"name": request.result.name, "schema": request.result.json_schema}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        return body


def _message(message: Message) -> dict[str, Any]:
    if message.role == "tool":
        return {"role": "tool", "tool_call_id": message.call_id, "content": message.text}
    if not message.calls:
        return {"role": message.role, "content": message.text}
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.tool, "arguments": _arguments(call)}}
        for call in message.calls
    ]
    return {"role": message.role, "content": message.text or None, "tool_calls": calls}


def _arguments(call: ToolCall) -> str:
    return call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments, ensure_ascii=False)


def _tool(tool: OfferedTool) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}


def _text(content: Any) -> str:
    """Return the text of a message: text, or a list of parts with texts."""
    if isinstance(content, list):
        return "".join(_text(part.get("text")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def _refusal(message: Mapping[str, Any]) -> str:
    """Return the words of a refusal: those of the field for it, or of a part of the content."""
    parts = _objects(message.get("content"))
    return _text(message.get("refusal")) or "".join(_text(part.get("refusal")) for part in parts)


def _objects(parts: Any) -> list[dict[str, Any]]:
    """Return the objects of a list; others, and a value that is no list, are left out."""
    return [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []


def _has_lost(parts: Any) -> bool:
    """Return True if a value that should list objects is something else, or lists something else."""
    return bool(parts) and (not isinstance(parts, list) or len(_objects(parts)) < len(parts))


def _add_calls(calls: dict[int, list[str]], parts: Any) -> None:
    """Add the parts of calls that one chunk of a stream, or one answer, holds. Unreadable parts are left out."""
    for part in parts:
        known = calls.setdefault(int(part.get("index") or 0), ["", "", ""])
        function = part.get("function") or {}
        known[0] = str(part.get("id") or known[0])
        known[1] = str(function.get("name") or known[1])
        arguments = function.get("arguments") or ""
        known[2] += arguments if isinstance(arguments, str) else json.dumps(arguments)


class _End(NamedTuple):
    """Why a provider ended an answer, in its own words. `lost`: it has calls that cannot be read."""

    reason: str = ""
    refusal: str = ""
    lost: bool = False


def _answer(text: str, calls: Mapping[int, Sequence[str]], model: str, usage: Any, end: _End) -> ModelAnswer:
    given, made, note = usage_of(usage)
    finish = "refusal" if end.refusal else finish_of(end.reason)
    missing = end.lost or (end.reason in CALLING and not calls)
    if finish == "stop" and missing:
        finish = "cut"
    return ModelAnswer(
        text=text,
        calls=tuple(
            ToolCall(id=i or f"call-{n}", tool=tool, arguments=parsed(arguments))
            for n, (i, tool, arguments) in calls.items()
        ),
        model=model,
        input_tokens=given,
        output_tokens=made,
        finish=finish,
        finish_detail=end.refusal or ("its calls are missing" if missing else end.reason if finish != "stop" else ""),
        note=note,
    )


def parsed(arguments: str) -> dict[str, Any] | str:
    """Return the arguments of a call as an object, or the text itself if it is not an object."""
    try:
        found = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        return arguments
    return found if isinstance(found, dict) and is_json(found) else arguments
