"""A database outage longer than the heartbeat window ends no worker: each logs it once and continues afterwards."""

import asyncio
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from outlast.core.approvals import Actor
from outlast.core.machine import ApprovalStatus
from outlast.core.rows.store_rows import STORE, WORKER
from outlast.errors import OutlastError
from outlast.runtime.operations import Operations
from outlast.runtime.stores import open_store
from tests.chaos import flows
from tests.chaos.fleet import START_S, Fleet
from tests.postgres.server import Server

WINDOW_S = 3.0  # heartbeat window of chaos.fleet.LIVE
PATIENCE_S = 120.0  # below the time limit of a test, so that a failure shows the logs


def when(holds: Callable[[], object], said: Callable[[], str]) -> None:
    give_up = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < give_up, said()
        time.sleep(0.1)


@pytest.mark.req("REC-3", "REC-5", "RT-5")
def test_every_worker_survives_a_long_outage_and_logs_it_once(tmp_path: Path) -> None:
    server = Server(fsync="on")
    fleet = Fleet(tmp_path, f"{server.url}?schema=away", wires=False)
    try:
        for _ in range(2):
            fleet.hire(random.Random(0))
        fleet.await_serving()
        asyncio.run(_all_registered(fleet.store, 2))
        server.kill()

        def logs() -> list[str]:
            return [path.read_text() for path in sorted(tmp_path.glob("worker-*.log"))]

        def said() -> str:
            return "\n\n".join(logs())

        when(lambda: all("starting no new work" in log for log in logs()), said)
        time.sleep(WINDOW_S + 1)  # the length of the outage is the condition under test
        server.start()
        when(lambda: all("is available again" in log or "continues as" in log for log in logs()), said)
        assert asyncio.run(_serve_again(fleet.store)) == 2
        assert [log.count("starting no new work") for log in logs()] == [1, 1], said()
        assert "Traceback" not in said()
        assert fleet.drain() == [0, 0]
    finally:
        fleet.close()
        server.close()


async def _all_registered(url: str, n: int) -> None:
    """True if every worker has written its row. A worker that cannot write it ends."""
    store = await open_store(url)
    try:
        give_up = time.monotonic() + PATIENCE_S
        while len(await store.rows(WORKER, (STORE,))) < n:
            assert time.monotonic() < give_up
            await asyncio.sleep(0.05)
    finally:
        await store.close()


async def _serve_again(url: str) -> int:
    """Wait until a run reaches its approval. Returns the number of serving workers."""
    store = await open_store(url)
    try:
        ops = Operations(store, tenant="default", actor=Actor("me"), workflows={"gate": flows.gate})
        await ops.start_run("gate", {"n": 1}, run_id="g1")
        give_up = time.monotonic() + START_S
        while time.monotonic() < give_up:
            pending, _ = await ops.rows.approvals(status=ApprovalStatus.PENDING.value)
            rows, now = await ops.rows.workers(), (await store.now()).real
            alive = [row for row in rows if row.status.value == "alive" and row.lease_until > now]
            if pending and len(alive) == 2:
                return len(alive)
            await asyncio.sleep(0.2)
        return -1
    except OutlastError as error:
        raise AssertionError(str(error)) from error
    finally:
        await store.close()
