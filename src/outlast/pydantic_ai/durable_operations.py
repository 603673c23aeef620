"""Durable operations of an agent as calls of the node that runs it."""

import json
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from hashlib import sha256
from typing import Any, Final, Generic, Literal, Protocol, TypeVar, cast
from urllib.parse import quote

from pydantic import JsonValue
from pydantic_ai import FunctionToolset, RunContext
from pydantic_ai.agent import EventStreamHandler
from pydantic_ai.durable_exec import (
    JSON_CODEC,
    BoundDurableOperation,
    DurabilityEngineSpec,
    DurableOperation,
    DurableOperationBackend,
    DynamicToolsetCallToolParams,
    EventStreamHandlerId,
    ModelCancelSuspendedResponseId,
    ModelCompactMessagesId,
    ModelCompactMessagesParams,
    ModelRequestId,
    ModelRequestParams,
    ParameterTransports,
    ToolsetCallToolId,
    ToolsetCallToolParams,
    ToolsetGetInstructionsId,
    ToolsetGetToolsId,
    ToolsetValidateToolArgumentsId,
    durable_unit_scope,
    record_durable_unit,
    revalidate_function_call,
)
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import (
    AgentStreamEvent,
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
)
from pydantic_ai.settings import ModelSettings
from pydantic_core import from_json
from typing_extensions import override

from outlast.core.codec import compact, is_json, plain_json
from outlast.core.effect_steps import EXHAUSTED
from outlast.core.limits import TEXT_CHARS_MAX
from outlast.core.usage import ModelText
from outlast.engine.call_outcome import is_transient
from outlast.errors import (
    AnswerNotStored,
    DefinitionError,
    InvalidInput,
    LimitExceeded,
    Misplaced,
    NotStorable,
    OutlastError,
)
from outlast.flow.activity import Activity
from outlast.flow.calls import Plan, RecordedCall, model_request, this_call, tool_call
from outlast.flow.context import Context, current_context
from outlast.flow.outcomes import Cancel, Declared, Fail, Perhaps, Refused
from outlast.pydantic_ai.node_frame import NodeFrame
from outlast.pydantic_ai.recorded_requests import (
    DIGEST_CHARS,
    OUTLINE,
    RequestOutline,
    difference,
    digest_of,
    fault_of,
    other_instructions,
    outline_of,
    recorded_outline,
    request_digest,
    storable,
    texts_of,
    used_part,
    with_outline,
)
from outlast.pydantic_ai.recorded_results import RETURNED, stored
from outlast.pydantic_ai.tool_activities import Standing, ToolActivity
from outlast.telemetry.redact import redact_shown

ParamsT = TypeVar("ParamsT")
WireT = TypeVar("WireT")
ResultT = TypeVar("ResultT")

"""Of one answer; a larger number is a fault of the provider."""
PREPARED_CHARS: Final = 200
"""Of the name of a call that changes nothing, in its key."""

ENGINE: Final = DurabilityEngineSpec(
    engine_name="Outlast",
    durable_unit_noun="call",
    durable_container_noun="node",
    codec=JSON_CODEC,
    unsupported_runtime_toolset_kinds=frozenset({"function", "mcp", "dynamic"}),
    toolset_lifecycles={"function": "enter-always", "mcp": "enter-in-durable-unit", "dynamic": "enter-never"},
)


@dataclass
class Unit:
    """A durable unit under way: the context of its agent run, the function that makes it, and whether it was made."""

    context: RunContext[Any] | None
    body: Callable[[], Awaitable[JsonValue]] | None = None
    call_id: str = ""
    outline: RequestOutline | None = None
    """Parts of a request to a model; None of other operations."""
    texts: Callable[[], tuple[ModelText, ModelText]] | None = None
    """Return the instructions and tools of a request to a model."""
    former_digest: Callable[[], str] | None = None
    """Digest of the call that an earlier version recorded, which compared the messages only."""
    made: bool = False


current_unit: Final[ContextVar[Unit | None]] = ContextVar("outlast_pydantic_ai_unit", default=None)
"""Set around the call of a durable unit, and so in the task of its activity."""


def differs_from_recorded(digest: str, response: bytes) -> str | None:
    """Return how the request under way differs from the one with a recorded answer; None if the answer is usable."""
    unit, recorded = current_unit.get(), recorded_outline(from_json(response))
    if unit is None or unit.outline is None or unit.former_digest is None:
        return ""
    if recorded is None:
        return None if unit.former_digest() == digest else ""
    return difference(recorded, unit.outline) or None


def streaming(handler: EventStreamHandler[Any] | None) -> EventStreamHandler[Any]:
    """Return a handler that streams the texts of a model to the listeners of the run, and calls `handler`."""

    async def handle(context: RunContext[Any], events: AsyncIterable[AgentStreamEvent]) -> None:
        streamed = _streamed(events)
        if handler is not None:
            await handler(context, streamed)
        async for _ in streamed:
            pass

    return handle


async def _streamed(events: AsyncIterable[AgentStreamEvent]) -> AsyncIterator[AgentStreamEvent]:
    async for event in events:
        if current_unit.get() is not None:  # in a node
            match event:
                case (
                    PartStartEvent(part=TextPart(content=text))
                    | PartDeltaEvent(delta=TextPartDelta(content_delta=text))
                ):
                    this_call().stream(text)
        yield event


async def ask_model(agent: str, run: str, n: int, request: str) -> JsonValue:
    """Request an answer of a model: the body of the lookup of each request. `request` is a digest."""
    return await _make_unit()


async def prepare_unit(agent: str, run: str, n: int, what: str, request: str) -> JsonValue:
    """Make a unit that is not paid: the body of its lookup. `request` is a digest."""
    return await _make_unit()


async def _make_unit() -> JsonValue:
    unit = current_unit.get()
    assert unit is not None and unit.body is not None, "only a bound operation asks for it"
    unit.made = True
    return await unit.body()


class Transports(ParameterTransports):
    """Rebuilds the values of a tool call from its stored arguments, so that a call needs no live agent run."""

    @override
    async def prepare_function_call(
        self, toolset: FunctionToolset[Any], params: ToolsetCallToolParams
    ) -> ToolsetCallToolParams:
        made = await revalidate_function_call(toolset, params, engine_spec=ENGINE)
        tool = made.tool
        assert tool is not None
        # the activity has the timeout: pydantic-ai would ask the model to try again what may have happened
        return replace(made, tool=replace(tool, tool_def=replace(tool.tool_def, timeout=None)))


class AgentCalls(Protocol):
    """The agent as its durable operations see it: names, activities and counters."""

    operations: dict[str, DurableOperation[Any, Any, Any]]
    ask: Activity[..., Any]
    prepare: Activity[..., Any]

    @property
    def name(self) -> str:
        """Name of the agent in stored names and keys."""
        ...

    def frame(self) -> NodeFrame | None:
        """Return the counters of the executing node, or None outside of one."""
        ...

    def activity_of(self, toolset_id: str, tool_name: str) -> ToolActivity | None:
        """Return the activity of a tool, or None if the tool runs in the node itself. Raises DefinitionError."""
        ...

    def plan_of(self, found: ToolActivity, tool: str, call_id: str, arguments: dict[str, Any]) -> Plan[Any] | str:
        """Return the plan of the next call of a tool under this id, or why the call can have none."""
        ...

    async def standing(self, found: ToolActivity, plan: Plan[Any], first: str) -> Standing:
        """Return the standing of a proposed call. `first`: digest of the first call under its key."""
        ...


class Backend(DurableOperationBackend[Any]):
    """Binds the durable operations of one agent to calls of the executing node."""

    parameter_transports = Transports()

    def __init__(self, durability: AgentCalls) -> None:
        self._durability = durability

    @override
    def bind(
        self, operation: DurableOperation[ParamsT, WireT, ResultT]
    ) -> BoundDurableOperation[ParamsT, WireT, ResultT]:
        if isinstance(operation.operation_id, ToolsetCallToolId):
            self._durability.operations[operation.operation_id.toolset_id] = operation
        return BoundOperation(self._durability, operation)

    @override
    def config_for_tool(
        self, operation: DurableOperation[ParamsT, WireT, ResultT], *, tool: object | None, tool_name: str
    ) -> Any | Literal[False]:
        toolset_id = getattr(operation.operation_id, "toolset_id", "")
        return False if self._durability.activity_of(toolset_id, tool_name) is None else {}

    @override
    def registrations(self) -> Sequence[Callable[..., object]]:
        return ()


class BoundOperation(BoundDurableOperation[ParamsT, WireT, ResultT], Generic[ParamsT, WireT, ResultT]):
    """A durable operation: a call of the executing node."""

    def __init__(self, durability: AgentCalls, operation: DurableOperation[ParamsT, WireT, ResultT]) -> None:
        self._durability = durability
        self._operation = operation

    @property
    @override
    def operation(self) -> DurableOperation[ParamsT, WireT, ResultT]:
        return self._operation

    @override
    async def __call__(self, params: ParamsT, *, config: object | None = None) -> ResultT:
        match self._operation.operation_id:
            case ModelRequestId() | ModelCompactMessagesId():
                payload = await self._ask(cast(Any, params))
            case ToolsetCallToolId():
                payload = await self._call_tool(cast(Any, params))
            case (
                ToolsetGetToolsId()
                | ToolsetGetInstructionsId()
                | ToolsetValidateToolArgumentsId()
                | EventStreamHandlerId()
                | ModelCancelSuspendedResponseId()
            ):
                payload = await self._prepare(cast(Any, params))
            case other:
                raise UserError(
                    f"Outlast does not make {other!r} durable: the call of a capability or of a workspace could not be "
                    "settled without the agent run. Make it a tool, or an activity that the node calls with ctx.do."
                )
        result = self._operation.result_codec.load(payload)
        frame = self._durability.frame()
        if isinstance(result, ModelResponse) and isinstance(params, ModelRequestParams) and frame is not None:
            judged = (params.run_context.run_id or "") not in frame.unjudged
            return cast(ResultT, used_part(result)) if judged else result
        return result

    async def _body(self, params: ParamsT) -> JsonValue:
        made: Any = params
        if isinstance(params, ModelRequestParams):
            asked = params.run_context.model
            this_call().set_model(f"{asked.system}:{asked.model_name}")
            made = replace(params, model_settings=_settings(params))
        with durable_unit_scope():
            result: Any = await self._handled(made, params)
            payload: Any = self._operation.result_codec.dump(result)
            unit = current_unit.get()
            if isinstance(result, ModelResponse) and unit is not None:
                payload = with_outline(payload, unit.outline)
            return cast(JsonValue, payload)

    async def _handled(self, made: Any, params: ParamsT) -> Any:
        """Make the unit. A request to a model is recorded with its texts, its time and its end."""
        unit = current_unit.get()
        if unit is None or unit.texts is None:
            return await self._operation.handler(made)
        with model_request(this_call(), unit.texts()) as ends:
            result: Any = await self._operation.handler(made)
            if isinstance(result, ModelResponse):
                result = storable(result)
                if made is not params and cast(ModelRequestId, self._operation.operation_id).streaming:
                    check_whole(result)
                _report_usage(result)
                ends(fault_of(result))
        return result

    async def _ask(self, params: ModelRequestParams | ModelCompactMessagesParams) -> object:
        """Request an answer of a model: paid once, and stored before it is used.

        The recorded answer is used if only instructions, system parts or settings differ. The difference is logged.
        """
        durability = self._durability
        if isinstance(params, ModelRequestParams):
            messages, asked = params.messages, params.model_request_parameters
            settings = params.model_settings
        else:
            of = params.request_context
            messages, asked, settings = of.messages, of.model_request_parameters, of.model_settings
        run, n = self._next(params.run_context, "model")
        unit = Unit(params.run_context, partial(self._body, cast(ParamsT, params)))
        unit.outline = outline_of(messages, asked, settings)
        unit.texts = lambda: texts_of(messages, asked)
        known = digest_of(messages)
        unit.former_digest = lambda: durability.ask.bind((durability.name, run, n, known), {}).digest
        args = durability.name, run, n, request_digest(known, unit.outline)
        payload = await _perform(unit, lambda ctx: ctx.do(durability.ask, *args))
        recorded = recorded_outline(payload)
        frame, run_id = durability.frame(), params.run_context.run_id or ""
        assert frame is not None
        (frame.unjudged.add if recorded is None else frame.unjudged.discard)(run_id)
        if recorded is not None and not unit.made and (text := other_instructions(recorded, unit.outline)):
            self._log_difference(run, n, text)
        return {name: value for name, value in payload.items() if name != OUTLINE}

    def _log_difference(self, run: str, n: int, text: str) -> None:
        """Add to the history, once for an agent run of a visit, that a recorded answer was asked for in other words."""
        context = current_context()
        assert context is not None
        name = self._durability.name
        message = f"request {name}/{run}/{n} was answered before, and its recorded answer is used: {text}"
        with suppress(LimitExceeded, InvalidInput):  # the entries of a visit are limited
            context.log(key_part(f"instructions/{name}/{run}", PREPARED_CHARS), message[:TEXT_CHARS_MAX])

    async def _prepare(self, params: Any) -> object:
        """Make a call that changes nothing and is not paid: the list of tools, a validation, an event handler."""
        context = getattr(params, "ctx", None) or params.run_context
        what = type(self._operation.operation_id).__name__.removesuffix("Id")
        label = getattr(params, "name", "") + (getattr(context, "tool_call_id", None) or "")
        run, n = self._next(context, f"{what}/{label}")
        part = key_part(f"{what}/{label}", PREPARED_CHARS)
        given = getattr(params, "tool_args", "")
        text = str(given) if isinstance(given, str) or is_json(given) else compact(plain_json(given, by_alias=True))
        asked = sha256(json.dumps([label, text]).encode()).hexdigest()[:DIGEST_CHARS]
        prepare, name = self._durability.prepare, self._durability.name
        return await self._make(context, params, prepare, name, run, n, part, asked)

    def _next(self, context: RunContext[Any] | None, what: str) -> tuple[str, int]:
        frame = self._durability.frame()
        assert frame is not None
        run_id = (context.run_id if context is not None else None) or ""
        run = frame.run_names.get(run_id, run_id)
        frame.units[run, what] += 1
        return run, frame.units[run, what]

    async def _make(
        self, context: RunContext[Any] | None, params: ParamsT, call: Activity[..., Any], *args: Any
    ) -> object:
        return await _perform(Unit(context, partial(self._body, params)), lambda ctx: ctx.do(call, *args))

    async def _call_tool(self, params: ToolsetCallToolParams | DynamicToolsetCallToolParams) -> object:
        """Make a tool call: an effect, or a lookup, of the run."""
        durability, frame = self._durability, self._durability.frame()
        toolset_id = cast(ToolsetCallToolId, self._operation.operation_id).toolset_id
        found = durability.activity_of(toolset_id, params.name)
        assert found is not None and frame is not None
        call_id = params.ctx.tool_call_id or ""
        plan = durability.plan_of(found, params.name, call_id, params.tool_args)
        frame.calls[found.activity.name, call_id] += 1
        if isinstance(plan, str):
            return {"kind": FAILED, "message": plan}
        # exactly what a person approved, not what it looks like after another validation
        plan = frame.approved.pop((found.activity.name, call_id), plan)
        first = frame.keys.setdefault((plan.activity, plan.key), plan.digest) if found.keyed else plan.digest
        repeated = found.keyed and (plan.activity, plan.key) in frame.made
        frame.made.add((plan.activity, plan.key))
        standing = await durability.standing(found, plan, first)
        if standing.conflict:
            return {"kind": FAILED, "message": conflict_of(plan)}
        if standing.done is not None:
            return _done_before(plan, standing.done)
        reads = found.activity.kind == "lookup"
        return await self._make_call(Unit(params.ctx, call_id=call_id), plan, repeated=repeated, reads=reads)

    async def _make_call(self, unit: Unit, plan: Plan[Any], *, repeated: bool, reads: bool) -> object:
        """Make a call, or get its recorded answer, and return the result for the model.

        An error of a tool that only `reads` is an answer for the model, because nothing was changed.
        """
        context = current_context()
        assert context is not None
        try:
            payload = _payload(await _perform(unit, lambda ctx: ctx.do(plan, proposed=True)))
        except AnswerNotStored as error:
            payload = _not_stored(error)
        except Refused as refused:
            if refused.code == EXHAUSTED:
                raise
            return {"kind": FAILED, "message": f"{'error:' if refused.code in FAULTS else 'refused:'} {refused}"}
        except Exception as error:  # of the author's tool: an answer for the model if nothing was changed
            if not reads or isinstance(error, ENDS):
                raise
            return {"kind": FAILED, "message": f"error: no_answer: {_shown(error)}"}
        return _with_note(payload, already_done(plan, context.visit)) if repeated else payload


async def _perform(unit: Unit, make: Callable[[Context[Any]], Awaitable[Any]]) -> Any:
    context = current_context()
    assert context is not None
    token, called = current_unit.set(unit), tool_call.set(unit.call_id)
    try:
        answer = await make(context)
    finally:
        current_unit.reset(token)
        tool_call.reset(called)
    record_durable_unit(executed=unit.made)
    return answer


# --- stored answers --------------------------------------------------------------------------------
INVALID: Final = "validation_error"
FAILED: Final = "tool_failed"
CONTENT: Final = "tool_content_result"
TOO_LARGE, NOT_STORABLE, RAISED = "too_large", "not_storable", "raised"
ENDS: Final = (Fail, Cancel, UserError, DefinitionError, Misplaced)
"""Errors that end the run as the author says, or that the author has to mend."""
FAULTS: Final = frozenset({TOO_LARGE, NOT_STORABLE, RAISED})
"""Codes of tools that only read and gave no result."""


def refusal_text(code: str, error: Exception) -> str:
    """Return what the model reads about a call that was not made because of the values that it has."""
    text = f"{error.what}: {error.why}" if isinstance(error, OutlastError) else f"{type(error).__name__}: {error}"
    return f"refused: {code}: {text}".encode(errors="backslashreplace").decode()[:TEXT_CHARS_MAX]


def conflict_of(plan: Plan[Any]) -> str:
    """Return what the model reads about a call under a key that has another call."""
    why = f"{plan.activity} was called as {plan.key} with other arguments; a key is used once"
    return f"refused: conflict: {why}"


async def answer_of_lookup(call: Awaitable[object], codec: Any) -> JsonValue:
    """Return the recorded form of the result of a tool that only reads.

    Raises Refused for an error that another attempt would repeat, so that each execution of the visit gets the same
    one, and for a result that `codec` cannot store. Other errors are raised as they are.
    """
    try:
        payload = await call
        answer = stored(payload) if isinstance(payload, dict) and "kind" in payload else payload
        codec.dump(answer)
    except (Declared, *ENDS):
        raise
    except LimitExceeded as error:
        raise Refused(TOO_LARGE, f"{error.what}: {error.why}"[:TEXT_CHARS_MAX]) from error
    except NotStorable as error:
        raise Refused(NOT_STORABLE, _shown(error)) from error
    except Exception as error:  # of the author's tool, which may raise anything
        if is_transient(error):
            raise
        raise Refused(RAISED, f"{type(error).__name__}: {_shown(error)}"[:TEXT_CHARS_MAX]) from error
    return cast(JsonValue, answer)


def _shown(error: Exception) -> str:
    """Return the text of an error for the model: without secrets, valid Unicode and not too long."""
    text = f"{error.what}: {error.why}" if isinstance(error, OutlastError) else str(error)
    return redact_shown(text.encode(errors="backslashreplace").decode())[:TEXT_CHARS_MAX]


def already_done(plan: Plan[Any], visit: int) -> str:
    """Return the note for the model with the recorded answer of a call that was proposed again."""
    return f"{plan.activity} was already done as {plan.key} in step {visit}; it was not done again"


def _done_before(plan: Plan[Any], call: RecordedCall[Any]) -> object:
    """Return the result of a call that an earlier visit has made."""
    payload = _not_stored(call.unstored) if call.unstored is not None else _payload(call.response)
    return _with_note(payload, already_done(plan, call.made_in))


def _not_stored(error: AnswerNotStored) -> dict[str, Any]:
    """Return the result of a call that was done, and whose answer could not be stored."""
    content = {"answer": f"the call was done, and its answer is missing: {error.what}: {error.why}", "head": error.head}
    return {"kind": RETURNED, "result": content}


def _with_note(payload: Any, note: str) -> object:
    """Return a result with a note for the model; an answer that asks for another call stays as it is."""
    if payload.get("kind") not in (RETURNED, CONTENT):
        return payload
    result = payload["result"]
    if payload["kind"] == RETURNED and isinstance(result, dict) and result.get("kind") == "tool-return":
        value = {"note": note, "result": result.get("return_value")}
        return {"kind": RETURNED, "result": {**result, "return_value": value}}
    return {"kind": RETURNED, "result": {"note": note, "result": result}}


def key_part(text: str, length: int) -> str:
    """Return a text as part of a key that takes `length` characters: the text, or its hash if it does not fit there."""
    try:
        fits = len(quote(text, safe="")) <= length
    except UnicodeEncodeError:
        fits = False
    return text if fits else sha256(text.encode(errors="surrogatepass")).hexdigest()


def _payload(stored: Any) -> dict[str, Any]:
    """Return the result as pydantic-ai records it. A reconcile function or a person gives the plain result."""
    return stored if isinstance(stored, dict) and "kind" in stored else {"kind": RETURNED, "result": stored}


def _settings(params: ModelRequestParams) -> ModelSettings:
    """Return the settings of a request: the provider's client does not retry, because the engine does.

    The key lets a provider that knows such keys answer again without charging again.
    """
    given = params.model_settings or ModelSettings()
    model: Any = params.run_context.model
    headers = {"Idempotency-Key": this_call().idempotency_key, **given.get("extra_headers", {})}
    own: dict[str, Any] = {} if "max_retries" in model.unsupported_settings else {"max_retries": 0}
    if "extra_headers" not in model.unsupported_settings:
        own["extra_headers"] = headers
    return cast(ModelSettings, {**own, **{name: value for name, value in given.items() if name != "extra_headers"}})


def check_whole(response: ModelResponse) -> None:
    """Raise Perhaps for a streamed answer that may have been cut off."""
    cut = response.state in ("incomplete", "interrupted")
    if cut or not (response.finish_reason or response.usage.output_tokens):  # the end of a stream has one of the two
        raise Perhaps("the stream of the model ended without a finish reason and usage, so it may have been cut off")


def price_of(response: ModelResponse) -> Decimal | None:
    """Return the list price of an answer in dollars; None if it is not known."""
    try:
        price = response.cost().total_price if response.model_name else None
    except (LookupError, ValueError):  # the price of the model, or what was used, is not known
        return None
    return price if price is None or price >= 0 else None


def _report_usage(response: ModelResponse) -> None:
    """Report the tokens of a model's answer to the call under way, and its list price in dollars if that is known.

    Usage that no answer can have, such as a negative number of tokens, is noted. An answer without tokens has no price.
    """
    used = response.usage
    reported = bool(used.input_tokens or used.output_tokens)
    this_call().used(
        money=price_of(response) if reported else None,
        model=response.model_name or "",
        input_tokens=used.input_tokens,
        output_tokens=used.output_tokens,
    )
