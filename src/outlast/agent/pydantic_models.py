"""The models of pydantic-ai behind the port of models."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, Final, cast

from outlast.agent.chat_completions import parsed
from outlast.agent.model import FINAL, Message, ModelAnswer, ModelRequest, OfferedTool, ResultBy, ToolCall, usage_of
from outlast.agent.prices import Price, has_price
from outlast.core.model_ends import finish_of
from outlast.errors import InvalidInput, to_install
from outlast.flow.calls import call_under_way

try:
    from pydantic_ai import messages as parts
    from pydantic_ai.direct import model_request, model_request_stream
    from pydantic_ai.exceptions import UserError
    from pydantic_ai.models import ModelRequestParameters, infer_model
    from pydantic_ai.output import OutputObjectDefinition
    from pydantic_ai.settings import ModelSettings
    from pydantic_ai.tools import ToolDefinition
except ModuleNotFoundError as error:
    raise InvalidInput(
        "a model by name needs pydantic-ai",
        f"{error.name} is not installed",
        f"{to_install('pydantic-ai')}, or set OUTLAST_MODEL_URL to an OpenAI-compatible address",
    ) from error


class PydanticModel:
    """A model of pydantic-ai, by its `name` there: "openai:gpt-5", "anthropic:claude-sonnet-4-5".

    `price`: the price of its tokens (default: the list price of pydantic-ai). `result_by`: how a request tells it the
    type of a result; "tool" and "response_format" are the tool output and the native output of pydantic-ai.
    """

    price: Price | None = None
    result_by: ResultBy = "tool"

    def __init__(self, name: str, *, price: Price | None = None, result_by: ResultBy = "tool") -> None:
        """Raises InvalidInput if pydantic-ai has no such model, or its provider misses a package or a credential."""
        self.name: Final = name
        self.price = price
        self.result_by = result_by
        try:
            self._model: Final = infer_model(name)
        except (UserError, ValueError, ImportError) as error:
            raise InvalidInput(f"the model {name} cannot be used", str(error)) from error

    @property
    def has_price(self) -> bool:
        """True if the price of a request is known."""
        return has_price(self)

    async def request(self, request: ModelRequest) -> ModelAnswer:
        """Return the answer to a `request`. Raises the errors of the provider's client."""
        response = await model_request(
            self._model,
            _history(request),
            model_settings=self._settings(request),
            model_request_parameters=_parameters(request),
        )
        return _answer(response, lists_price=self.price is None)

    async def stream(self, request: ModelRequest) -> AsyncIterator[str | ModelAnswer]:
        """Yield the words of the answer as they come, then the answer. Raises as `request`."""
        opened = model_request_stream(
            self._model,
            _history(request),
            model_settings=self._settings(request),
            model_request_parameters=_parameters(request),
        )
        async with opened as events:
            async for event in events:
                if isinstance(event, parts.PartStartEvent) and isinstance(event.part, parts.TextPart):
                    yield event.part.content
                elif isinstance(event, parts.PartDeltaEvent) and isinstance(event.delta, parts.TextPartDelta):
                    yield event.delta.content_delta
            yield _answer(events.get(), lists_price=self.price is None)

    def _settings(self, request: ModelRequest) -> ModelSettings:
        """Return the settings of a request. The client of the provider does not retry, because the engine does."""
        own: dict[str, Any] = {} if "max_retries" in self._model.unsupported_settings else {"max_retries": 0}
        call = call_under_way()
        if call is not None and "extra_headers" not in self._model.unsupported_settings:
            own["extra_headers"] = {"Idempotency-Key": call.idempotency_key}
        return cast(ModelSettings, {**own, **request.settings})


def _parameters(request: ModelRequest) -> ModelRequestParameters:
    """Return tools and output as pydantic-ai has them.

    Text stays allowed beside an output tool, because a provider that thinks refuses a call that it must make. The text
    is read as well.
    """
    result = request.result
    output = FINAL if result is not None and result.by == "tool" else ""
    tools = [_definition(tool) for tool in request.tools if tool.name != output]
    if result is None or result.by == "prompt":
        return ModelRequestParameters(function_tools=tools)
    if output:
        found = [replace(_definition(tool), kind="output") for tool in request.tools if tool.name == output]
        return ModelRequestParameters(function_tools=tools, output_mode="tool", output_tools=found)
    native = OutputObjectDefinition(json_schema=dict(result.json_schema), name=result.name)
    return ModelRequestParameters(function_tools=tools, output_mode="native", output_object=native)


def _definition(tool: OfferedTool) -> ToolDefinition:
    return ToolDefinition(name=tool.name, description=tool.description, parameters_json_schema=dict(tool.parameters))


def _history(request: ModelRequest) -> list[parts.ModelMessage]:
    found = [_message(each) for each in request.messages]
    if request.instructions:
        system = parts.ModelRequest(parts=[parts.SystemPromptPart(request.instructions)])
        return [system, *found]
    return found


def _message(message: Message) -> parts.ModelMessage:
    if message.role == "user":
        return parts.ModelRequest(parts=[parts.UserPromptPart(message.text)])
    if message.role == "tool":
        returned = parts.ToolReturnPart(message.tool, message.text, tool_call_id=message.call_id)
        return parts.ModelRequest(parts=[returned])
    texts: list[Any] = [parts.TextPart(message.text)] if message.text else []
    calls = [parts.ToolCallPart(call.tool, call.arguments, tool_call_id=call.id) for call in message.calls]
    return parts.ModelResponse(parts=[*texts, *calls])


def _answer(response: parts.ModelResponse, *, lists_price: bool) -> ModelAnswer:
    details = response.provider_details or {}
    refusal = str(details.get("refusal") or "")
    reason = response.finish_reason or str(details.get("finish_reason") or "")
    detail = refusal or str(details.get("finish_reason") or details.get("block_reason") or reason)
    tokens = {"prompt_tokens": response.usage.input_tokens, "completion_tokens": response.usage.output_tokens}
    given, made, note = usage_of(tokens)
    calls = [part for part in response.parts if isinstance(part, parts.ToolCallPart)]
    finish = "refusal" if refusal else finish_of(reason)
    if finish == "stop" and not calls and reason == "tool_call":
        finish = "cut"  # its calls are missing
    return ModelAnswer(
        text="".join(part.content for part in response.parts if isinstance(part, parts.TextPart)),
        calls=tuple(ToolCall(id=c.tool_call_id, tool=c.tool_name, arguments=_arguments(c)) for c in calls),
        model=response.model_name or "",
        input_tokens=given,
        output_tokens=made,
        money=_cost(response) if lists_price and not note else None,
        finish=finish,
        finish_detail=detail if finish != "stop" else "",
        note=note,
    )


def _cost(response: parts.ModelResponse) -> float | None:
    """Return the list price of an answer, cached tokens included; None if it is not known."""
    try:
        return float(response.cost().total_price) if response.model_name else None
    except (LookupError, ValueError):  # the price of the model, or what was used, is not known
        return None


def _arguments(call: parts.ToolCallPart) -> dict[str, Any] | str:
    return parsed(call.args if isinstance(call.args, str) else json.dumps(call.args or {}))
