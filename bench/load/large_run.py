"""A large run: 200 declared nodes, about 5,000 events, 500 effects and 500 results. It ends in an approval."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final, Literal

from pydantic import BaseModel

from outlast import Context, Workflow, activity, role

NAME: Final = "bench-tour"
NODES: Final = 200
LAPS: Final = 2.5
LOGS: Final = 9
"""Log entries of a visit. With its checkpoint it writes ten events and one effect."""
AHEAD: Final = (1, 7, 20)
"""Declared edges of a node lead this far ahead. A run takes the first."""
WITHIN: Final = timedelta(hours=96)


class Tour(BaseModel):
    """State of the large run: `visits` are left."""

    visits: int
    done: list[int] = []


@activity(key="step/{n}", no_undo="a bench changes nothing")
async def step(n: int, subject: str) -> str:
    """Make an effect whose receiver is this process."""
    return f"{subject} {n}"


tours = Workflow(NAME, state=Tour, objective=lambda state: f"a tour of {state.visits} visits")


def _node(n: int) -> Callable[[Context[Tour]], Awaitable[str]]:
    async def visit(ctx: Context[Tour]) -> str:
        for number in range(LOGS):
            ctx.log(f"step-{number}", "a line of a log that says what the node has found", left=ctx.state.visits)
        answer = await ctx.do(step, n, "the subject of a call that is as long as a sentence")
        await ctx.emit({"node": n, "answer": answer}, key=f"{n}-{ctx.state.visits}", kind="answer")
        ctx.state.visits -= 1
        ctx.state.done = [*ctx.state.done, n][-NODES:]
        return _name(n + AHEAD[0]) if ctx.state.visits > 0 else "ask"

    visit.__name__ = visit.__qualname__ = _name(n)
    visit.__annotations__["return"] = Literal[(*(_name(n + far) for far in AHEAD), "ask")]  # type: ignore[assignment]
    return visit


def _name(n: int) -> str:
    return f"node{n % (NODES - 1):03d}"


for _n in range(NODES - 1):
    tours.node(start=not _n, max_visits=10)(_node(_n))  # type: ignore[arg-type]


@tours.node
async def ask(ctx: Context[Tour]) -> None:
    """Request an approval as the last of the nodes, so that the run stays open."""
    plan = step.plan(0, "the last call")
    await ctx.approval(plan, summary="Make the last call", by=role("finance"), within=WITHIN)
    await ctx.do(plan)
