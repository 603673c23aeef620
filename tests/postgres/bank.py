"""Accounts in the database of the store, and a run that credits one. Used by the tests of transactions."""

import asyncio
import os
from datetime import timedelta
from typing import Any, Literal

import asyncpg
from pydantic import BaseModel

from outlast import Cancel, Context, Workflow, activity, role, this_call

TABLES = (
    "CREATE TABLE account (name TEXT PRIMARY KEY, cents BIGINT NOT NULL CHECK (cents <= 1000))",
    "CREATE TABLE booking (n BIGSERIAL PRIMARY KEY, name TEXT NOT NULL, cents BIGINT NOT NULL)",
    "INSERT INTO account VALUES ('alice', 0)",
)


class Books:
    """Behaviour of the activities' bodies, set by a test."""

    def __init__(self) -> None:
        self.calls = 0
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()
        self.inside = asyncio.Event()
        self.fail: list[Any] = []  # raised by the next bodies, or a function of their connection


books = Books()


class Credit(BaseModel):
    """One credit and the way to make it."""

    how: Literal["plain", "shared", "approved", "two", "serializable", "undone"]
    cents: int = 10
    said: str = ""


credit_runs = Workflow("credits", state=Credit, version=1)


def schema() -> str:
    """Return the schema of the accounts, which is not the store's."""
    return os.environ["BANK"]


async def book(name: str, cents: int) -> str:
    """Write a booking as an author does."""
    books.calls += 1
    db = this_call().transaction
    bank = schema()
    await db.execute(f"INSERT INTO {bank}.booking (name, cents) VALUES ($1, $2)", name, cents)
    total = await db.fetchval(
        f"UPDATE {bank}.account SET cents = cents + $2 WHERE name = $1 RETURNING cents", name, cents
    )
    books.inside.set()
    await books.may_go_on.wait()
    fail = books.fail.pop(0) if books.fail else None
    if isinstance(fail, Exception):
        raise fail
    if fail is not None:
        await fail(db)
    return f"{total}"


@activity(key="credit/{name}", transaction=True)
async def credit(name: str, cents: int) -> str:
    """Credit an account in the store's transaction."""
    return await book(name, cents)


@credit.undo(transaction=True)
async def debit(said: str, name: str, cents: int) -> None:
    """Undo a credit of the account."""
    await book(name, -cents)


@activity(key="shared/{name}", once_per="tenant", transaction=True, no_undo="booked is booked")
async def credit_once(name: str, cents: int) -> str:
    """Credit an account once per tenant."""
    return await book(name, cents)


@activity(key="serial/{name}", transaction="serializable", no_undo="booked is booked")
async def credit_serially(name: str, cents: int) -> str:
    """Credit an account in a serializable transaction."""
    return await book(name, cents)


@credit_runs.node(start=True)
async def give(ctx: Context[Credit]) -> None:
    """Credit an account as the run's input says."""
    state = ctx.state
    if state.how == "approved":
        plan = credit.plan("alice", state.cents)
        if not (await ctx.approval(plan, summary="a credit", by=role("finance"), within=timedelta(hours=9))).approved:
            raise Cancel("no")
    if state.how == "shared":
        state.said = await ctx.do(credit_once, "alice", state.cents)
    elif state.how == "serializable":
        state.said = await ctx.do(credit_serially, "alice", state.cents)
    else:
        state.said = await ctx.do(credit, "alice", state.cents)
    if state.how == "undone":
        raise Cancel("it was a mistake")


async def found(url: str) -> tuple[int, int]:
    """Return the cents of the account and the number of bookings."""
    db = await asyncpg.connect(url)
    try:
        cents = await db.fetchval(f"SELECT cents FROM {schema()}.account WHERE name = 'alice'")
        return int(cents), int(await db.fetchval(f"SELECT count(*) FROM {schema()}.booking"))
    finally:
        await db.close()


async def open_bank(url: str) -> None:
    """Create the tables of `BANK`."""
    db = await asyncpg.connect(url)
    try:
        await db.execute(f"CREATE SCHEMA {schema()}")
        for statement in TABLES:
            for name in ("account", "booking"):
                statement = statement.replace(f"TABLE {name}", f"TABLE {schema()}.{name}")
                statement = statement.replace(f"INTO {name}", f"INTO {schema()}.{name}")
            await db.execute(statement)
    finally:
        await db.close()
