"""An agent under test: its tools act on fake receivers, its model is an OpenAI-compatible server with a script."""

import os
from collections.abc import Sequence
from typing import Any

import httpx2
from pydantic import BaseModel
from pydantic_ai import Agent, FunctionToolset
from pydantic_ai.messages import ModelMessage, ToolReturnPart
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from outlast import Context, DidNotHappen, Happened, Unknown, Workflow, this_call
from outlast.agent import ModelAnswer, ToolCall
from outlast.pydantic_ai import DurableTool, OutlastDurability
from outlast.testing import FakeReceivers, completions
from outlast.testing.fake_receivers import Behaviour


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


ANSWERS = [
    ModelAnswer(
        calls=(
            ToolCall(id="c1", tool="ticket", arguments={"title": "INC-42"}),
            ToolCall(id="c2", tool="ticket", arguments={"title": "INC-43"}),
        )
    ),
    ModelAnswer(calls=(ToolCall(id="c3", tool="refund", arguments={"order": "o-1", "cents": 500}),)),
    "all done",
]
"""Two tickets at a time, then a refund, then the end."""


def desk_world(*of_refunds: Behaviour) -> FakeReceivers:
    """Return the tools' receivers, which do not deduplicate, and the model. `of_refunds`: behaviours of a refund."""
    receivers = FakeReceivers(env="DESK_URL").route("/tickets", duplicates="act", askable=False)
    return completions(receivers.route("/refunds", *of_refunds, duplicates="act"), ANSWERS)


world = desk_world()


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


provider = OpenAIProvider(base_url=os.environ.get("DESK_URL", "http://localhost:1"), api_key="of a test")
model = OpenAIChatModel("gpt-test", provider=provider)
agent = Agent(model, name="desk", toolsets=[tools], capabilities=[OutlastDurability()])
desk = Workflow("agent-desk", state=Case)


@desk.node(start=True)
async def work(ctx: Context[Case]) -> None:
    """Run the agent, in the only node."""
    ctx.state.answer = (await agent.run(ctx.state.question)).output
