"""An agent of pydantic-ai alone dies in a tool and is started again: `python -m bench.agent_alone`.

The agent asks its model four times and orders three things. It is killed with SIGKILL in the second order, after the
order has reached its receiver. The program prints what was paid and ordered in both lives.
"""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from typing import Any

ORDERS = 3
DIES_AT = 1


def live(record: Path, *, dies: bool) -> None:
    """Run the agent. `dies`: kill this process in the second order."""
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import FunctionModel

    def note(what: str) -> None:
        with record.open("a", encoding="utf-8") as file:
            file.write(f"{what}\n")

    def answer(messages: list[Any], _: Any) -> ModelResponse:
        note("answer")
        n = sum(isinstance(message, ModelResponse) for message in messages)
        return ModelResponse([ToolCallPart("order", {"n": n})] if n < ORDERS else [TextPart("done")])

    agent = Agent(FunctionModel(answer))

    @agent.tool_plain
    def order(n: int) -> str:
        note(f"order {n}")
        if dies and n == DIES_AT:
            os.kill(os.getpid(), signal.SIGKILL)
        return "ordered"

    asyncio.run(agent.run("order three things"))


def measure() -> Counter[str]:
    """Kill the agent once, start it again, and return how often each thing happened."""
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder, "record")
        for life in ("dies", "lives"):
            status = subprocess.run([sys.executable, "-m", __spec__.name, f"{record}", life], check=False).returncode
            assert status == (-signal.SIGKILL if life == "dies" else 0), f"the agent that {life} ended with {status}"
        return Counter(record.read_text(encoding="utf-8").splitlines())


if __name__ == "__main__":
    if len(sys.argv) == 3:
        live(Path(sys.argv[1]), dies=sys.argv[2] == "dies")
    else:
        found = measure()
        orders = ", ".join(f"order {n} {found[f'order {n}']} ×" for n in range(ORDERS))
        print(f"pydantic-ai {version('pydantic-ai-slim')}: {found['answer']} answers of 4; {orders}")
