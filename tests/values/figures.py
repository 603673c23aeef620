"""CPU and Python calls of a step for four states. `python -m tests.values.figures [STEPS]` prints a line for each.

`PYTHONPATH=OTHER/src python -m tests.values.figures` measures another checkout with the same steps.
"""

import sys
import time
from collections.abc import Callable
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from outlast import Context, Workflow
from outlast.testing import App


class Flat(BaseModel):
    n: int = 0
    customer: str = "c" * 40
    order: str = "o" * 40
    note: str = "n" * 60
    paid: bool = False


class Line(BaseModel):
    sku: str = "s" * 40
    cents: int = 5
    at: str = "2026-01-01T00:00:00Z"


class Order(BaseModel):
    id: str = "i" * 20
    lines: list[Line] = []


class Nested(BaseModel):
    n: int = 0
    orders: dict[str, Order] = Field(
        default_factory=lambda: {str(i): Order(lines=[Line() for _ in range(10)]) for i in range(20)}
    )


class Item(BaseModel):
    model_config = ConfigDict(frozen=True)
    n: int = 0
    text: str = "t" * 60


class Growing(BaseModel):
    n: int = 0
    items: list[Item] = Field(default_factory=lambda: [Item(n=i) for i in range(10_000)])


class Constrained(BaseModel):
    n: int = Field(0, ge=0)
    name: str = Field("n" * 40, max_length=100)
    shares: list[float] = Field(default=[0.5, 0.25], max_length=10)


STATES: Final = (Flat, Nested, Growing, Constrained)


def _flow(state: Any, steps: int) -> Workflow[Any, Any, Any]:
    flow = Workflow(f"step-{state.__name__.lower()}", state=state, outcome=lambda state: state.n)

    async def step(ctx: Any) -> Literal["step"] | None:
        ctx.state.n += 1
        if state is Growing:
            ctx.state.items.append(Item(n=ctx.state.n))
        return "step" if ctx.state.n < steps else None

    step.__annotations__["ctx"] = Context[state]
    flow.node(start=True, max_visits=steps + 1)(step)
    return flow


def _calls(work: Callable[[], Any]) -> int:
    made = 0

    def count(_: Any, event: str, __: Any) -> None:
        nonlocal made
        made += event == "call"

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return made


def _measured(state: Any, steps: int) -> tuple[float, float]:
    """Return CPU in µs, and Python calls, for each of the steps after the first ones."""
    found = []
    for measure in (_cpu, _calls):
        sums = []
        for n in (5, 5 + steps):
            app = App((flow := _flow(state, n),))
            sums.append(min(measure(lambda app=app, flow=flow: app.start(flow, {})) for _ in range(3)))
            app.close()
        found.append((sums[1] - sums[0]) / steps)
    return found[0] * 1e6, found[1]


def _cpu(work: Callable[[], Any]) -> float:
    first = time.process_time()
    work()
    return time.process_time() - first


if __name__ == "__main__":
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    for state in STATES:
        cpu, calls = _measured(state, steps)
        sys.stdout.write(f"{state.__name__:12} {cpu:9.0f} µs {calls:9.1f} calls\n")
