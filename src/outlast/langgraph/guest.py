"""LangGraph as the engine of a worker, and the runtime with both."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Command
from typing_extensions import override

from outlast.core.approvals import Actor
from outlast.core.durations import Liveness
from outlast.core.rows import RUN, Run, is_over
from outlast.core.slices import SliceEnd
from outlast.engine.compatibility import reader_of
from outlast.engine.guest import Guest, SliceWorker
from outlast.flow.workflow import Workflow
from outlast.langgraph.graph import ThreadState, graph_of
from outlast.runtime.in_process import InProcessRuntime
from outlast.store.port import Store

log = logging.getLogger("outlast.langgraph")
NAME: Final = "langgraph"
STEPS_MAX: Final = 2**31 - 1  # nodes of a thread; the workflow limits its visits

Graph = CompiledStateGraph[ThreadState, None, ThreadState, ThreadState]


class LangGraphGuest(Guest):
    """Executes runs as threads of LangGraph graphs, in the process of the worker.

    A thread knows only which run it executes. If its checkpoints are lost, it begins again at the node that the run's
    row names.
    """

    name = NAME

    def __init__(
        self, store: Store, workflows: Sequence[Workflow[Any]], checkpointer: BaseCheckpointSaver[Any] | None = None
    ) -> None:
        """`checkpointer`: that of the caller, who closes it (default: in memory).

        Raises DefinitionError if a node has the name of a field of `ThreadState`.
        """
        self._store = store
        self._checkpointer = checkpointer if checkpointer is not None else InMemorySaver()
        self._worker: SliceWorker | None = None
        self._threads: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._again: set[tuple[str, str]] = set()  # runs that were woken while their thread executed
        self._workflows = {each.lane: each for each in [workflow.scheduled_by(NAME) for workflow in workflows]}
        self.graphs: Mapping[str, Graph] = {
            lane: graph_of(workflow, self._execute, self._locate).compile(self._checkpointer)
            for lane, workflow in self._workflows.items()
        }

    @override
    async def wake(self, runs: Sequence[Run]) -> None:
        for run in runs:
            key = (run.tenant, run.run)
            if key in self._threads:
                self._again.add(key)
            elif self._worker is not None:
                self._threads[key] = asyncio.create_task(self._continue(key))

    @override
    async def serve(self, worker: SliceWorker) -> None:
        self._worker = worker
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self._worker = None
            threads = list(self._threads.values())
            for thread in threads:
                thread.cancel()
            await asyncio.gather(*threads, return_exceptions=True)

    async def _continue(self, key: tuple[str, str]) -> None:
        """Execute the thread of a run until the run waits; again if the run was woken meanwhile."""
        try:
            again = True
            while again:
                self._again.discard(key)
                again = await self._invoke(key) or key in self._again
        except Exception:  # because a caller's checkpointer may raise anything; the bridge wakes the run again
            log.exception("the thread of run %s failed", key[1])
        finally:
            del self._threads[key]

    async def _invoke(self, key: tuple[str, str]) -> bool:
        """Execute the thread of a run once. Return True if the run is at the start of another version's graph."""
        run = await self._store.load(RUN, key)
        if run is None or run.scheduler != NAME:
            return False
        graph, config = self.graph(run), config_of(*key)
        thread = await graph.aget_state(config)
        given: ThreadState | Command[str] | None = ThreadState(
            tenant_id=run.tenant, run_id=run.run, run_version=run.version
        )
        if thread.interrupts:  # all of them: the row says what the run still waits for
            given = Command(resume={each.id: run.version for each in thread.interrupts})
        elif thread.next:  # a process died while it executed the thread
            given = None
        else:
            given = ThreadState(tenant_id=run.tenant, run_id=run.run, run_version=run.version)
        await graph.ainvoke(given, config, durability="sync")
        after = await self._store.load(RUN, key)
        if after is None or is_over(after):
            await self._checkpointer.adelete_thread(config["configurable"]["thread_id"])
            return False
        return after.lane != run.lane

    def graph(self, run: Run) -> Graph:
        """Return the graph of a run's version, or of the newest one of its workflow. Raises KeyError."""
        return self.graphs[reader_of(self._workflows, run).lane]

    async def _execute(self, at: ThreadState) -> SliceEnd:
        if self._worker is None:
            return SliceEnd("unserved", at["run_version"], why="no worker of this process serves LangGraph now")
        return await self._worker.slice(at["tenant_id"], at["run_id"], nodes=1)

    async def _locate(self, at: ThreadState) -> str:
        run = await self._store.load(RUN, (at["tenant_id"], at["run_id"]))
        return run.node if run is not None and run.scheduler == NAME and not is_over(run) else ""


def config_of(tenant: str, run: str) -> RunnableConfig:
    """Return LangGraph's configuration of a run's thread."""
    return {"configurable": {"thread_id": f"{tenant}/{run}"}, "recursion_limit": STEPS_MAX}


class LangGraphRuntime(InProcessRuntime):
    """The interface over a store, with a worker that executes runs as threads of LangGraph.

    `async with` serves while the block runs, then drains. Runs of dead processes go on here.
    """

    def __init__(
        self,
        store: Store,
        workflows: Sequence[Workflow[Any]],
        *,
        checkpointer: BaseCheckpointSaver[Any] | None = None,
        tenant: str = "default",
        actor: Actor | None = None,
        live: Liveness | None = None,
        concurrency: int = 100,
    ) -> None:
        """Serve `workflows` over a `store`, with threads in a `checkpointer` (default: in memory).

        The caller closes both. The other parameters are those of `InProcessRuntime`. Raises DefinitionError.
        """
        self.guest = LangGraphGuest(store, workflows, checkpointer)
        super().__init__(
            store, workflows, tenant=tenant, actor=actor, live=live, concurrency=concurrency, guest=self.guest
        )

    def graph(self, workflow: Workflow[Any]) -> Graph:
        """Return the graph of a workflow, to draw it or to read its threads. Raises KeyError."""
        return self.guest.graphs[workflow.scheduled_by(NAME).lane]
