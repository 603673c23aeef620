"""Kills a durable emulator under load: `python -m tests.dynamodb.kills [NUMBER [SEED]]`. No done commit is lost."""

import asyncio
import random
import sys
import time
from secrets import token_hex

from tests.dynamodb import server
from tests.dynamodb.load import Driver, Ledger, audit, opened

RUNS = tuple(f"run-{i}" for i in range(8))
WRITERS = 2
BETWEEN = (5, 60)  # acknowledged commits
DEFAULT = (100, 1)


async def kill_under_load(kills: int, seed: int, made: server.Server, url: str) -> str:
    """Kill the server again and again while two writers move runs, audit the store and return what happened."""
    dice, ledger = random.Random(seed), Ledger()
    stores = [await opened(url, f"writer-{i}") for i in range(WRITERS)]
    drivers = [Driver(store, store.writer, ledger) for store in stores]
    driving = [asyncio.create_task(driver.drive(RUNS[i::WRITERS])) for i, driver in enumerate(drivers)]
    for _ in range(kills):
        enough = len(ledger.done) + dice.randint(*BETWEEN)
        while len(ledger.done) < enough:
            await asyncio.sleep(0.002)
            assert not any(task.done() for task in driving), [task for task in driving if task.done()]
        made.kill()
        await asyncio.sleep(dice.choice((0, 0.01, 0.1)))
        made.start()
    for driver in drivers:
        driver.stopped = True
    await asyncio.gather(*driving)
    for store in stores:
        await store.close()
    judge = await opened(url, "judge")
    moves = await audit(judge, RUNS, ledger)
    await judge.close()
    return (
        f"{kills} kills, {len(ledger.done)} commits acknowledged and there, {len(ledger.refused)} refused and absent, "
        f"{len(ledger.unknown)} uncertain, {moves} moves; errors: {ledger.errors}"
    )


def campaign(kills: int, seed: int) -> str:
    """Run on a server with a new folder, which is deleted."""
    server.credentials()
    made = server.Server(durable=True)
    env = f"kills-{token_hex(4)}"
    try:
        return asyncio.run(kill_under_load(kills, seed, made, server.url(env, made.endpoint)))
    finally:
        made.close()


if __name__ == "__main__":
    kills, seed = [*map(int, sys.argv[1:]), *DEFAULT[len(sys.argv) - 1 :]]
    began = time.monotonic()
    print(campaign(kills, seed), f"({time.monotonic() - began:.0f} s)")  # noqa: T201
