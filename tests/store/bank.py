"""Accounts in the file of a SQLite store, and runs that credit one. Also a worker that kills itself at a point.

python -m tests.store.bank URL POINT     serves until a credit reaches the point
"""

import asyncio
import os
import signal
import sqlite3
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

from outlast import Context, Workflow, activity, this_call
from outlast.core import crash_points
from outlast.core.durations import Liveness
from outlast.runtime.local_worker import worker_of
from outlast.runtime.stores import open_store

TABLES = """
CREATE TABLE app_account (name TEXT PRIMARY KEY, cents INTEGER NOT NULL CHECK (cents <= 1000));
CREATE TABLE app_booking (n INTEGER PRIMARY KEY AUTOINCREMENT, run TEXT NOT NULL, cents INTEGER NOT NULL);
INSERT INTO app_account VALUES ('alice', 0);
"""
LIVE = Liveness(heartbeat_window=1_500, heartbeat_every=400, attempt_timeout=8_000)
ADD = "UPDATE app_account SET cents = cents + ? WHERE name = ?"


class Credit(BaseModel):
    """One credit."""

    how: Literal["plain", "read", "other", "many", "slow", "late"] = "plain"
    cents: int = 10
    booked: str = ""


hooks: list[Callable[[Any], Any]] = []
"""Called by the next bodies with their connection."""
credits_ = Workflow("credits", state=Credit, version=1)


@activity(key="credit/{name}", once_per="run", transaction=True)
async def credit(name: str, cents: int, how: str) -> str:
    """Credit an account in the transaction of the effect."""
    db = this_call().transaction
    if hooks:
        await hooks.pop(0)(db)
    if how == "read":
        before = await db.fetchval("SELECT cents FROM app_account WHERE name = ?", name)
        text = "UPDATE app_account SET cents = ? WHERE name = ? AND cents = ?"
        await db.execute(text, before + cents, name, before, rows=1)
    else:
        await db.execute(ADD, cents, name, rows=1)
    await db.execute("INSERT INTO app_booking (run, cents) VALUES (?, ?)", this_call().run_id, cents)
    return str(cents)


@credit.undo(transaction=True)
async def debit(done: str, name: str, cents: int, how: str) -> None:
    """Undo a credit."""
    await this_call().transaction.execute(ADD, -cents, name, rows=1)


@credits_.node(start=True)
async def give(ctx: Context[Credit]) -> None:
    """Credit the account of alice."""
    ctx.state.booked = await ctx.do(credit, "alice", ctx.state.cents, ctx.state.how)


def make(path: Path) -> None:
    """Create the tables in the file of a store, as an author does."""
    with sqlite3.connect(path) as db:
        db.executescript(TABLES)
    db.close()


def found(path: Path) -> tuple[int, int]:
    """Return the cents of the account and the number of bookings."""
    db = sqlite3.connect(path)
    try:
        (cents,) = db.execute("SELECT cents FROM app_account").fetchone()
        (bookings,) = db.execute("SELECT count(*) FROM app_booking").fetchone()
        return cents, bookings
    finally:
        db.close()


async def serve(url: str, place: str) -> None:
    """Run a worker until a credit reaches the point."""

    def die(name: str, labels: Sequence[str]) -> None:
        if name == place and any(label.endswith("credit/alice") for label in labels):
            os.kill(os.getpid(), signal.SIGKILL)

    crash_points.hook = die
    await worker_of(await open_store(url), [credits_], live=LIVE).run()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], sys.argv[2]))
