"""Safeguards of agents. Those of pydantic-ai import it only when they are removed, because it is slow to import."""

import json
from dataclasses import replace as with_
from typing import Any

from outlast import http
from outlast.agent import ModelAnswer, ModelRequest, proposal, typed_answers
from outlast.agent import agent_loop as workflow
from outlast.agent import model_requests as requests
from outlast.core import addresses, children
from outlast.engine import child_runs, permission
from outlast.engine import known_budgets as budgets
from outlast.engine import policy_gate as policy
from outlast.engine.node_context import NodeContext
from outlast.flow import Allow
from outlast.flow.activity import Activity
from tests.removals import Patch, replace


# --- the proposal -------------------------------------------------------------------------------
def tools_not_withheld(patch: Patch) -> None:
    async def all_of_them(self: Any, activities: Any) -> list[Any]:
        return list(activities)

    replace(patch, NodeContext.allowed, all_of_them)


def answers_not_stored(patch: Patch) -> None:
    async def asked(ctx: Any, model: Any, request: Any, *, stream: bool = False) -> Any:
        return await model.request(request)

    replace(patch, requests.ask, asked)


def requests_share_a_key(patch: Patch) -> None:
    replace(patch, ModelRequest.digest, lambda self, model: "0" * 64)


# --- the questions of `admit` -----------------------------------------------------------------------
def lenient_arguments(patch: Patch) -> None:
    def parse(self: Activity[..., Any], arguments: bytes) -> Any:
        known = self.schema_for_caller()["properties"]
        return self.plan(**{name: value for name, value in json.loads(arguments).items() if name in known})

    replace(patch, Activity.parse, parse)


def proposals_of_any_visit(patch: Patch) -> None:
    kept = proposal._Gate.__init__

    def init(self: Any, ctx: Any, given: Any) -> None:
        kept(self, ctx, with_(given, run_id=ctx.run_id, visit=ctx.visit))

    replace(patch, kept, init)


def already_done_not_asked(patch: Patch) -> None:
    replace(patch, proposal._done, lambda before, visit: None)


def conflicts_not_asked(patch: Patch) -> None:
    class Forgetful(dict[Any, Any]):
        def __setitem__(self, key: Any, value: Any) -> None:
            pass

    kept = proposal._Gate.__init__

    def init(self: Any, ctx: Any, given: Any) -> None:
        kept(self, ctx, given)
        self._admitted = Forgetful()

    replace(patch, kept, init)


def proposals_not_judged(patch: Patch) -> None:
    async def allows(self: Any, plan: Any, *, proposed_by: str = "") -> Any:
        return Allow()

    replace(patch, NodeContext.check, allows)


def denials_not_remembered(patch: Patch) -> None:
    replace(patch, policy.recorded_refusal, lambda execution, plan: None)


def asked_once_then_free(patch: Patch) -> None:
    replace(patch, permission.was_requested, lambda execution, activity: False)


# --- the step -------------------------------------------------------------------------------------
def approve_ignored(patch: Patch) -> None:
    kept = workflow._make
    replace(patch, kept, lambda ctx, agent, tool, admitted: kept(ctx, agent._replace(approve={}), tool, admitted))


def large_results_in_the_transcript(patch: Patch) -> None:
    patch.setattr(workflow, "RESULT_CHARS_MAX", 10**9)


def keys_of_a_step(patch: Patch) -> None:
    replace(patch, workflow.Agent.as_used, lambda self: self)


def cut_answers_used(patch: Patch) -> None:
    patch.setattr(ModelAnswer, "end", property(lambda self: "stop"))


def drafts_of_typed_answers_used(patch: Patch) -> None:
    replace(patch, typed_answers._values_in, lambda text: [text[text.index("{") : text.index("}") + 1]])


def typed_answers_of_any_end(patch: Patch) -> None:
    patch.setattr(typed_answers, "_OF_END", {})


def money_without_a_price(patch: Patch) -> None:
    replace(patch, budgets.blind_budget, lambda workflow: None)


# --- addresses that a model chooses ----------------------------------------------------------------
def any_address(patch: Patch) -> None:
    replace(patch, addresses.refusal, lambda address, reach: "")


def address_resolved_again(patch: Patch) -> None:
    kept = http.PublicOnly._pinned

    def by_name(self: Any, request: Any, found: Any) -> list[Any]:
        kept(self, request, found)
        return [request]

    replace(patch, kept, by_name)


# --- pydantic-ai -----------------------------------------------------------------------------------
def calls_without_their_id(patch: Patch) -> None:
    from outlast.pydantic_ai.tool_activities import _ToolShape

    kept = _ToolShape.arguments
    replace(patch, kept, lambda self, tool, call_id, arguments: kept(self, tool, "", arguments))


def edited_arguments_dropped(patch: Patch) -> None:
    from pydantic_ai.tools import ToolApproved

    from outlast.pydantic_ai.approved_tools import OutlastApprovals

    kept = OutlastApprovals._ask

    async def asked(self: Any, context: Any, durability: Any, *args: Any) -> Any:
        answer = await kept(self, context, durability, *args)
        durability.frame().approved.clear()
        return ToolApproved() if isinstance(answer, ToolApproved) else answer

    replace(patch, kept, asked)


def keys_of_a_visit(patch: Patch) -> None:
    from outlast.pydantic_ai.tool_activities import DurableTool

    patch.setattr(DurableTool, "scope", property(lambda self: self.once_per or "visit"))


def cut_responses_used(patch: Patch) -> None:
    from outlast.pydantic_ai import recorded_requests as of_pydantic_ai

    replace(patch, of_pydantic_ai.fault_of, lambda response: "")


def approvals_named_by_the_end_of_the_key(patch: Patch) -> None:
    from outlast.pydantic_ai import approved_tools as approvals

    replace(patch, approvals.approval_name, lambda plan, number: approvals._former_name(plan))


# --- agents that call agents -------------------------------------------------------------------------
def agents_start_unasked(patch: Patch) -> None:
    async def free(execution: Any, tool: Any, call: Any, previous: Any) -> Any:
        return permission.UNASKED

    replace(patch, child_runs._permission, free)


def start_keeps_its_approval(patch: Patch) -> None:
    def unused(start: Any, by: str, approval: Any) -> Any:
        return start

    replace(patch, children.permitted, unused)
