"""DBOS: workflows and steps as decorated functions. A new process with the same executor id recovers at once."""

import os
import sqlite3
from typing import Any

from dbos import DBOS, SetWorkflowID

from bench.peers import FOLDER, URL, Job, state_of, step

DAY = 86_400
LOOK_S = 0.05  # poll interval of a result from another process


@DBOS.step()
async def one(run: str, n: int, state: str) -> str:
    return await step(run, n, state)


@DBOS.workflow()
async def flow(run: str, steps: int, size: int, wait: int) -> str:
    state = state_of(size)
    for n in range(steps):
        state = await one(run, n, state)
    if wait:
        await DBOS.recv_async("go", timeout_seconds=DAY)
        state = await one(run, steps, state)
    return state[:8]


class Dbos:
    """See the protocol."""

    async def open(self) -> None:
        self._handles: dict[str, Any] = {}
        url = os.environ.get(URL)
        if not url:
            path = f"{os.environ[FOLDER]}/dbos.sqlite"
            with sqlite3.connect(path) as db:
                db.execute("PRAGMA journal_mode = WAL")
            url = f"sqlite:///{path}"
        DBOS(config={
            "name": "bench", "system_database_url": url, "run_admin_server": False, "log_level": "ERROR",
            "application_version": "1", "executor_id": "bench", "notification_listener_polling_interval_sec": LOOK_S,
        })  # fmt: skip
        DBOS.launch()

    async def start(self, run: str, job: Job) -> None:
        with SetWorkflowID(run):
            self._handles[run] = await DBOS.start_workflow_async(flow, run, **job)

    async def resume(self, run: str) -> None:
        await DBOS.send_async(run, "go", topic="go")

    async def result(self, run: str) -> None:
        await self._handles[run].get_result(polling_interval_sec=LOOK_S)

    async def close(self) -> None:
        DBOS.destroy()


PEER = Dbos()
