"""An agent whose tools are those of an MCP server, and of a toolset that is made for each run."""

import asyncio
import os
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic_ai import Agent, FunctionToolset, RunContext
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.toolsets import DynamicToolset

from outlast import Context, DidNotHappen, Happened, Workflow
from outlast.pydantic_ai import DurableTool, OutlastDurability


class Case(BaseModel):
    question: str
    answer: str = ""


PAY = {"order": "o-1", "cents": 500}
CALLS = [
    ToolCallPart("pay", PAY, tool_call_id="c1"),
    ToolCallPart("balance", {"account": "a-1"}, tool_call_id="c2"),
    ToolCallPart("post", {"text": "paid"}, tool_call_id="c3"),
]
FOLDER = Path(os.environ.get("BANK_FOLDER", "/nowhere"))


async def was_paid(tool: str, arguments: dict[str, Any]) -> Happened[str] | DidNotHappen:
    """Ask the record of the bank."""
    line = f"pay {arguments['order']} {arguments['cents']}"
    return Happened("receipt in the record") if line in (FOLDER / "record").read_text() else DidNotHappen()


async def was_posted(tool: str, arguments: dict[str, Any]) -> Happened[str] | DidNotHappen:
    """Look for the text on the board."""
    board = FOLDER / "board"
    return Happened("on the board") if board.exists() and arguments["text"] in board.read_text() else DidNotHappen()


def made_for_a_run(ctx: RunContext[None]) -> FunctionToolset[None]:
    tools = FunctionToolset[None]()

    @tools.tool_plain
    async def post(text: str) -> str:
        """Post a text, and answer only while nothing is silent."""
        with (FOLDER / "board").open("a") as board:
            board.write(f"{text}\n")
        while (FOLDER / "silent").exists():  # noqa: ASYNC110 - another process removes the file
            await asyncio.sleep(0.05)
        return "posted"

    return tools


def bank_agent(name: str, model: Any, url: str, **options: Any) -> Agent[None, str]:
    terms = {
        "bank.pay": DurableTool(reconcile=was_paid, if_uncertain="reconcile"),
        "bank.balance": DurableTool(lookup=True),
        "board.post": DurableTool(reconcile=was_posted, if_uncertain="reconcile"),
    }
    bank = MCPToolset[None](url, id="bank", **{"tool_error_behavior": "error", **options})
    return Agent(
        model, name=name, toolsets=[bank, DynamicToolset(made_for_a_run, id="board")],
        capabilities=[OutlastDurability[None](tools=terms)],
    )  # fmt: skip


def think(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Ask for three calls at a time, then end. Each answer is recorded as paid."""
    with (FOLDER / "paid").open("a") as paid:
        paid.write("answer\n")
    asked = any(isinstance(message, ModelResponse) for message in messages)
    return ModelResponse(parts=[TextPart("all done")] if asked else CALLS)


agent = bank_agent("mcp-desk", FunctionModel(think), os.environ.get("BANK_URL", "http://localhost:1/mcp"))
desk = Workflow("agent-mcp", state=Case)


@desk.node(start=True)
async def work(ctx: Context[Case]) -> None:
    """Run the agent, in the only node."""
    ctx.state.answer = (await agent.run(ctx.state.question)).output
