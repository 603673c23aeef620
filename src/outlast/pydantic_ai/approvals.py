"""Tool calls that need approval: a person approves exactly the call that is made."""

import asyncio
import json
import re
from collections.abc import Callable
from hashlib import sha256
from typing import Any, Final, Literal

from pydantic_ai import FunctionToolset, RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.tools import AgentDepsT, DeferredToolRequests, DeferredToolResults, ToolApproved, ToolDenied
from pydantic_ai.toolsets import AbstractToolset, CombinedToolset, PrefixedToolset, RenamedToolset, WrapperToolset
from typing_extensions import override

from outlast.core.durations import Duration
from outlast.core.limits import NAME_CHARS_MAX, TEXT_CHARS_MAX
from outlast.flow.approval_rule import Approvers, Decision
from outlast.flow.context import Context, current_context
from outlast.pydantic_ai.durability import OutlastDurability

REJECTED: Final = "A person rejected this call."


class OutlastApprovals(AbstractCapability[AgentDepsT]):
    """Capability that asks people for each tool call that needs approval (`requires_approval=True`).

    The run of the node waits as a row. An approved call is made with the approved arguments, and a rejection is the
    answer that the model gets. Outside of a node, the agent run ends with its requests, as without the capability.

    - `by`, `within`, `valid_for`, `quorum`, `not_requester`, `risk`: those of `ctx.approval`.
    - `editable`: whether an approver may change the arguments.
    - `summary`: makes the text that the approver reads from the call (default: the tool and its arguments).
    """

    def __init__(
        self,
        *,
        by: Approvers,
        within: Duration,
        valid_for: Duration = "24h",
        quorum: int = 1,
        not_requester: bool = False,
        risk: Literal["", "low", "medium", "high"] = "",
        editable: bool = True,
        summary: Callable[[ToolCallPart], str] | None = None,
    ) -> None:
        self._options: Final[dict[str, Any]] = {
            "by": by, "within": within, "valid_for": valid_for, "quorum": quorum, "not_requester": not_requester,
            "risk": risk,
        }  # fmt: skip
        self._editable: Final = editable
        self._summary: Final = summary or _summary

    @override
    async def handle_deferred_tool_calls(
        self, ctx: RunContext[AgentDepsT], *, requests: DeferredToolRequests
    ) -> DeferredToolResults | None:
        context = current_context()
        if context is None or not requests.approvals:
            return None
        durability = OutlastDurability.from_agent(ctx.agent) if ctx.agent is not None else None
        if durability is None:
            raise UserError("OutlastApprovals needs OutlastDurability() among the capabilities of the agent")
        answers = await asyncio.gather(
            *(self._ask(context, durability, ctx, call, requests.metadata) for call in requests.approvals)
        )
        found = dict(zip((call.tool_call_id for call in requests.approvals), answers, strict=True))
        return requests.build_results(approvals=found)

    async def _ask(
        self,
        context: Context[Any],
        durability: OutlastDurability[Any],
        ctx: RunContext[Any],
        call: ToolCallPart,
        metadata: dict[str, dict[str, Any]],
    ) -> ToolApproved | ToolDenied:
        leaf, name = _leaf_of(ctx, call.tool_name)
        found = durability.activity_of(leaf.id or "", name)
        frame = durability.frame()
        if found is None or frame is None:
            raise UserError(
                f"tool {name!r} runs in the node itself, so no call of it can be approved: "
                'take metadata={"outlast": False} away'
            )
        tool = (await leaf.get_tools(ctx))[name]
        valid = tool.args_validator.validate_python(call.args_as_dict(), context=ctx.validation_context)
        given = durability.arguments_of(found, name, call.tool_call_id, valid)
        plan = found.activity.plan(**given)
        decision: Decision[Any] = await context.approval(
            plan,
            name=_wait_name(found.activity.name, plan.key),
            summary=self._summary(call)[:TEXT_CHARS_MAX],
            editable=found.editable if self._editable else (),
            **self._options,
        )
        if decision.chosen is None:
            return ToolDenied(decision.reason or REJECTED)
        frame.approved[found.activity.name, call.tool_call_id] = decision.chosen
        if decision.chosen == plan:
            return ToolApproved()
        changed = json.loads(decision.chosen.arguments)
        return ToolApproved(override_args={name: changed[name] for name in found.editable})


def _summary(call: ToolCallPart) -> str:
    return f"{call.tool_name} {call.args_as_json_str()}"


def _wait_name(activity: str, key: str) -> str:
    """Return the name of the approval: the activity and a digest of the key, which may have other characters."""
    ident = key.rpartition("/")[2]
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,60}", ident):
        ident = sha256(key.encode()).hexdigest()[:12]
    return f"{activity[: NAME_CHARS_MAX - 61]}-{ident}"


def _leaf_of(ctx: RunContext[Any], tool_name: str) -> tuple[AbstractToolset[Any], str]:
    """Return the toolset that has the tool, and the name of the tool there. Raises UserError."""
    assert ctx.agent is not None
    found = [leaf for toolset in ctx.agent.toolsets for leaf in _leaves(toolset, tool_name)]
    certain = [leaf for leaf in found if isinstance(leaf[0], FunctionToolset)]
    if len(certain) == 1 or (not certain and len(found) == 1):
        return (certain or found)[0]
    raise UserError(f"Outlast cannot tell which toolset has {tool_name!r}: give the toolsets names or prefixes")


def _leaves(toolset: AbstractToolset[Any], name: str) -> list[tuple[AbstractToolset[Any], str]]:
    """Return each toolset that has, or may have, the tool that the model knows by this name."""
    match toolset:
        case PrefixedToolset(prefix=prefix):
            own = name.removeprefix(f"{prefix}_")
            return _leaves(toolset.wrapped, own) if own != name else []
        case RenamedToolset(name_map=names):
            return _leaves(toolset.wrapped, names.get(name, name))
        case CombinedToolset():
            return [leaf for each in toolset.toolsets for leaf in _leaves(each, name)]
        case WrapperToolset():
            return _leaves(toolset.wrapped, name)
        case FunctionToolset():
            return [(toolset, name)] if name in toolset.tools else []
        case _:
            return [(toolset, name)]
