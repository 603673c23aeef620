"""One process over a store: it starts the runs of each value, or works on them, and prints what it saw.

`PYTHONHASHSEED=1 python -m tests.values.process go_on|approve sqlite:PATH`.
"""

import asyncio
import json
import sys
from typing import Any, Final

from pydantic import BaseModel

import outlast
from outlast import Context, activity, lookup, role, workflow
from tests.values.cases import SAME

GIVEN: Final = [case for case in SAME if "set" in case.name]
MADE: Final = {"called": 0, "looked_up": 0}


def _flow(n: int) -> Any:
    case = GIVEN[n]

    async def look(it: Any) -> str:
        MADE["looked_up"] += 1
        return str(n)

    async def call(n: int, it: Any) -> str:
        MADE["called"] += 1
        return str(n)

    async def ask(n: int, it: Any) -> Any:
        return it

    for fn in (look, call, ask):
        fn.__annotations__["it"] = case.type
    ask.__annotations__["return"] = case.type
    looked: Any = lookup(name=f"look{n}")(look)
    called: Any = activity(key="call/{n}", name=f"call{n}", once_per="run", no_undo="sent")(call)
    asked: Any = activity(key="ask/{n}", name=f"ask{n}", no_undo="sent")(ask)

    async def run(ctx: Context, n: int, it: Any) -> str:
        await ctx.do(looked, it)
        await ctx.do(called, n, it)
        decided = await ctx.approval(asked.plan(n, it), summary="ask?", by=role("lead"), within="96h")
        answer = await ctx.do(decided.chosen)
        return text_of(answer)

    run.__annotations__["it"] = case.type
    return workflow(name=f"run{n}", key="run/{n}")(run)


def text_of(value: Any) -> str:
    """Return a value as text that does not depend on the order of its sets."""
    if isinstance(value, BaseModel):
        return f"{type(value).__name__}{[(name, text_of(part)) for name, part in value]}"
    if isinstance(value, (set, frozenset)):
        return f"{type(value).__name__}{sorted(map(text_of, value))}"
    if isinstance(value, (list, tuple)):
        return f"{type(value).__name__}{list(map(text_of, value))}"
    if isinstance(value, dict):
        return f"{[(name, text_of(part)) for name, part in value.items()]}"
    if hasattr(value, "__dataclass_fields__"):
        return f"{type(value).__name__}{[text_of(getattr(value, name)) for name in value.__dataclass_fields__]}"
    return repr(value)


FLOWS: Final = [_flow(n) for n in range(len(GIVEN))]


def wanted(n: int) -> str:
    """Return the outcome of the run with a value."""
    return text_of(GIVEN[n].value)


async def go_on(url: str) -> dict[str, Any]:
    """Start each run, and work until each waits for its approval."""
    async with outlast.connect(url) as client:
        started = 0
        for n, flow in enumerate(FLOWS):
            started += (await client.start(flow, n=n, it=GIVEN[n].value)).created
        async with client.worker(FLOWS):
            for _ in range(200):
                listed = (await client.approvals(status="pending")).approvals
                runs = (await client.runs()).runs
                if len(listed) == len(FLOWS) and all(each.shown == "PENDING_APPROVAL" for each in runs):
                    break
                await asyncio.sleep(0.05)
        attention = [each.waiting_text for each in runs if each.shown == "REQUIRES_ATTENTION"]
        asked = sorted(each.approval for each in listed)
        return {"started": started, **MADE, "approvals": asked, "attention": attention}


async def approve(url: str) -> dict[str, Any]:
    """Approve each plan, and return the outcomes."""
    async with outlast.connect(url) as client, client.worker(FLOWS):
        for each in (await client.approvals(status="pending")).approvals:
            await client.approve(each.approval, reason="in order")
        ended = {}
        for each in (await client.runs()).runs:
            n = int(each.workflow.removeprefix("run"))
            ended[n] = await client.get(FLOWS[n], each.run).result(timeout="20s")
        return {"ended": ended, **MADE}


if __name__ == "__main__":
    part = {"go_on": go_on, "approve": approve}[sys.argv[1]]
    sys.stdout.write(json.dumps(asyncio.run(part(sys.argv[2]))) + "\n")
