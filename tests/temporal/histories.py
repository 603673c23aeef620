"""Record the histories that test_interpreter.py replays: `python -m tests.temporal.histories`.

Run it after a change of the interpreter that adds commands, and keep the older files: running workflows have them.
"""

import asyncio
from pathlib import Path
from typing import Final

from temporalio.client import Client, WorkflowHandle

from tests.temporal.scripted import NEXT, Script, answer, serving, start
from tests.temporal.server import TemporalServer

FOLDER: Final = Path(__file__).with_name("histories")


async def waits(client: Client) -> WorkflowHandle:
    """Record waits of every kind: for a signal, for a time, for another worker, and none."""
    script = Script(
        answer("due", 3, status="running"),
        answer("waits", 4, attention=("denied",)),
        answer("waits", 6, after_ms=60_000),
        answer("waits", 7, after_ms=50),
        answer("held", 8, after_ms=50),
        answer("due", 9, after_ms=20),
        answer("ended", 10, status="completed", node=""),
    )
    async with serving(client, script):
        handle = await start(client, script)
        await script.until(2)
        await start(client, script, version=4)
        await script.until(3)
        await start(client, script, version=6)
        await handle.result()
    return handle


async def unserved(client: Client) -> WorkflowHandle:
    """Record a slice that no worker of its version takes."""
    script = Script(answer("unserved", 2, after_ms=50), answer("ended", 5, lane=NEXT), lanes=(NEXT,))
    async with serving(client, script):
        handle = await start(client, script)
        await handle.result()
    return handle


async def main() -> None:
    """Write a file for each history."""
    server = TemporalServer()
    try:
        client = await server.client()
        FOLDER.mkdir(exist_ok=True)
        for record in (waits, unserved):
            history = await (await record(client)).fetch_history()
            (FOLDER / f"{record.__name__}.json").write_text(history.to_json() + "\n", encoding="utf-8")
    finally:
        server.close()


if __name__ == "__main__":
    asyncio.run(main())
