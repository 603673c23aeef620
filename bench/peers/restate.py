"""Restate: a workflow served over HTTP/2 to its server, which calls it and records each `run`."""

import asyncio
import os
from typing import Any

import aiohttp
import restate
from hypercorn.asyncio import serve
from hypercorn.config import Config

from bench.peers import PORTS, Job, state_of, step

flow = restate.Workflow("flow")


@flow.main()
async def run(ctx: restate.WorkflowContext, job: dict[str, int]) -> str:
    state = await ctx.run_typed("first", state_of, size=job["size"]) if job["size"] else ""
    for n in range(job["steps"]):
        state = await ctx.run_typed(f"step{n}", step, run=ctx.key(), n=n, state=state)
    if job["wait"]:
        await ctx.promise("go").value()
        state = await ctx.run_typed("last", step, run=ctx.key(), n=job["steps"], state=state)
    return state[:8]


@flow.handler()
async def go(ctx: restate.WorkflowSharedContext) -> None:
    await ctx.promise("go").resolve(True)


class Restate:
    """See the protocol."""

    async def open(self) -> None:
        _, ingress, admin, own = os.environ[PORTS].split()
        self._ingress = f"http://127.0.0.1:{ingress}"
        self._end = asyncio.Event()
        config = Config()
        config.bind, config.accesslog, config.errorlog = [f"127.0.0.1:{own}"], None, None
        app: Any = restate.app([flow])
        self._serving = asyncio.create_task(serve(app, config, shutdown_trigger=self._end.wait))
        limits = aiohttp.TCPConnector(limit=0)
        self._http = aiohttp.ClientSession(connector=limits, timeout=aiohttp.ClientTimeout(None))
        deployment = {"uri": f"http://127.0.0.1:{own}", "force": True}
        for _ in range(150):
            try:
                async with self._http.post(f"http://127.0.0.1:{admin}/deployments", json=deployment) as said:
                    if said.ok:
                        return
            except aiohttp.ClientError:  # the server is starting
                pass
            await asyncio.sleep(0.2)
        raise RuntimeError("the server does not take the deployment")

    async def start(self, run: str, job: Job) -> None:
        async with self._http.post(f"{self._ingress}/flow/{run}/run/send", json=job) as said:
            assert said.status in (200, 202), await said.text()

    async def resume(self, run: str) -> None:
        async with self._http.post(f"{self._ingress}/flow/{run}/go", skip_auto_headers=["Content-Type"]) as said:
            assert said.ok, await said.text()

    async def result(self, run: str) -> None:
        async with self._http.get(f"{self._ingress}/restate/workflow/flow/{run}/attach") as said:
            assert said.ok, await said.text()

    async def close(self) -> None:
        await self._http.close()
        self._end.set()
        await self._serving


PEER = Restate()
