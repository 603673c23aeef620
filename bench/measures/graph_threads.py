"""Bytes and time of a growing LangGraph thread: OutlastSaver beside LangGraph's own saver of the same database.

One graph appends a message of 100 characters in each of 998 steps. With its input and its start these are 1,000
checkpoints, with the writes of each.
The text is random, so nothing is gained by compressing it. `values` keeps the list in a channel with a reducer, and
`deltas` in LangGraph's `DeltaChannel`. A thread's bytes are those by which the database grew after its schema was made:
tables with indexes on PostgreSQL, the file after a checkpoint of its log on SQLite.
"""

import operator
import time
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from random import Random
from typing import Annotated, Any, NamedTuple, TypedDict

from langchain_core.runnables import RunnableConfig
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, StateGraph
from psycopg import connect

from bench.engines import Place, Setup
from bench.figures import Figures, Goal, Size
from outlast.langgraph import OutlastSaver

STORES = ("sqlite", "postgres")
REPEATS = 3
MEGA = 1_000_000
MESSAGE_BYTES = 75  # 100 characters of base64
BEFORE = 2  # checkpoints of the input and of the start
THREAD = "growing"
SCHEMA = "theirs"
NAMES = ("values_ours", "values_theirs", "deltas_ours", "deltas_theirs")
EACH = (
    Goal("mb", "MB", digits=2),
    Goal("step_ms", "ms", digits=2),
    Goal("step_cpu_ms", "ms", digits=2),
    Goal("read_ms", "ms", digits=1),
)
GOALS = (Goal("checkpoints", ""), *(goal._replace(name=f"{name}_{goal.name}") for name in NAMES for goal in EACH))


def extended(log: list[str], writes: Sequence[list[str]]) -> list[str]:
    """Return the list with the messages of one step."""
    return [*log, *(message for write in writes for message in write)]


class Values(TypedDict):
    """A list that each checkpoint names whole."""

    log: Annotated[list[str], operator.add]


class Deltas(TypedDict):
    """A list of which LangGraph keeps a snapshot now and then, and the writes since."""

    log: Annotated[list[str], DeltaChannel(extended)]


class Saver(NamedTuple):
    """A checkpointer under measurement: how it is opened on an empty database."""

    name: str
    opened: Callable[[Place], AbstractContextManager[BaseCheckpointSaver[Any]]]


def measure(size: Size, setup: Setup) -> Figures:
    """Grow one thread with each saver and each kind of channel, each on a new database."""
    checkpoints = size.of(1_000, 200, 5)
    steps = checkpoints - BEFORE
    found: Figures = {"checkpoints": checkpoints}
    for kind, state in (("values", Values), ("deltas", Deltas)):
        for saver in (Saver("ours", ours), Saver("theirs", theirs)):
            with setup.engine.place() as place:
                with saver.opened(place):
                    pass  # creates the schema
                empty = setup.engine.kept(place)
                figures = grown(saver, place, state, steps)
                figures["mb"] = (setup.engine.kept(place) - empty) / MEGA
            found |= {f"{kind}_{saver.name}_{name}": value for name, value in figures.items()}
    return found


def grown(saver: Saver, place: Place, state: Any, steps: int) -> Figures:
    """Invoke a graph that appends a message in each step, then read its state with a saver that knows nothing yet."""
    thread = RunnableConfig(configurable={"thread_id": THREAD}, recursion_limit=steps + 10)
    with saver.opened(place) as checkpointer:
        graph = graph_of(state, steps).compile(checkpointer=checkpointer)
        cpu, begun = time.process_time(), time.perf_counter()
        graph.invoke({"log": []}, thread, durability="sync")
        took, used = time.perf_counter() - begun, time.process_time() - cpu
    with saver.opened(place) as checkpointer:
        graph = graph_of(state, steps).compile(checkpointer=checkpointer)
        begun = time.perf_counter()
        log = graph.get_state(thread).values["log"]
        read = time.perf_counter() - begun
        kept = sum(1 for _ in checkpointer.list(thread))
    if len(log) != steps or kept != steps + BEFORE:
        raise RuntimeError(f"{saver.name} has {len(log)} messages in {kept} checkpoints after {steps} steps")
    return {"step_ms": took / steps * 1_000, "step_cpu_ms": used / steps * 1_000, "read_ms": read * 1_000}


def graph_of(state: Any, steps: int) -> StateGraph[Any]:
    """Return a graph of one node that appends message after message."""

    def append(found: Any) -> dict[str, list[str]]:
        return {"log": [message(len(found["log"]))]}

    def follows(found: Any) -> str:
        return "append" if len(found["log"]) < steps else "__end__"

    graph = StateGraph(state).add_node("append", append).add_edge(START, "append")
    return graph.add_conditional_edges("append", follows, ["append", "__end__"])


def message(number: int) -> str:
    """Return the same random characters for the same number."""
    return b64encode(Random(number).randbytes(MESSAGE_BYTES)).decode()


def ours(place: Place) -> AbstractContextManager[BaseCheckpointSaver[Any]]:
    """Open OutlastSaver."""
    return OutlastSaver.open_sync(place.url)


@contextmanager
def theirs(place: Place) -> Iterator[BaseCheckpointSaver[Any]]:
    """Open LangGraph's saver on the same kind of database, in a schema that counts as ours does."""
    kind, _, rest = place.url.partition(":")
    if kind == "sqlite":
        with SqliteSaver.from_conn_string(str(Path(rest))) as saver:
            saver.setup()
            yield saver
        return
    with connect(place.url, autocommit=True) as db:
        db.execute(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
    with PostgresSaver.from_conn_string(f"{place.url}?options=-csearch_path%3D{SCHEMA}") as saver:
        saver.setup()
        yield saver
