"""The graph of a workflow, as LangGraph executes it.

Each node of the workflow is a node of the graph. It claims the run, executes one node of it, and goes where the row of
the run says. A run that does not continue is interrupted in the gate.
"""

from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import Any, Final, TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send, interrupt

from outlast.core.slices import SliceEnd
from outlast.errors import DefinitionError
from outlast.flow.workflow import Workflow

ROUTE: Final = "outlast.route"
GATE: Final = "outlast.gate"
OVER: Final = ("ended", "elsewhere", "gone")  # the thread ends, because no later slice of it can move the run


class ThreadState(TypedDict):
    """State of a thread: `tenant_id` and `run_id` of its run, and the `run_version` of the row that it saw last."""

    tenant_id: str
    run_id: str
    run_version: int


class WaitingThread(TypedDict):
    """Value of an interrupt: why the run does not continue, and what it waits for."""

    run_id: str
    why: str
    waits_for: list[dict[str, str]]


Execute = Callable[[ThreadState], Awaitable[SliceEnd]]
"""Claims the run and executes one node of it."""
Locate = Callable[[ThreadState], Awaitable[str]]
"""Returns the node that the row of the run names; '' if the run is over, or another engine schedules it."""


class Steps:
    """The functions of a graph's nodes."""

    def __init__(self, nodes: Collection[str], execute: Execute, locate: Locate) -> None:
        self._nodes = nodes
        self._execute = execute
        self._locate = locate

    async def route(self, state: ThreadState) -> Command[str]:
        """Go to the node that the run's row names; the thread may be behind it."""
        node = await self._locate(state)
        if node in self._nodes:
            return Command(goto=node)
        return await self._slice(state) if node else Command(goto=END)  # a version without this graph moves in a slice

    async def node(self, name: str, state: ThreadState) -> Command[str]:
        """Execute a node of the run, unless its row names another one."""
        return await self._slice(state) if await self._locate(state) == name else Command(goto=ROUTE)

    async def _slice(self, state: ThreadState) -> Command[str]:
        end = await self._execute(state)
        seen = {"run_version": end.version}
        if end.then in OVER:
            return Command(goto=END, update=seen)
        if end.then == "due" and not end.after_ms:
            return Command(goto=end.node if end.node in self._nodes else ROUTE, update=seen)
        gate = WaitingThread(run_id=state["run_id"], why=end.why, waits_for=[gate._asdict() for gate in end.gates])
        return Command(goto=Send(GATE, gate), update=seen)


async def wait(state: WaitingThread) -> Command[str]:
    """Interrupt the thread. The decision is in the store before the thread is resumed."""
    interrupt(state)
    return Command(goto=ROUTE)


def graph_of(workflow: Workflow[Any], execute: Execute, locate: Locate) -> "StateGraph[ThreadState]":
    """Return the graph of a workflow, to be compiled with a checkpointer.

    Raises DefinitionError if a node has the name of a field of the thread's state.
    """
    graph, steps = StateGraph(ThreadState), Steps(workflow.nodes, execute, locate)
    for name, node in workflow.nodes.items():
        if name in ThreadState.__annotations__:
            raise DefinitionError(
                f"{workflow.title} has a node {name!r}",
                "LangGraph's thread has a field of this name",
                "rename the node",
            )
        ends = (END,) if node.exits.ends else ()
        graph.add_node(name, partial(steps.node, name), destinations=(*node.exits.targets, *ends, GATE, ROUTE))
    graph.add_node(ROUTE, steps.route, destinations=(*workflow.nodes, END))
    graph.add_node(GATE, wait, destinations=(ROUTE,), input_schema=WaitingThread)
    graph.add_edge(START, ROUTE)
    return graph
