"""Tools, scripted answers and small helpers of the tests of agents."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from outlast import Workflow, activity, lookup
from outlast.agent import ModelAnswer, ToolCall
from outlast.testing import App

DONE: list[tuple[Any, ...]] = []
"""Calls of tools, in order."""


@activity(key="ticket/{title}", no_undo="a ticket stays")
async def open_ticket(title: str, urgent: bool = False) -> dict[str, str]:
    """Open a ticket with a title.

    A second ticket needs another title.
    """
    DONE.append(("ticket", title, urgent))
    return {"id": f"T-{title}"}


@activity(key="refund/{order}", once_per="run", no_undo="money is not taken back")
async def refund(order: str, cents: int) -> str:
    """Pay back an order."""
    DONE.append(("refund", order, cents))
    return f"R-{order}"


@lookup
async def read_log(lines: int) -> str:
    """Read the last lines of the log."""
    DONE.append(("log", lines))
    return "".join(f"{n:07d} " for n in range(lines))


@lookup
async def broken(why: str) -> str:
    """Look up something that does not answer."""
    raise ConnectionResetError(why)


TOOLS = [open_ticket, refund, read_log, broken]


def asks(*given: tuple[str, Any], text: str = "") -> ModelAnswer:
    """Return an answer that asks for these calls, each as (tool, arguments)."""
    calls = tuple(ToolCall(id=f"c{n}", tool=tool, arguments=args) for n, (tool, args) in enumerate(given))
    return ModelAnswer(text=text, calls=calls, input_tokens=100, output_tokens=10)


def results(run: Any) -> list[str]:
    """Return the texts of the messages that give results to the model."""
    return [m.text for m in run.state.messages if m.role == "tool"]


@contextmanager
def running(flow: Workflow[Any], given: Any = None) -> Iterator[tuple[App, Any]]:
    """Start a run in virtual time and yield the app and the run."""
    DONE.clear()
    app = App((flow,))
    try:
        yield app, app.start(flow, given if given is not None else {"objective": "fix it"})
    finally:
        app.close()


def admissions(app: App, run: Any) -> list[dict[str, Any]]:
    """Return the recorded outcomes of admission, in order."""
    rows = app.rows(run.id).memos
    return [json.loads(row.response or b"") for row in rows if row.activity == "outlast.admission"]


def history(app: App, run: Any) -> list[str]:
    """Return the texts of log entries and denials of a run."""
    return [str(e.data().get("text", "")) for e in app.events(run.id) if "text" in e.data()]
