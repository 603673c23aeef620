"""Agents under test whose tools act on fake receivers, and a model that plays a script."""

from collections.abc import Sequence
from typing import Any

import httpx2
from pydantic import BaseModel
from pydantic_ai import Agent, FunctionToolset
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from outlast import Context, DidNotHappen, Happened, Unknown, Workflow, this_call
from outlast.pydantic_ai import DurableTool, OutlastDurability
from outlast.testing import FakeReceivers

world = FakeReceivers(env="DESK_URL").route("/tickets", duplicates="act", askable=False)
world.route("/refunds", duplicates="act").route("/model", asked=lambda request, answers: {"id": "paid"})


class Case(BaseModel):
    question: str
    answer: str = ""


def answers(messages: Sequence[ModelMessage]) -> list[str]:
    """Return the tools' answers so far."""
    return [str(part.content) for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]


async def post(path: str, **body: Any) -> Any:
    """Send a request with the idempotency key of the call, which the receiver may ignore."""
    async with httpx2.AsyncClient(base_url=world.url, timeout=5) as http:
        reply = await http.post(path, json=body, headers={"Idempotency-Key": this_call().idempotency_key})
        return reply.raise_for_status().json()


async def think(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Ask for two tickets at a time, then for a refund, then say how many there were. Each answer is paid for."""
    done = answers(messages)
    async with httpx2.AsyncClient(base_url=world.url, timeout=5) as http:  # GET: the record counts it as no effect
        (await http.get(f"/model/{1 + sum(isinstance(m, ModelResponse) for m in messages)}")).raise_for_status()
    if not done:
        return ModelResponse(
            parts=[
                ToolCallPart("ticket", {"title": "INC-42"}, tool_call_id="c1"),
                ToolCallPart("ticket", {"title": "INC-43"}, tool_call_id="c2"),
            ]
        )
    if len(done) == 2:
        return ModelResponse(parts=[ToolCallPart("refund", {"order": "o-1", "cents": 500}, tool_call_id="c3")])
    return ModelResponse(parts=[TextPart(f"{len(done)} done")])


tools = FunctionToolset[None](id="desk")


@tools.tool_plain
async def ticket(title: str) -> str:
    """Open a ticket."""
    return str((await post("/tickets", title=title))["id"])


async def refunded(order: str, cents: int) -> Happened[str] | DidNotHappen | Unknown:
    """Ask the bank whether the call is in its record."""
    async with httpx2.AsyncClient(base_url=world.url, timeout=5) as http:
        reply = await http.get(f"/refunds/{this_call().idempotency_key}")
    if reply.status_code == 404:
        return DidNotHappen()
    return Happened(str(reply.json()["id"])) if reply.status_code == 200 else Unknown(str(reply.status_code))


@tools.tool_plain(metadata={"outlast": DurableTool(key="refund/{order}", reconcile=refunded)})
async def refund(order: str, cents: int) -> str:
    """Pay money back."""
    return str((await post("/refunds", order=order, cents=cents))["id"])


agent = Agent(FunctionModel(think), name="desk", toolsets=[tools], capabilities=[OutlastDurability()])
desk = Workflow("agent-desk", state=Case)


@desk.node(start=True)
async def work(ctx: Context[Case]) -> None:
    """Run the agent, in the only node."""
    ctx.state.answer = (await agent.run(ctx.state.question)).output
