"""Accounts in the database of the store, and a run that credits one of them: what the tests of transactions serve."""

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
    """What the tests make the bodies do."""

    def __init__(self) -> None:
        self.calls = 0
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()
        self.inside = asyncio.Event()
        self.fail: list[Any] = []  # what the next bodies raise; or a function of their connection that they await


books = Books()


class Credit(BaseModel):
    """One credit, and how it was asked for."""

    how: Literal["plain", "shared", "approved", "two", "serializable", "undone"]
    cents: int = 10
    said: str = ""


credit_runs = Workflow("credits", state=Credit, version=1)


def schema() -> str:
    """Where the accounts are: not in the store's schema."""
    return os.environ["BANK"]


async def book(name: str, cents: int) -> str:
    """The write itself, as an author has it."""
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
    """Credit an account."""
    return await book(name, cents)


@credit.undo(transaction=True)
async def debit(said: str, name: str, cents: int) -> None:
    """Take it back."""
    await book(name, -cents)


@activity(key="shared/{name}", once_per="tenant", transaction=True, no_undo="booked is booked")
async def credit_once(name: str, cents: int) -> str:
    """Credit an account once, whoever asks."""
    return await book(name, cents)


@activity(key="serial/{name}", transaction="serializable", no_undo="booked is booked")
async def credit_serially(name: str, cents: int) -> str:
    """Credit an account as if alone."""
    return await book(name, cents)


@credit_runs.node(start=True)
async def give(ctx: Context[Credit]) -> None:
    """Credit as asked."""
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
    """The cents of the account, and how many bookings there are."""
    db = await asyncpg.connect(url)
    try:
        cents = await db.fetchval(f"SELECT cents FROM {schema()}.account WHERE name = 'alice'")
        return int(cents), int(await db.fetchval(f"SELECT count(*) FROM {schema()}.booking"))
    finally:
        await db.close()


async def open_bank(url: str) -> None:
    """Make the schema of `BANK`."""
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
