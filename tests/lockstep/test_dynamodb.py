"""Random commits leave memory and DynamoDB equal, row for row and outcome for outcome, in any order that counts.

`python -m tests.lockstep.test_dynamodb 170` lands 20,000 of them in a few minutes.
"""

import asyncio
import random
import sys
from collections.abc import Sequence
from secrets import token_hex

import pytest

from outlast.core.commit import Chain, Commit
from outlast.core.rows.all_kinds import KINDS, Row
from outlast.core.rows.store_rows import WRITER
from outlast.store.dynamodb.store import DynamoStore, open_dynamodb
from outlast.store.memory import MemoryCore
from tests.conformance.subject import HandClock
from tests.dynamodb import server
from tests.lockstep.test_lockstep import Move, described, play

BATCHES = (1, 3, 10, 40)
"""Numbers of commits that are submitted together. Those of one run or chain land in order, all others at once."""
PAGES = (None, 1, 7)


async def repeat(stores: Sequence[DynamoStore], clock: HandClock, moves: list[Move], seed: int) -> list[str]:
    """Land the same operations, several at once, over one store or several in turn. A take waits for all before it."""
    dice = random.Random(seed + 1)
    chains = [Chain() for _ in range(3)]
    heard: list[str] = []
    pending: list[asyncio.Future[object]] = []
    store = dice.choice(stores)

    async def flush() -> None:
        nonlocal store
        heard.extend(described(each) for each in await asyncio.gather(*pending, return_exceptions=True))
        pending.clear()
        store = dice.choice(stores)

    for move in moves:
        work = move.work
        if not move.outcome:
            await flush()
            chains[move.chain] = Chain()
            heard.append("")
            continue
        if move.at != clock.time or len(pending) >= dice.choice(BATCHES) or not isinstance(work, Commit):
            await flush()
            clock.time = move.at
        if isinstance(work, Commit):
            chain = None if move.chain < 0 else chains[move.chain]
            pending.append(store.submit(work, chain=chain))  # type: ignore[arg-type]
        else:
            heard.append(described(await store.take(work.lanes, work.n, work.step)))
    await flush()
    return heard


async def rows_of(store: DynamoStore) -> dict[str, list[Row]]:
    """Return every row of the store except the writers'."""
    return {kind.name: list(await store.rows(kind, ())) for kind in KINDS if kind is not WRITER}


async def lockstep(seed: int, writers: int, page_limit: int | None = None) -> int:
    """Compare both stores after the commits of a seed, and return their number."""
    core = MemoryCore(HandClock())
    moves = await play(seed, core, core.store_clock._clock)  # type: ignore[arg-type]
    env, clock = f"lockstep-{token_hex(6)}", HandClock()
    stores = [await open_dynamodb(server.url(env), writer=f"writer-{i}", clock=clock) for i in range(writers)]
    try:
        for store in stores:
            store._reads.items.page_limit = page_limit
        heard = await repeat(stores, clock, moves, seed)
        for i, (move, answer) in enumerate(zip(moves, heard, strict=True)):
            assert answer == move.outcome, (seed, i, move.work)
        expected = {kind.name: sorted(core.rows.under(kind, ())) for kind in KINDS if kind is not WRITER}
        assert await rows_of(stores[0]) == expected, seed
    finally:
        for store in stores:
            await store.close()
        await server.drop(env)
    return len(moves)


@pytest.mark.parametrize(("seed", "writers", "page_limit"), [(0, 1, None), (1, 2, None), (2, 2, 1), (3, 1, 7)])
def test_random_commits_leave_both_stores_equal(seed: int, writers: int, page_limit: int | None) -> None:
    asyncio.run(lockstep(seed, writers, page_limit))


if __name__ == "__main__":
    landed = 0
    for n in range(int(sys.argv[1])):
        landed += asyncio.run(lockstep(n, 1 + n % 2, PAGES[n % len(PAGES)]))
        sys.stdout.write(f"{n + 1} seeds, {landed:,} operations: equal\n")
