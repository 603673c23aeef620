"""LangGraph as the engine of a worker, and the runtime with both."""

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, get_args

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Command, Durability
from typing_extensions import override

from outlast.core.approvals import Actor
from outlast.core.argument_checks import Arguments
from outlast.core.durations import SECOND, Liveness
from outlast.core.limits import CONCURRENCY_MAX
from outlast.core.rows.run_rows import RUN, Run, RunKey, is_over
from outlast.core.slices import SliceEnd
from outlast.engine.compatibility import reader_of
from outlast.engine.guest import Guest, GuestAway, SliceWorker
from outlast.errors import StoreError
from outlast.flow.workflow import Workflow
from outlast.langgraph.graph_of_workflow import ThreadState, graph_of
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
        self,
        store: Store,
        workflows: Sequence[Workflow[Any]],
        checkpointer: BaseCheckpointSaver[Any] | None = None,
        *,
        durability: Durability = "exit",
        concurrency: int = 100,
    ) -> None:
        """Execute runs of these `workflows` in a `store`, at most `concurrency` at once.

        `checkpointer`: that of the caller, who closes it. Without one, no thread is kept while its run waits.
        `durability`: LangGraph's; "exit" writes a thread when its run waits, "sync" after each node, too.

        Raises DefinitionError if a node has the name of a field of `ThreadState`.
        """
        check = Arguments("LangGraphGuest")
        workflows = check.members("workflows", workflows, Workflow, "list workflows: [orders]")
        check.one_of("durability", durability, get_args(Durability))
        check.number("concurrency", concurrency, 1, CONCURRENCY_MAX)
        self._store = store
        self._checkpointer = checkpointer if checkpointer is not None else InMemorySaver()
        self._forgets = checkpointer is None
        self._durability: Final = durability
        self._concurrency = concurrency
        self._worker: SliceWorker | None = None
        self._queued: dict[str, dict[str, None]] = {}  # runs of each tenant that have no thread yet, the oldest first
        self._threads: dict[RunKey, asyncio.Task[None]] = {}
        self._active: Counter[str] = Counter()  # threads of each tenant
        self._again: set[RunKey] = set()  # runs that were woken while their thread executed
        self._ends: dict[RunKey, SliceEnd] = {}  # of the last slice of each thread
        self._failed = False  # the last thread that ended raised an error
        self._workflows = {each.lane: each for each in [workflow.scheduled_by(NAME) for workflow in workflows]}
        self.graphs: Mapping[str, Graph] = {
            lane: graph_of(workflow, self._execute, self._locate).compile(self._checkpointer)
            for lane, workflow in self._workflows.items()
        }

    @override
    async def wake(self, runs: Sequence[Run]) -> None:
        if self._failed:
            try:
                await self._checkpointer.aget_tuple(config_of("", ""))  # no run's thread
            except Exception as error:  # because a caller's checkpointer may raise anything
                raise GuestAway(f"its checkpointer raises {type(error).__name__}: {error}") from error
        for run in runs:
            self._queue((run.tenant, run.run))

    @override
    async def serve(self, worker: SliceWorker) -> None:
        self._worker = worker
        self._begin()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self._worker = None
            threads = list(self._threads.values())
            for thread in threads:
                thread.cancel()
            await asyncio.gather(*threads, return_exceptions=True)

    # --- threads ---------------------------------------------------------------------------------
    def _queue(self, key: RunKey) -> None:
        """Execute the thread of a run as soon as there is room, and once more if it executes now."""
        if key in self._threads:
            self._again.add(key)
            return
        tenant, run = key
        self._queued.setdefault(tenant, {})[run] = None
        self._begin()

    def _begin(self) -> None:
        """Begin threads while there is room. The tenant with the fewest threads is first."""
        while self._queued and self._worker is not None and len(self._threads) < self._concurrency:
            tenant = min(self._queued, key=self._active.__getitem__)
            runs = self._queued[tenant]
            key = (tenant, next(iter(runs)))
            del runs[key[1]]
            if not runs:
                del self._queued[tenant]
            self._active[tenant] += 1
            self._threads[key] = asyncio.create_task(self._continue(key))

    async def _continue(self, key: RunKey) -> None:
        """Execute the thread of a run until the run does not continue."""
        after_ms = None
        try:
            after_ms = await self._invoke(key)
            self._failed = False
        except StoreError as error:
            log.info("the thread of run %s stops, because the store is away: %s", key[1], error.what)
        except Exception:  # because a caller's checkpointer may raise anything; the bridge wakes the run again
            self._failed = True
            log.exception("the thread of run %s failed", key[1])
        finally:
            del self._threads[key]
            self._ends.pop(key, None)
            self._active -= Counter((key[0],))
            if key in self._again:
                self._again.discard(key)
                self._queue(key)
            elif after_ms is not None:
                asyncio.get_running_loop().call_later(after_ms / SECOND, self._queue, key)
            self._begin()

    async def _invoke(self, key: RunKey) -> int | None:
        """Execute the thread of a run once. Return after how many ms another slice can continue the run, if one can."""
        run, config = await self._load(key), config_of(*key)
        if run is not None:
            graph = self.graph(run)
            await graph.ainvoke(await _input(graph, config, run), config, durability=self._durability)
            run = await self._load(key)
        if self._forgets or run is None:
            await self._checkpointer.adelete_thread(config["configurable"]["thread_id"])
        end = self._ends.get(key)
        return end.after_ms if run is not None and end is not None and end.then == "due" else None

    def graph(self, run: Run) -> Graph:
        """Return the graph of the version of a `run`, or of the newest one of its workflow. Raises KeyError."""
        return self.graphs[reader_of(self._workflows, run).lane]

    async def _load(self, key: RunKey) -> Run | None:
        """Return the row of a run; None if the run is over or another engine schedules it. Raises StoreError."""
        run = await self._store.load(RUN, key)
        return None if run is None or is_over(run) or run.scheduler != NAME else run

    async def _execute(self, at: ThreadState) -> SliceEnd:
        key = (at["tenant_id"], at["run_id"])
        if self._worker is None:
            return SliceEnd("unserved", at["run_version"], why="no worker of this process serves LangGraph now")
        end = await self._worker.slice(*key, nodes=1, seen=at["run_version"])
        if key in self._threads:
            self._ends[key] = end
        return end

    async def _locate(self, at: ThreadState) -> str:
        run = await self._load((at["tenant_id"], at["run_id"]))
        return run.node if run is not None else ""


async def _input(graph: Graph, config: RunnableConfig, run: Run) -> ThreadState | Command[str] | None:
    """Return what continues the thread of a run."""
    thread = await graph.aget_state(config)
    seen = thread.values.get("run_version", 0)
    if seen > run.version:
        return ThreadState(tenant_id=run.tenant, run_id=run.run, run_version=seen)  # the next slice asks a person
    if thread.interrupts:  # all of them: the row says what the run still waits for
        return Command(resume={each.id: run.version for each in thread.interrupts})
    if thread.next:  # a process died while it executed the thread
        return None
    return ThreadState(tenant_id=run.tenant, run_id=run.run, run_version=run.version)


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
        durability: Durability = "exit",
    ) -> None:
        """Serve `workflows` over a `store`, with threads in a `checkpointer` (default: in memory).

        The caller closes both. `durability` is LangGraph's: "exit" writes a thread when its run waits, "sync" after
        each node, too. No run depends on it. The other parameters are those of `InProcessRuntime`.

        Raises DefinitionError.
        """
        threads = checkpointer if checkpointer is not None else InMemorySaver()
        self.guest = LangGraphGuest(store, workflows, threads, durability=durability, concurrency=concurrency)
        super().__init__(
            store, workflows, tenant=tenant, actor=actor, live=live, concurrency=concurrency, guest=self.guest
        )

    def graph(self, workflow: Workflow[Any]) -> Graph:
        """Return the graph of a `workflow`, to draw it or to read its threads. Raises KeyError."""
        return self.guest.graphs[workflow.scheduled_by(NAME).lane]

    def config(self, run: str) -> RunnableConfig:
        """Return LangGraph's configuration of the thread of a `run`."""
        return config_of(self.operations.tenant, run)
