"""Tool calls that need approval: a person approves exactly the call that is made."""

import asyncio
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final, Literal

from pydantic_ai import FunctionToolset, RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.tools import AgentDepsT, DeferredToolRequests, DeferredToolResults, ToolApproved, ToolDenied
from pydantic_ai.toolsets import AbstractToolset, CombinedToolset, PrefixedToolset, RenamedToolset, WrapperToolset
from typing_extensions import override

from outlast.core.argument_checks import Arguments
from outlast.core.durations import Term
from outlast.core.limits import NAME_CHARS_MAX, QUORUM_MAX, TEXT_CHARS_MAX
from outlast.flow.approval_rule import RISKS, Approvers, Decision, rule_of
from outlast.flow.calls import Plan
from outlast.flow.context import Context, current_context
from outlast.flow.functions import refuse_unrun_function
from outlast.flow.registry import where_called
from outlast.pydantic_ai.durability import OutlastDurability
from outlast.pydantic_ai.durable_operations import conflict_of
from outlast.pydantic_ai.node_frame import AskedApproval
from outlast.pydantic_ai.tool_activities import ToolActivity

REJECTED: Final = "A person rejected this call."


class OutlastApprovals(AbstractCapability[AgentDepsT]):
    """Capability that asks people for each tool call that needs approval (`requires_approval=True`).

    The run of the node waits as a row. An approved call is made with the approved arguments, and a rejection is the
    answer that the model gets. Outside of a node, the agent run ends with its requests, as without the capability.

    - `by`, `within`, `valid_for`, `quorum`, `not_requester`, `risk`: those of `ctx.approval`.
    - `editable`: the parameters of the tools that an approver may change (default: none), as for `ctx.approval`. A tool
      without such a parameter is approved as it is.
    - `summary`: makes the text that the approver reads from the call (default: the tool and its arguments).

    Raises DefinitionError.
    """

    def __init__(
        self,
        *,
        by: Approvers,
        within: Term,
        valid_for: Term = "24h",
        quorum: int = 1,
        not_requester: bool = False,
        risk: Literal["", "low", "medium", "high"] = "",
        editable: Sequence[str] = (),
        summary: Callable[[ToolCallPart], str] | None = None,
    ) -> None:
        check = Arguments("OutlastApprovals", where_called(1))
        try:
            rule_of("OutlastApprovals", by)
        except TypeError:
            raise check.wrong("by", by, "it names roles and persons", 'by=role("lead")') from None
        for name, value in (("within", within), ("valid_for", valid_for)):
            check.term(name, value)
        check.number("quorum", quorum, 1, QUORUM_MAX)
        check.flag("not_requester", not_requester)
        check.one_of("risk", risk, RISKS)
        fix = "summary=lambda call: call.tool_name"
        check.function("summary", summary, fix)
        refuse_unrun_function("summary= of OutlastApprovals", summary, fix, where=check.where)
        self._options: Final[dict[str, Any]] = {
            "by": by, "within": within, "valid_for": valid_for, "quorum": quorum, "not_requester": not_requester,
            "risk": risk,
        }  # fmt: skip
        self.editable: Final = check.names("editable", editable, 'name the parameters: editable=("cents",)')
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
        asked = [await self._proposed(durability, ctx, call) for call in requests.approvals]
        answers = await asyncio.gather(*(self._ask(context, durability, each) for each in asked))
        found = dict(zip((each.call.tool_call_id for each in asked), answers, strict=True))
        return requests.build_results(approvals=found)

    async def _proposed(
        self, durability: OutlastDurability[Any], ctx: RunContext[Any], call: ToolCallPart
    ) -> "_ProposedCall":
        """Return a call with its plan. Raises UserError if no call of the tool can be approved."""
        leaf, name = _leaf_of(ctx, call.tool_name)
        found = durability.activity_of(leaf.id or "", name)
        if found is None:
            raise UserError(
                f"tool {name!r} runs in the node itself, so no call of it can be approved: "
                'take metadata={"outlast": False} away'
            )
        offered = ctx.tool_manager.tools if ctx.tool_manager is not None else None  # listed once for this step
        tool = (offered or {}).get(call.tool_name) or (await leaf.get_tools(ctx))[name]
        valid = tool.args_validator.validate_python(call.args_as_dict(), context=ctx.validation_context)
        return _ProposedCall(call, found, durability.plan_of(found, name, call.tool_call_id, valid))

    async def _ask(
        self, context: Context[Any], durability: OutlastDurability[Any], proposed: "_ProposedCall"
    ) -> ToolApproved | ToolDenied:
        """Return the decision on a call: the earlier one if the same call was asked for before under its key."""
        found, plan, frame = proposed.found, proposed.plan, durability.frame()
        assert frame is not None
        if isinstance(plan, str):
            return ToolDenied(plan)
        standing = await durability.standing(found, plan, plan.digest)
        if standing.done is not None:
            return ToolApproved()  # it is not made, so there is nothing to decide
        if standing.conflict and standing.earlier:
            return ToolDenied(conflict_of(plan))
        asked = frame.asked.setdefault((plan.activity, plan.key), [])
        for earlier in asked:
            decision = await earlier.decision
            if plan in (earlier.plan, decision.chosen):
                break
            if decision.chosen is not None:
                return ToolDenied(conflict_of(plan))
        else:
            waiting = self._decision(context, proposed, plan, len(asked) + 1)
            asked.append(AskedApproval(plan, asyncio.ensure_future(waiting)))
            decision = await asked[-1].decision
        if decision.chosen is None:
            return ToolDenied(decision.reason or REJECTED)
        frame.approved[plan.activity, proposed.call.tool_call_id] = decision.chosen
        if decision.chosen == plan:
            return ToolApproved()
        return ToolApproved(override_args=found.tool_arguments(json.loads(decision.chosen.arguments)))

    async def _decision(
        self, context: Context[Any], proposed: "_ProposedCall", plan: Plan[Any], number: int
    ) -> Decision[Any]:
        """Ask for an approval: the `number`-th one under the key of the plan in this node."""
        return await context.approval(
            plan,
            name=approval_name(plan, number),
            formerly=_former_name(plan) if number == 1 else "",
            summary=self._summary(proposed.call)[:TEXT_CHARS_MAX],
            editable=[name for name in proposed.found.editable if name in self.editable],
            **self._options,
        )


@dataclass(frozen=True)
class _ProposedCall:
    """A call that needs approval: as the model asks for it, its activity, and its plan or why it can have none."""

    call: ToolCallPart
    found: ToolActivity
    plan: Plan[Any] | str


def _summary(call: ToolCallPart) -> str:
    return f"{call.tool_name} {call.args_as_json_str()}"


def approval_name(plan: Plan[Any], number: int) -> str:
    """Return the name of an approval, which is different for different keys of a visit.

    `number` counts the calls with different arguments under one key: after a rejection, another one may be proposed.
    """
    ident = sha256(f"{plan.activity}/{plan.key}".encode()).hexdigest()[:16]
    more = f".{number}" if number > 1 else ""
    return f"{plan.activity[: NAME_CHARS_MAX - 24]}-{ident}{more}"


def _former_name(plan: Plan[Any]) -> str:
    """Return the name of up to 2026, which only had the last part of the key. Runs in flight may wait under it."""
    ident = plan.key.rpartition("/")[2]
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,60}", ident):
        ident = sha256(plan.key.encode()).hexdigest()[:12]
    return f"{plan.activity[: NAME_CHARS_MAX - 61]}-{ident}"


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
