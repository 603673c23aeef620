"""The capability that makes an agent durable inside a node."""

from collections.abc import AsyncIterable, Callable, Mapping, Sequence
from contextvars import ContextVar, copy_context
from datetime import datetime
from typing import Any, Final, cast
from urllib.parse import quote
from weakref import WeakKeyDictionary

from pydantic import JsonValue
from pydantic_ai import Agent, FunctionToolset, RunContext, RunUsage
from pydantic_ai.agent import AbstractAgent, EventStreamHandler
from pydantic_ai.capabilities.abstract import WrapModelRequestHandler
from pydantic_ai.durable_exec import (
    BaseDurabilityCapability,
    DurableOperation,
    DynamicToolsetCallToolParams,
    ToolsetCallToolId,
    ToolsetCallToolParams,
    conversation_id_from_run_id,
    durable_unit_scope,
    replay_scope,
)
from pydantic_ai.messages import AgentStreamEvent, ModelResponse
from pydantic_ai.models import Model, ModelRequestContext
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.tools import AgentDepsT
from pydantic_ai.toolsets import AbstractToolset
from pydantic_ai.usage import RequestUsage
from typing_extensions import override

from outlast.core.argument_checks import Arguments
from outlast.core.codec import plain_json
from outlast.core.durations import Duration
from outlast.core.keys import MODEL
from outlast.core.limits import KEY_BYTES_MAX, NAME, TEXT_CHARS_MAX
from outlast.errors import DefinitionError, InvalidInput, LimitExceeded, NotStorable
from outlast.flow.activity import Activity, lookup
from outlast.flow.calls import Plan
from outlast.flow.context import Context, current_context
from outlast.flow.functions import refuse_unrun_function
from outlast.flow.options import RateLimit, Retry
from outlast.flow.outcomes import NotSent, Perhaps
from outlast.flow.registry import SOURCES, where_called
from outlast.pydantic_ai.durable_operations import (
    ENGINE,
    INVALID,
    Backend,
    answer_of_lookup,
    ask_model,
    current_unit,
    differs_from_recorded,
    key_part,
    prepare_unit,
    price_of,
    refusal_text,
    streaming,
)
from outlast.pydantic_ai.mcp_servers import answer_of_server, check_error_behavior, listed_tool
from outlast.pydantic_ai.node_frame import NodeFrame
from outlast.pydantic_ai.recorded_requests import fault_of, judge_answer
from outlast.pydantic_ai.recorded_results import stored
from outlast.pydantic_ai.tool_activities import (
    PLAIN,
    DurableTool,
    Standing,
    ToolActivity,
    ToolAddress,
    report_without_key,
    standing_of,
    terms_of,
    tool_activity,
)

REQUEST_TIMEOUT: Final = "10m"
"""Limit of one request to a model, unless OutlastDurability says otherwise."""
RETRY: Final = Retry(attempts=6, total_wait="10m")
"""Of requests that were certainly not answered. One that may have been paid is repeated once (S-17)."""


_in_replay_scope: Final[ContextVar[Context[Any] | None]] = ContextVar("outlast_pydantic_ai_replay", default=None)


class OutlastDurability(BaseDurabilityCapability[AgentDepsT]):
    """Capability that makes the runs of an agent durable inside a node. Outside of a node it does nothing.

    A request to a model is a durable lookup, and a tool call an activity with the stored name "AGENT.TOOL". A tool's
    `metadata={"outlast": DurableTool(…)}` says how its calls are made.

    - `models`, `event_stream_handler`, `name`: those of the other durability capabilities of pydantic-ai.
    - `stream`: whether the texts of the model go to the listeners of the run as they come. They are not stored.
    - `tools`: a DurableTool by "TOOL" or "TOOLSET.TOOL", for tools whose metadata you do not write.
    - `deps`: returns the dependencies for a tool call that is made without its agent run, to settle it.
    - `timeout`, `retry`, `limit`: those of `@lookup`, for each request to a model (default timeout: 10 minutes).
    """

    engine_spec = ENGINE

    def __init__(
        self,
        *,
        models: Mapping[str, Model] | None = None,
        event_stream_handler: EventStreamHandler[AgentDepsT] | None = None,
        stream: bool = False,
        name: str | None = None,
        tools: Mapping[str, DurableTool] | None = None,
        deps: Callable[[], AgentDepsT] | None = None,
        timeout: Duration = REQUEST_TIMEOUT,
        retry: Retry = RETRY,
        limit: RateLimit | None = None,
    ) -> None:
        check = Arguments("OutlastDurability", where_called(1))
        check.flag("stream", stream)
        check.function("deps", deps, "deps=lambda: Deps(…)")
        refuse_unrun_function("deps= of OutlastDurability", deps, "deps=lambda: Deps(…)", where=check.where)
        check.duration("timeout", timeout, optional=False)
        check.instance("retry", retry, Retry, "retry=Retry(attempts=3)", optional=False)
        check.instance("limit", limit, RateLimit, "limit=RateLimit(concurrent=5)")
        if tools is not None and not isinstance(tools, Mapping):
            raise check.wrong(
                "tools", tools, "it is a DurableTool by the name of each tool", 'tools={"pay": DurableTool()}'
            )
        for tool, terms in (tools or {}).items():
            check.instance(f"tools[{tool!r}]", terms, DurableTool, 'tools={"pay": DurableTool()}', optional=False)
        handler = streaming(event_stream_handler) if stream else event_stream_handler
        super().__init__(models=models, event_stream_handler=handler, name=name)
        self._stream: Final = stream
        self._has_handler: Final = event_stream_handler is not None
        self.where: str = where_called(1)
        self.make_deps: Final = deps
        self._terms: Final = dict(tools or {})
        self._lookup_options: Final[dict[str, Any]] = {"timeout": timeout, "retry": retry, "limit": limit}
        self._unbind()

    def _unbind(self) -> None:
        self._frames: WeakKeyDictionary[Context[Any], NodeFrame] = WeakKeyDictionary()
        self.operations: dict[str, DurableOperation[Any, Any, Any]] = {}
        self._declared: dict[tuple[str, str], tuple[object, ToolActivity]] = {}
        self._backend: Backend | None = None

    # --- the hooks of pydantic-ai ----------------------------------------------------------------
    @override
    def _bind_to_agent(self, agent: AbstractAgent[AgentDepsT, Any]) -> None:
        self._unbind()  # because the bound copy is a shallow one
        name, options = self.name, self._lookup_options
        if not NAME.fullmatch(name) or not name.isascii():
            raise DefinitionError(
                f'agent "{name}" cannot be named so with OutlastDurability',
                "its stored names and keys have 1 to 100 letters, digits, dots, dashes or underscores",
                'name it otherwise, or write OutlastDurability(name="support-desk")',
                where=self.where,
            )
        key = "{agent}/{run}/{n}"
        self.ask: Activity[..., Any] = lookup(key=key, name=MODEL, durable=True, provider=MODEL, **options)(ask_model)
        self.ask.compare = differs_from_recorded
        self.prepare: Activity[..., Any] = lookup(key=key + "/{what}", name=f"{name}.prepare")(prepare_unit)
        super()._bind_to_agent(agent)
        SOURCES.add(self)

    @property
    @override
    def in_durable_context(self) -> bool:
        return current_context() is not None

    @property
    @override
    def has_wrap_run_event_stream(self) -> bool:
        return self._has_handler or (self._stream and self.in_durable_context)

    @override
    def wrap_run_event_stream(
        self, ctx: RunContext[AgentDepsT], *, stream: AsyncIterable[AgentStreamEvent]
    ) -> AsyncIterable[AgentStreamEvent]:
        # the base records the delivery of each event to a handler, and listeners need no record
        return super().wrap_run_event_stream(ctx, stream=stream) if self._has_handler else stream

    @override
    async def wrap_model_request(
        self, ctx: RunContext[AgentDepsT], *, request_context: ModelRequestContext, handler: WrapModelRequestHandler
    ) -> ModelResponse:
        response = await super().wrap_model_request(ctx, request_context=request_context, handler=handler)
        frame = self.frame()
        if frame is not None and (ctx.run_id or "") not in frame.unjudged:
            faults = frame.faults.setdefault(ctx.run_id or "", [])
            follows = judge_answer(response, faults)
            faults.append(fault_of(response))
            if follows is not None:
                raise follows
        return response

    @override
    def get_default_run_id(self) -> str | None:
        frame = self.frame()
        if frame is None:
            return None
        context = _suppress_replayed_spans()
        frame.runs += 1
        run_id = str(context.uuid(f"{self.name}.{frame.runs}"))
        frame.run_names[run_id] = str(frame.runs)
        return run_id

    @override
    def get_default_conversation_id(self, run_id: str) -> str | None:
        if not self.in_durable_context:
            return None
        _suppress_replayed_spans()
        return conversation_id_from_run_id(run_id)

    @override
    async def get_run_start_time(self, run_id: str) -> datetime | None:
        context = current_context()
        return context.now() if context is not None else None

    @override
    def get_durable_operation_backend(self) -> "Backend":
        if self._backend is None:
            self._backend = Backend(self)
        return self._backend

    # --- activities of tools ---------------------------------------------------------------------
    @property
    def owner(self) -> object:
        """The agent, as the code of a node mentions it."""
        return self._agent

    def activities(self) -> Sequence[Activity[..., Any]]:
        """Return the activity of each tool, and one for each toolset that lists its tools when it is used."""
        made = []
        for toolset in self._leaves().values():
            for name in toolset.tools if isinstance(toolset, FunctionToolset) else self._listed(toolset.id or ""):
                found = self.activity_of(toolset.id or "", name)
                if found is not None:
                    made.append(found.activity)
        owners: dict[str, Activity[..., Any]] = {}
        for one in made:
            if owners.setdefault(one.name, one) is not one:
                raise DefinitionError(
                    f'two tools of agent "{self.name}" have the stored name "{one.name}"',
                    "a person or another process could not tell which one a call was of",
                    'give one another name: metadata={"outlast": DurableTool(name="…")}',
                    where=self.where,
                )
        return made

    def models_without_price(self) -> Sequence[str]:
        """Return the name of the agent's model if its list price is not known. A model of one run is not judged."""
        model = getattr(self._agent, "model", None)
        names: list[str] = []
        for each in _models_of(model):
            usage = RequestUsage(input_tokens=1, output_tokens=1)
            named = ModelResponse(parts=[], model_name=each.model_name, provider_name=each.system, usage=usage)
            if price_of(named) is None:
                names.append(each.model_name)
        return names

    def activity_of(self, toolset_id: str, tool_name: str) -> ToolActivity | None:
        """Return the activity of a tool, or None if the tool runs in the node itself. Raises DefinitionError."""
        toolset = self._leaves()[toolset_id]
        tool, timeout = None, None
        terms = self._terms_of(ToolAddress(self.name, toolset_id, tool_name))
        if isinstance(toolset, FunctionToolset):
            tool = toolset.tools[tool_name]
            timeout = tool.timeout
            if terms is not None and not terms.lookup and toolset.timeout is not None:
                raise DefinitionError(
                    f'tool "{tool_name}" of agent "{self.name}" acts, and its toolset has a timeout',
                    "pydantic-ai would ask the model to try again a call that may have happened",
                    "give the timeout to each tool: FunctionToolset.tool(timeout=…)",
                    where=self.where,
                )
        else:
            if tool_name not in self._listed(toolset_id):
                tool_name = ""
            if terms is not None and not terms.lookup:
                check_error_behavior(toolset, self.name, self.where)
        if terms is None:
            return None
        known, found = self._declared.get((toolset_id, tool_name), (None, None))
        if found is None or known is not tool:
            address = ToolAddress(self.name, toolset_id, tool_name)
            found = tool_activity(address, terms, tool, self._call, timeout, self.where)
            report_without_key(address, terms, tool, self.where)
            self._declared[toolset_id, tool_name] = tool, found
        return found

    def _terms_of(self, address: ToolAddress) -> DurableTool | None:
        """Return how the calls of a tool are made, or None if it runs in the node itself. Raises DefinitionError."""
        toolset = self._leaves()[address.toolset]
        terms = self._terms.get(f"{address.toolset}.{address.tool}") or self._terms.get(address.tool)
        if terms is not None or not isinstance(toolset, FunctionToolset):
            return terms or PLAIN
        return terms_of(address.tool, toolset.tools[address.tool].metadata, self.where)

    def _listed(self, toolset_id: str) -> list[str]:
        """Return the tools, named by `tools=`, of a toolset that lists them when it is used; '' means all others.

        A name without a toolset is of the only such toolset.
        """
        leaves = self._leaves().values()
        known = {name for leaf in leaves if isinstance(leaf, FunctionToolset) for name in leaf.tools}
        others = [leaf for leaf in leaves if not isinstance(leaf, FunctionToolset)]
        own = [name.removeprefix(f"{toolset_id}.") for name in self._terms if name.startswith(f"{toolset_id}.")]
        if len(others) == 1:
            own += [name for name in self._terms if "." not in name and name not in known]
        return [*own, ""]

    def _leaves(self) -> dict[str, AbstractToolset[Any]]:
        """Return the toolsets whose tool calls are durable units, by id."""
        found: dict[str, AbstractToolset[Any]] = {}
        assert self._agent is not None
        for toolset in self._agent.toolsets:
            toolset.apply(lambda leaf: found.update({leaf.id: leaf} if leaf.id in self.operations else {}))
        return found

    async def _call(self, address: ToolAddress, call_id: str, arguments: dict[str, Any]) -> JsonValue:
        """Call a tool: within its agent run if that is under way, else with the same arguments alone."""
        unit, terms = current_unit.get(), self._terms_of(address)
        live = unit.context if unit is not None else None
        operation = self.operations[address.toolset]
        kind = cast(ToolsetCallToolId, operation.operation_id).toolset_kind
        acts = terms is None or not terms.lookup
        context = live if live is not None else self._context_alone(address, call_id)
        if unit is not None:
            unit.made = True
        params: Any
        if kind == "dynamic":
            params = DynamicToolsetCallToolParams(address.tool, tool_args=arguments, ctx=context)
        else:
            tool = await listed_tool(self._leaves()[address.toolset], address.tool, context) if kind == "mcp" else None
            params = ToolsetCallToolParams(address.tool, tool_args=arguments, ctx=context, tool=tool)

        async def made() -> object:
            result = await operation.handler(params)
            try:
                return operation.result_codec.dump(result)
            except Exception:  # the tool has answered: the engine says why that cannot be stored
                return getattr(result, "result", result)

        with durable_unit_scope():
            if not acts:
                codec = cast(ToolActivity, self.activity_of(address.toolset, address.tool)).activity.response_codec
                return await answer_of_lookup(made(), codec)
            payload = await (answer_of_server(made()) if kind == "mcp" else made())
        if not isinstance(payload, dict) or "kind" not in payload:
            return cast(JsonValue, payload)
        if payload["kind"] == INVALID:
            # raised by the body of the tool, which may have acted: the model must not be asked to try again
            raise Perhaps(
                f"the tool raised a ValidationError: {payload['title']}: {payload['errors']}"[:TEXT_CHARS_MAX]
            )
        return stored(payload)

    def _context_alone(self, address: ToolAddress, call_id: str) -> RunContext[Any]:
        """Return a context for a call without its agent run. Raises NotSent if the tool needs dependencies."""
        agent = cast(Agent[Any, Any], self._agent)
        if self.make_deps is None and agent.deps_type not in (type(None), object):
            raise NotSent(
                f"{address.agent}.{address.tool} is called without its agent run and needs dependencies: "
                "say how they are made, OutlastDurability(deps=…)"
            )
        return RunContext(
            deps=self.make_deps() if self.make_deps is not None else None,
            model=cast(Any, agent.model),
            usage=RunUsage(),
            agent=agent,
            tool_name=address.tool,
            tool_call_id=call_id.partition("~")[0],
            tool_call_approved=True,
        )

    # --- the node that runs the agent --------------------------------------------------------------
    def frame(self) -> NodeFrame | None:
        """Return the counters of the executing node, or None outside of one."""
        context = current_context()
        return self._frames.setdefault(context, NodeFrame()) if context is not None else None

    async def standing(self, found: ToolActivity, plan: Plan[Any], first: str) -> Standing:
        """Return the standing of a proposed call. `first`: digest of the first call under its key in this execution."""
        context = current_context()
        assert context is not None
        if not found.keyed:
            return Standing()
        before = await context.recorded(plan)
        return standing_of(plan, before, found.activity.once_per, context.visit, first)

    def plan_of(self, found: ToolActivity, tool: str, call_id: str, arguments: dict[str, Any]) -> Plan[Any] | str:
        """Return the plan of the next call of a tool under this id in this node, or why the call can have none.

        A model may use an id twice; the second call is another one.
        """
        frame, name = self.frame(), found.activity.name
        assert frame is not None
        number = frame.calls[name, call_id] + 1
        length = KEY_BYTES_MAX - len(f"{self.name}/{quote(tool)}/~{number}")
        ident = key_part(call_id, length) if number == 1 else f"{key_part(call_id, length)}~{number}"
        try:
            return found.activity.plan(**found.arguments(tool, ident, plain_json(arguments, by_alias=True)))
        except (InvalidInput, NotStorable, LimitExceeded, ValueError) as error:  # of values that a model gave
            return refusal_text("invalid_arguments", error)


def _models_of(model: object) -> list[Model]:
    """Return the models that may answer for a model: those of a fallback, and the wrapped one."""
    if isinstance(model, FallbackModel):
        return [one for each in model.models for one in _models_of(each)]
    if isinstance(model, WrapperModel):
        return _models_of(model.wrapped)
    return [model] if isinstance(model, Model) else []


def _suppress_replayed_spans() -> Context[Any]:
    """Enter pydantic-ai's replay scope in the context of this task, once for each node, and return the node's context.

    The scope must be open before the span of the agent run, where no hook spans it. It is copied into this context
    because its own end must not depend on when the generator behind it is collected.
    """
    context = current_context()
    assert context is not None
    if _in_replay_scope.get() is not context:
        _in_replay_scope.set(context)
        scope, inside = replay_scope(), copy_context()
        inside.run(scope.__enter__)
        for variable, value in inside.items():
            if variable.get(None) is not value:
                variable.set(value)
        inside.run(scope.__exit__, None, None, None)
    return context
