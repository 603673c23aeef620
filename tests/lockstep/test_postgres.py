"""Random commits leave memory and PostgreSQL equal, row for row and outcome for outcome, in any batches."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from functools import partial

import pytest

from outlast.core.commit import Chain, Commit
from outlast.core.rows.all_kinds import KINDS, Row
from outlast.core.rows.store_rows import WRITER
from outlast.errors import Rejected
from outlast.store.bounds import check
from outlast.store.memory import MemoryCore
from outlast.store.postgres import maintenance
from outlast.store.postgres.connection import Address
from outlast.store.postgres.session import PostgresSession
from outlast.store.postgres.store import PostgresStore, open_postgres
from outlast.store.store_clock import StoreClock
from outlast.store.tickets import Ticket
from tests import slices
from tests.conformance.subject import HandClock
from tests.lockstep.test_lockstep import Move, described, play
from tests.postgres.conftest import schema, url

__all__ = ["schema", "url"]

Landing = Callable[[PostgresSession, Sequence[Ticket]], Awaitable[None]]


async def together(session: PostgresSession, tickets: Sequence[Ticket]) -> None:
    assert not await session.land(tickets)


async def read_first(session: PostgresSession, tickets: Sequence[Ticket]) -> None:
    assert not await session._attempt(tickets, False)


async def one_by_one(session: PostgresSession, tickets: Sequence[Ticket]) -> None:
    for ticket in tickets:
        assert not await session._attempt((ticket,), False)


async def repeat(
    sessions: Sequence[PostgresSession], clock: HandClock, moves: list[Move], land: Landing, seed: int
) -> list[str]:
    """Land the same operations in batches of random size, by one writer or several in turn."""
    dice = random.Random(seed + 1)
    chains = [Chain() for _ in range(3)]
    heard: list[str] = []
    pending: list[Ticket] = []

    async def flush() -> None:
        if pending:
            await land(dice.choice(sessions), pending)
            heard.extend(described(ticket.answer) for ticket in pending)
            pending.clear()

    for move in moves:
        if not move.outcome:
            await flush()
            chains[move.chain] = Chain()
            heard.append("")
            continue
        if move.at != clock.time or len(pending) >= dice.choice((1, 3, 10, 40)):
            await flush()
            clock.time = move.at
        ticket = Ticket(move.work, Future(), None, None if move.chain < 0 else chains[move.chain])
        try:
            if isinstance(move.work, Commit):
                check(move.work)
        except Rejected as error:
            ticket.out_of_bounds = error
        pending.append(ticket)
    await flush()
    return heard


async def rows_of(store: PostgresStore) -> dict[str, list[Row]]:
    """Return every row of the store except the writers'."""
    return {kind.name: sorted(await store.rows(kind, ())) for kind in KINDS if kind is not WRITER}


@pytest.mark.parametrize("writers", [1, 2])
@pytest.mark.parametrize("land", [together, read_first, one_by_one])
@pytest.mark.parametrize("seed", slices.params(range(4), 2, "lockstep of PostgreSQL"))
def test_random_commits_leave_both_stores_equal(seed: int, land: Landing, writers: int, url: str) -> None:
    core = MemoryCore(HandClock())
    moves = asyncio.run(play(seed, core, core.store_clock._clock))  # type: ignore[arg-type]

    async def live() -> None:
        clock = HandClock()
        store = await open_postgres(url, writer="reader", clock=clock)
        sessions = [PostgresSession(Address.parse(url), f"writer-{i}", StoreClock(clock)) for i in range(writers)]
        for i, session in enumerate(sessions):
            await session.alone(partial(maintenance.register, writer=f"writer-{i}"), "register", receipt=False)
        heard = await repeat(sessions, clock, moves, land, seed)
        for i, (move, answer) in enumerate(zip(moves, heard, strict=True)):
            assert answer == move.outcome, (i, move.work)
        assert await rows_of(store) == {
            kind.name: sorted(core.rows.under(kind, ())) for kind in KINDS if kind is not WRITER
        }
        for session in sessions:
            await session.close()
        await store.close()

    asyncio.run(live())
