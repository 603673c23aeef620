"""A model behind an OpenAI-compatible address (`/chat/completions`), without an SDK."""

import json
from collections.abc import AsyncIterator
from typing import Any, Final

from httpx2 import USE_CLIENT_DEFAULT, Timeout

from outlast.agent.model import Message, ModelAnswer, ModelRequest, OfferedTool, ToolCall, is_json, storable
from outlast.flow.outcomes import Perhaps
from outlast.http import AsyncClient, checked

TIMEOUT_S: Final = 600.0
CONNECT_S: Final = 10.0


class ChatCompletions:
    """A model at an OpenAI-compatible address. It sends each request once; the engine retries.

    - `name`: the name with which policies and the history know the model. The part after the colon is sent.
    - `url`: the address of the API, without `/chat/completions`.
    - `key`: the credential, sent as bearer token.
    - `timeout_s`: seconds without a byte of the answer. After it, the request may have been paid.
    """

    def __init__(self, name: str, *, url: str, key: str = "", timeout_s: float = TIMEOUT_S) -> None:
        self.name: Final = name
        self._url: Final = f"{url.rstrip('/')}/chat/completions"
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._http = AsyncClient(headers=headers, timeout=Timeout(timeout_s, connect=CONNECT_S))

    async def request(self, request: ModelRequest) -> ModelAnswer:
        """Return the answer to a `request`. Raises httpx2.HTTPError, Perhaps if the answer cannot be read."""
        response = checked(await self._http.post(self._url, json=self._body(request)))
        try:
            body = json.loads(response.content)
            message, usage = body["choices"][0]["message"], body.get("usage") or {}
            calls = [
                (c["id"], c["function"]["name"], c["function"]["arguments"]) for c in message.get("tool_calls") or ()
            ]
            return _answer(message.get("content") or "", calls, str(body.get("model") or ""), usage)
        except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
            raise Perhaps(f"the answer of {self.name} cannot be read: {error!r}") from error

    async def stream(self, request: ModelRequest) -> AsyncIterator[str | ModelAnswer]:
        """Yield the words of the answer as they come, then the answer. Raises as `request`."""
        body = {**self._body(request), "stream": True, "stream_options": {"include_usage": True}}
        text: list[str] = []
        calls: dict[int, list[str]] = {}
        usage: dict[str, Any] = {}
        model, ended = "", False
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
                model, usage = chunk.get("model") or model, chunk.get("usage") or usage
                for choice in chunk.get("choices") or ():
                    delta = choice.get("delta") or {}
                    if words := delta.get("content"):
                        text.append(words)
                        yield storable(words)
                    _add_calls(calls, delta.get("tool_calls") or ())
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Perhaps(f"the answer of {self.name} cannot be read: {error!r}") from error
        finally:
            await response.aclose()
        if not ended:
            raise Perhaps(f"the answer of {self.name} was cut off after {len(''.join(text))} characters")
        yield _answer("".join(text), [(i, tool, said) for i, tool, said in calls.values()], model, usage)

    def _body(self, request: ModelRequest) -> dict[str, Any]:
        messages = [{"role": "system", "content": request.instructions}] if request.instructions else []
        body: dict[str, Any] = {
            **request.settings,
            "model": self.name.partition(":")[2] or self.name,
            "messages": [*messages, *(_message(each) for each in request.messages)],
        }
        if request.tools:
            body["tools"] = [_tool(each) for each in request.tools]
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


def _add_calls(calls: dict[int, list[str]], parts: Any) -> None:
    """Add the parts of calls that one chunk of a stream holds."""
    for part in parts:
        known = calls.setdefault(int(part.get("index") or 0), ["", "", ""])
        function = part.get("function") or {}
        known[0] = part.get("id") or known[0]
        known[1] = function.get("name") or known[1]
        known[2] += function.get("arguments") or ""


def _answer(text: str, calls: list[tuple[str, str, str]], model: str, usage: dict[str, Any]) -> ModelAnswer:
    return ModelAnswer(
        text=text,
        calls=tuple(ToolCall(id=i, tool=tool, arguments=parsed(said)) for i, tool, said in calls),
        model=model,
        input_tokens=int(usage.get("prompt_tokens") or 0),
        output_tokens=int(usage.get("completion_tokens") or 0),
    )


def parsed(said: str) -> dict[str, Any] | str:
    """Return the arguments of a call as an object, or the text itself if it is not an object."""
    try:
        found = json.loads(said or "{}")
    except (ValueError, RecursionError):
        return said
    return found if isinstance(found, dict) and is_json(found) else said
