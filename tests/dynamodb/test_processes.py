"""Several processes on one environment, and the state after a SIGKILL of a process or of the server."""

import asyncio
from pathlib import Path

import pytest

from outlast.core.rows.run_rows import MESSAGE, Message, Run
from outlast.store.dynamodb.store import open_dynamodb
from outlast.store.port import Store
from tests.conformance.subject import (
    LANE,
    append_message,
    claim_by,
    fence,
    message_row,
    put_run,
    run_row,
    start,
    the_run,
)
from tests.dynamodb import kills, server
from tests.dynamodb.load import Driver, Ledger, audit, opened
from tests.store.helpers import SystemWall, ended, forked
from tests.store.test_processes import STORE_POINTS, Opener, every_kill


class Ahead(SystemWall):
    """The machine's wall clock, some hours ahead."""

    def __init__(self, hours: int) -> None:
        super().__init__()
        self._hours = hours

    def wall(self) -> int:
        return super().wall() + self._hours * 3_600_000


WRITERS = ("child-0", "child-1")


def at(url: str) -> Opener:
    """Return the function that opens a writer on an environment. The clock of writer-3 is three hours ahead.

    So the recovery lock of an earlier writer has expired.
    """

    async def later(writer: str) -> Store:
        return await open_dynamodb(url, writer=writer, clock=Ahead(int(writer.rpartition("-")[2])))

    return later


@pytest.mark.req("RT-5", "CKP-1")
def test_a_server_killed_under_load_loses_nothing_acknowledged() -> None:
    """Three kills. `python -m tests.dynamodb.kills` makes a hundred."""
    assert kills.campaign(3, seed=1).startswith("3 kills")


@pytest.mark.req("RT-5", "RUN-3")
def test_two_processes_move_the_same_runs(url: str, tmp_path: Path) -> None:
    """Each takes runs from the other again and again. Each acknowledged row is there, and nothing else."""
    runs = ("run-1", "run-2", "run-3")

    async def work(name: str) -> None:
        store = await opened(url, name)
        ledger = Ledger()
        await Driver(store, name, ledger).drive(runs, lambda: len(ledger.done) >= 60)
        await store.close()
        (tmp_path / name).write_text(ledger.text())

    async def judge() -> Ledger:
        store = await opened(url, "judge")
        ledger = Ledger.merged((tmp_path / name).read_text() for name in WRITERS)
        assert await audit(store, runs, ledger) > 20
        await store.close()
        return ledger

    pids = [forked(lambda name=name: asyncio.run(work(name))) for name in WRITERS]  # type: ignore[misc]
    assert [ended(pid) for pid in pids] == [0, 0]
    ledger = asyncio.run(judge())
    assert ledger.errors.get("Stale", 0) > 0 and len(ledger.done) >= 120


@pytest.mark.req("RUN-3", "REC-5")
def test_two_processes_share_an_environment(url: str, tmp_path: Path) -> None:
    """Messages, takes and moves of two processes: none lost, none numbered twice, no run taken twice."""
    n = 20

    async def prepare() -> None:
        store = await opened(url, "first")
        await asyncio.gather(*(store.commit(start(run_row(f"run-{i:02}"))) for i in range(n)))
        await store.close()

    async def work(name: str) -> None:
        store = await opened(url, name)
        mine: list[Run] = []
        posts = [store.submit(append_message(message_row("run-00", name.encode()))) for _ in range(n)]
        while some := await store.take((LANE,), 3, claim_by(name)):
            mine += some
            for run in some:
                await store.commit(put_run(run, node=name)._replace(fence=fence(run)))
        await asyncio.gather(*posts)
        (tmp_path / name).write_text(" ".join(run.run for run in mine))
        await store.close()

    async def check() -> None:
        store = await opened(url, "judge")
        messages = [row for row in await store.rows(MESSAGE, ("acme", "run-00")) if isinstance(row, Message)]
        assert [message.n for message in messages] == list(range(1, 2 * n + 1))
        assert sorted(message.payload for message in messages) == [b"child-0"] * n + [b"child-1"] * n
        taken = {name: (tmp_path / name).read_text().split() for name in WRITERS}
        assert sorted(run for runs in taken.values() for run in runs) == [f"run-{i:02}" for i in range(n)]
        for name, runs in taken.items():
            for run in runs:
                row = await the_run(store, run)
                assert (row.owner, row.node, row.version, row.epoch) == (name, name, 3, 1)
        await store.close()

    asyncio.run(prepare())
    pids = [forked(lambda name=name: asyncio.run(work(name))) for name in WRITERS]  # type: ignore[misc]
    assert [ended(pid) for pid in pids] == [0, 0]
    asyncio.run(check())


@pytest.mark.req("CKP-2", "RT-2")
def test_a_process_killed_around_a_transaction_loses_nothing_acknowledged(env: str, tmp_path: Path) -> None:
    """SIGKILL before, inside and after each of some transactions. Another process continues to the same end."""
    made: list[str] = []

    def fresh(number: int) -> Opener:
        made.append(f"{env}-{number}")
        return at(server.url(made[-1]))

    try:
        died = every_kill(tmp_path, fresh, every=7, first=3)
    finally:
        for each in made:
            asyncio.run(server.discard(each))
    assert {name for name in STORE_POINTS if any(name in where for where in died)} == set(STORE_POINTS)
    assert len(died) >= 5, died
