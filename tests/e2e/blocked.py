"""A program with a runtime in its process and a node that blocks the loop: `python -m tests.e2e.blocked STORE`."""

import asyncio
import sys
import time

from pydantic import BaseModel

from outlast import Context, Workflow
from outlast.runtime.in_process import InProcessRuntime
from outlast.runtime.stores import open_store


class Nothing(BaseModel):
    """A state without fields."""


blocked = Workflow("blocked", state=Nothing)


@blocked.node(start=True)
async def blocks(ctx: Context[Nothing]) -> None:
    """Block the event loop of this process."""
    sys.stdout.write("it blocks\n")
    sys.stdout.flush()
    time.sleep(60)  # noqa: ASYNC251 - that is the mistake  # outlast: ignore[OL303] a node that occupies its worker


async def main(url: str) -> None:
    """Serve one run until it has ended."""
    store = await open_store(url)
    async with InProcessRuntime(store, [blocked]) as runtime:
        await runtime.start(workflow_name="blocked", input={}, idempotency_key="r1", correlation_id="")
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
