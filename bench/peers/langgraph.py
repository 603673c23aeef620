"""LangGraph: a graph whose node is a step, with a SQLite checkpointer. The caller is its worker."""

import asyncio
import os
from contextlib import AsyncExitStack
from typing import Any, TypedDict

from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt

from bench.peers import CONCURRENCY, FOLDER, Job, state_of, step


class State(TypedDict):
    run: str
    n: int
    steps: int
    wait: int
    text: str


async def walk(state: State) -> dict[str, Any]:
    return {"text": await step(state["run"], state["n"], state["text"]), "n": state["n"] + 1}


async def gate(state: State) -> dict[str, Any]:
    interrupt("go")
    return {"wait": 0, "steps": state["steps"] + 1}


def route(state: State) -> str:
    if state["n"] < state["steps"]:
        return "walk"
    return "gate" if state["wait"] else END


class LangGraph:
    """See the protocol."""

    async def open(self) -> None:
        self._open, self._free, self._tasks = AsyncExitStack(), asyncio.Semaphore(CONCURRENCY), {}
        saver = AsyncSqliteSaver.from_conn_string(f"{os.environ[FOLDER]}/langgraph.db")
        graph = StateGraph(State).add_node("walk", walk).add_node("gate", gate).add_edge(START, "walk")
        graph.add_conditional_edges("walk", route, ["walk", "gate", END]).add_edge("gate", "walk")
        self._graph = graph.compile(checkpointer=await self._open.enter_async_context(saver))

    async def start(self, run: str, job: Job) -> None:
        known = await self._graph.aget_state(self._config(run))
        first = State(run=run, n=0, steps=job["steps"], wait=job["wait"], text=state_of(job["size"]))
        self._invoke(run, None if known.values else first)

    async def resume(self, run: str) -> None:
        await self._tasks[run]
        self._invoke(run, Command(resume="go"))

    async def result(self, run: str) -> None:
        await self._tasks[run]

    async def close(self) -> None:
        await self._open.aclose()

    def _config(self, run: str) -> Any:
        return {"configurable": {"thread_id": run}, "recursion_limit": 10_000}

    def _invoke(self, run: str, given: Any) -> None:
        async def invoke() -> None:
            async with self._free:
                await self._graph.ainvoke(given, self._config(run), durability="sync")

        self._tasks[run] = asyncio.create_task(invoke())


PEER = LangGraph()
