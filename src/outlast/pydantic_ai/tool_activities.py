"""Activities of an agent's tools: each tool call has a stored name, a key and arguments, and no closure."""

import functools
import inspect
import keyword
import logging
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, NamedTuple

from pydantic import JsonValue, WithJsonSchema, validate_call
from pydantic_ai import Tool

from outlast.core.argument_checks import Arguments
from outlast.core.durations import Duration
from outlast.core.keys import OncePer
from outlast.core.limits import NAME, PARAMETERS_MAX
from outlast.errors import DefinitionError
from outlast.flow.activity import Activity, Effectful, activity, lookup
from outlast.flow.calls import Plan, RecordedCall
from outlast.flow.options import IfUncertain, RateLimit, Retry
from outlast.flow.registry import where_called, where_of
from outlast.pydantic_ai.recorded_results import plain_result, recorded

log = logging.getLogger("outlast.pydantic_ai")
METADATA: Final = "outlast"
"""Key of a tool's metadata that holds its DurableTool."""
CALL_ID: Final = "tool_call_id"
"""Parameter that holds the model's id of the call, in activities that declare no key."""
TOOL: Final = "tool"
ARGUMENTS: Final = "arguments"
_SIMPLE: Final[Mapping[object, type]] = {"string": str, "integer": int, "boolean": bool}


@dataclass(frozen=True, kw_only=True)
class DurableTool:
    """Options with which Outlast makes the calls of a tool: `metadata={"outlast": DurableTool(lookup=True)}`.

    - `lookup`: the tool only reads. Its answer is recorded, and a call that a crash cut is made again.
    - `key`: template over the tool's parameters, for example `"refund/{order}"`. The default is the id that the model
      gave the call.
    - `once_per`: how far a key counts: "visit", "run" or, for a tool that acts, "root" or "tenant". The default is the
      run for a tool that acts and has a `key`, or the root if the run is a child, else the visit.
    - `if_uncertain`: "ask_person", "reconcile" or `resend(remembered_for=…)`.
    - `reconcile`: an async function with the parameters of the tool that asks the receiver whether a call happened. It
      returns Happened, DidNotHappen or Unknown.
    - `undo`: an async function that takes the answer of the tool and then its parameters.
    - `no_undo`: the reason for having no undo.
    - `timeout`: limit of one attempt (default: the tool's `timeout`, else 120 s).
    - `retry`, `provider`, `limit`: those of `@activity`.
    - `name`: the stored name (default: "AGENT.TOOL"). Keep it when the agent or the tool is renamed.
    """

    lookup: bool = False
    key: str = ""
    once_per: OncePer | None = None
    if_uncertain: IfUncertain = "ask_person"
    reconcile: Callable[..., Awaitable[Any]] | None = None
    undo: Callable[..., Awaitable[Any]] | None = None
    no_undo: str = "the tool does not say how it is undone"
    timeout: Duration | None = None
    retry: Retry | None = None
    provider: str = ""
    limit: RateLimit | None = None
    name: str = ""

    def __post_init__(self) -> None:
        """Raises DefinitionError. Of options with further rules, `@activity` checks the rest."""
        check = Arguments("DurableTool", where_called(2))
        check.flag("lookup", self.lookup)
        for name in ("key", "provider", "name"):
            check.instance(name, getattr(self, name), str, f'{name}="…"', optional=False)
        if self.once_per is not None:
            check.one_of("once_per", self.once_per, ("visit", "run", "root", "tenant"))
        check.function("reconcile", self.reconcile, "reconcile=was_paid", is_async=True)
        check.function("undo", self.undo, "undo=take_back", is_async=True)
        check.text("no_undo", self.no_undo, 'no_undo="a mail cannot be unsent"')
        check.duration("timeout", self.timeout)
        check.instance("retry", self.retry, Retry, "retry=Retry(attempts=3)")
        check.instance("limit", self.limit, RateLimit, "limit=RateLimit(concurrent=5)")

    @property
    def scope(self) -> OncePer:
        """Scope in which a key counts."""
        return self.once_per or ("run" if self.key and not self.lookup else "visit")


PLAIN: Final = DurableTool()


def terms_of(tool: str, metadata: Mapping[str, Any] | None, where: str) -> DurableTool | None:
    """Return the terms that a tool's metadata declares, or None for `False`: the tool runs in the node itself."""
    given = (metadata or {}).get(METADATA, PLAIN)
    if given is False:
        return None
    if isinstance(given, DurableTool):
        return given
    if isinstance(given, Mapping):  # metadata of tools that other processes list is plain data
        try:
            return DurableTool(**given)
        except TypeError as error:
            raise _wrong_metadata(tool, str(error), where) from None
    raise _wrong_metadata(tool, f"it is {given!r}", where)


def _wrong_metadata(tool: str, why: str, where: str) -> DefinitionError:
    fix = 'metadata={"outlast": DurableTool(lookup=True)}, or False to run the tool in the node'
    return DefinitionError(f'tool "{tool}" has unusable metadata "{METADATA}"', why, fix, where=where)


@dataclass(frozen=True)
class ToolAddress:
    """A tool of an agent: all that is needed to call it in a process where the agent has not run."""

    agent: str
    toolset: str
    tool: str
    """Empty for a toolset whose tools are listed when it is used."""


Call = Callable[[ToolAddress, str, dict[str, Any]], Awaitable[JsonValue]]
"""Call a tool: its address, the id of the call ('' if unknown) and its arguments as plain data."""


class ToolActivity(NamedTuple):
    """The activity or lookup of a tool, and the function that makes its arguments.

    `arguments` takes the name of the tool, the id of the call and the validated arguments as plain data.
    """

    activity: Activity[..., Any]
    arguments: Callable[[str, str, dict[str, Any]], dict[str, Any]]
    editable: tuple[str, ...]
    """Parameters that belong to the tool, so that an approver may change them."""
    tool_arguments: Callable[[dict[str, Any]], dict[str, Any]]
    """Return the tool's own arguments, as a model gives them, of those of the activity."""
    keyed: bool = False
    """True if the tool acts and has a key of its arguments, under which it acts once."""


class Standing(NamedTuple):
    """Entry of the ledger about a proposed call of a tool with a key.

    `conflict`: the key has a call with other arguments, `earlier` if an earlier visit made it. `done`: the same call of
    an earlier visit.
    """

    conflict: bool = False
    earlier: bool = False
    done: RecordedCall[Any] | None = None


def standing_of(
    plan: Plan[Any], before: Sequence[RecordedCall[Any]], scope: OncePer, visit: int, first: str
) -> Standing:
    """Return whether a proposed call may be made, was done in an earlier visit, or contradicts the call of its key.

    - `before`: the recorded calls under the key.
    - `first`: digest of the first call under the key in this execution of the node.

    A call of this visit is made again, because the ledger answers it.
    """
    rows = [row for row in before if scope != "visit" or row.visit == visit]
    mine = [row for row in rows if row.made_in == visit] or [row for row in rows if row.made_in == 0]
    if mine:
        return Standing(conflict=not any(row.same for row in mine))
    if rows:
        last = rows[-1]
        return Standing(not last.same, earlier=True, done=last if last.same and last.done else None)
    return Standing(conflict=first != plan.digest)


def report_without_key(address: ToolAddress, terms: DurableTool, tool: Tool[Any] | None, where: str) -> None:
    """Warn of a tool that acts and has no key, so that each proposal of a model is a new call."""
    if terms.lookup or terms.key or terms.once_per is not None:
        return
    if tool is None:
        what = f'the tools of toolset "{address.toolset}"'
        fix = f'name those that only read: tools={{"{address.toolset}.TOOL": DurableTool(lookup=True)}}'
    else:
        own = inspect.unwrap(tool.function)
        where = where_of(own) if inspect.isfunction(own) else where
        names = list(tool.function_schema.json_schema.get("properties", {}))
        key = f"{address.tool}/{{{names[0]}}}" if names else address.tool
        what = f'the tool "{address.tool}"'
        fix = (
            f'metadata={{"outlast": DurableTool(key="{key}")}}; lookup=True if it only reads; '
            'once_per="visit" if each proposal shall act'
        )
    log.warning(
        '%s of agent "%s" (%s) may act and has no key: each proposal of the model is a new call, so a model that '
        "repeats itself acts again → %s",
        what,
        address.agent,
        where,
        fix,
    )


def tool_activity(
    address: ToolAddress, terms: DurableTool, tool: Tool[Any] | None, call: Call, timeout: float | None, where: str
) -> ToolActivity:
    """Return the activity or lookup of a tool. `tool` is None for all tools of one toolset together.

    Raises DefinitionError if its name, key or terms are not usable.
    """
    name = terms.name or f"{address.agent}.{address.tool or address.toolset}"
    if not NAME.fullmatch(name):
        raise DefinitionError(
            f'tool "{address.tool or address.toolset}" of agent "{address.agent}" cannot have the stored name "{name}"',
            "a stored name has 1 to 100 letters, digits, dots, dashes or underscores",
            'give it another one: metadata={"outlast": DurableTool(name="…")}',
            where=where,
        )
    shape = _ToolShape(address, tool, own_key=bool(terms.key))
    if shape.generic and (terms.key or terms.undo or terms.reconcile) and tool is not None:
        raise DefinitionError(
            f'tool "{address.tool}" of agent "{address.agent}" has a parameter whose name is no Python name',
            "its key, undo and reconcile take the parameters by name",
            "rename the parameter, or leave the three out",
            where=where,
        )

    async def made(*args: Any, **kwargs: Any) -> JsonValue:
        called, call_id, arguments = shape.read(args, kwargs)
        return await call(called, call_id, arguments)

    fn = shape.function(made, address.tool or address.toolset, tool.description if tool is not None else "")
    key = terms.key or f"{address.agent}/{'{tool}' if shape.generic else address.tool}/{{{CALL_ID}}}"
    limit_of_call = terms.timeout if terms.timeout is not None or timeout is None else f"{math.ceil(timeout)}s"
    if terms.lookup:
        looks_up = lookup(
            key=key,
            name=name,
            once_per=terms.scope,
            timeout=limit_of_call,
            retry=terms.retry,
            durable=True,
            provider=terms.provider,
            limit=terms.limit,
        )(fn)
        return ToolActivity(looks_up, shape.arguments, shape.own, shape.tool_arguments)
    made_by: Effectful[..., Any] = activity(
        key=key,
        name=name,
        once_per=terms.scope,
        if_uncertain=terms.if_uncertain,
        timeout=limit_of_call,
        no_undo=None if terms.undo is not None else terms.no_undo,
        retry=terms.retry,
        provider=terms.provider,
        limit=terms.limit,
    )(fn)
    if terms.once_per is None and terms.key:
        made_by.once_per_in_child = "root"
    if terms.reconcile is not None:
        made_by.reconcile(shape.companion(terms.reconcile, ()))
    if terms.undo is not None:
        made_by.undo(shape.companion(terms.undo, ("response",)))
    return ToolActivity(made_by, shape.arguments, shape.own, shape.tool_arguments, keyed=bool(terms.key))


class _ToolShape:
    """Parameters of a tool's activity: those of the tool and the id of the call, or the generic ones."""

    def __init__(self, address: ToolAddress, tool: Tool[Any] | None, *, own_key: bool) -> None:
        self.address: Final = address
        self.tool: Final = tool
        schema = tool.function_schema.json_schema if tool is not None else {}
        properties: dict[str, Any] = schema.get("properties", {})
        self.envelope: Final[str] = (tool.function_schema.single_arg_name or "") if tool is not None else ""
        """The tool's only parameter if it is a model: its fields are the parameters that a model of an agent sees."""
        self.generic: Final = (
            tool is None or bool(schema.get("additionalProperties")) or not _are_parameters(properties)
        )
        empty = inspect.Parameter.empty
        kind = inspect.Parameter.KEYWORD_ONLY
        if self.generic:
            given: dict[str, tuple[Any, Any]] = {TOOL: (str, empty), ARGUMENTS: (dict[str, JsonValue], empty)}
        else:
            given = {name: (_type_of(each), each.get("default", empty)) for name, each in properties.items()}
            required = set(schema.get("required", ()))
            given = {n: (t, None if d is empty and n not in required else d) for n, (t, d) in given.items()}
        self.own: Final = (ARGUMENTS,) if self.generic else tuple(given)
        if not own_key:
            given[CALL_ID] = (str, empty)
        self.annotations: Final = {name: type_ for name, (type_, _) in given.items()}
        self.parameters: Final = tuple(
            inspect.Parameter(name, kind, default=default, annotation=type_) for name, (type_, default) in given.items()
        )

    def function(self, fn: Callable[..., Any], name: str, doc: str | None) -> Any:
        """Return `fn` with the parameters of this shape, and the place of the tool's own function."""
        made: Any = fn
        made.__signature__ = inspect.Signature(self.parameters, return_annotation=JsonValue)
        made.__annotations__ = {**self.annotations, "return": JsonValue}
        made.__name__ = made.__qualname__ = name
        made.__doc__ = doc
        own = inspect.unwrap(self.tool.function) if self.tool is not None else None
        if inspect.isfunction(own):
            made.__wrapped__ = own
            made.__module__ = own.__module__
        return made

    def read(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[ToolAddress, str, dict[str, Any]]:
        """Return the address of the tool, the id of the call and the tool's own arguments."""
        given = {**dict(zip(self.annotations, args, strict=False)), **kwargs}
        call_id = given.pop(CALL_ID, "")
        if not self.generic:
            return self.address, call_id, self._within(given)
        return ToolAddress(self.address.agent, self.address.toolset, given[TOOL]), call_id, given[ARGUMENTS]

    def arguments(self, tool: str, call_id: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments of the activity for a call of the tool."""
        if self.generic:
            given: dict[str, Any] = {TOOL: tool, ARGUMENTS: arguments}
        else:
            given = dict(arguments[self.envelope] if self.envelope else arguments)
        return {**given, CALL_ID: call_id} if CALL_ID in self.annotations else given

    def tool_arguments(self, given: dict[str, Any]) -> dict[str, Any]:
        """Return the tool's own arguments of those of the activity."""
        return dict(given[ARGUMENTS]) if self.generic else {name: given[name] for name in self.own}

    def _within(self, given: dict[str, Any]) -> dict[str, Any]:
        return {self.envelope: given} if self.envelope else given

    def companion(self, fn: Callable[..., Awaitable[Any]], first: tuple[str, ...]) -> Any:
        """Return `fn` (a reconcile or undo function) with the parameters of the activity, after the `first` ones.

        `fn` gets the values that its annotations name, because stored arguments are plain data.
        """
        typed = validate_call(config={"arbitrary_types_allowed": True})(fn)
        names = (*first, *self.annotations)

        @functools.wraps(fn)
        async def made(*args: Any, **kwargs: Any) -> Any:
            given = {**dict(zip(names, args, strict=False)), **kwargs}
            given.pop(CALL_ID, None)
            before = [plain_result(given.pop(name)) for name in first]
            return recorded(await typed(*before, **self._within(given)))

        either = inspect.Parameter.POSITIONAL_OR_KEYWORD
        front = [inspect.Parameter(name, either, annotation=JsonValue) for name in first]
        made.__signature__ = inspect.Signature([*front, *self.parameters])  # type: ignore[attr-defined]
        return made


def _are_parameters(properties: Mapping[str, Any]) -> bool:
    """Return True if every property can be a parameter of the activity."""
    usable = all(name.isidentifier() and not keyword.iskeyword(name) for name in properties)
    return usable and len(properties) < PARAMETERS_MAX and not {CALL_ID, "response"} & set(properties)


def _type_of(schema: Mapping[str, Any]) -> Any:
    """Return the type of a stored argument: plain JSON, shown with the tool's own schema."""
    type_: Any = _SIMPLE.get(schema.get("type"), JsonValue)
    return type_ if "$ref" in str(schema) else Annotated[type_, WithJsonSchema(dict(schema))]
