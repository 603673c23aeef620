"""Workflows whose annotations are text, some of them not readable when the function is decorated."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel

from outlast import Context, Workflow, activity


class State(BaseModel):
    n: int = 0


shop = Workflow("late", state=State)


@activity(key="late/{ticket_id}", no_undo="a test")
async def early(ticket_id: str, ticket: Ticket) -> Ticket:
    return ticket


@shop.node(start=True)
async def first(ctx: Context[State]) -> Next:
    return "second"


@shop.node
async def second(ctx: Context[State]) -> None: ...


class Ticket(BaseModel):
    text: str


Next = Literal["second"]


def declared_in_a_function() -> Workflow[Any]:
    class Local(BaseModel):
        n: int = 0

    local = Workflow("local", state=Local)

    @local.node(start=True)
    async def only(ctx: Context[Local]) -> None: ...

    return local


def unreadable() -> Workflow[Any]:
    local = Workflow("unreadable", state=State)

    @local.node(start=True)
    async def only(ctx: Context[State]) -> Nowhere:  # type: ignore[name-defined]  # noqa: F821
        return None

    return local
