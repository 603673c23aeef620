"""Several processes on one file, and the state after a SIGKILL at every point of a batch."""

import asyncio
import itertools
import os
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from outlast.core import crash_points
from outlast.core.commit import Chain, Commit, Put
from outlast.core.rows.effect_rows import EFFECT
from outlast.core.rows.run_rows import EVENT, MESSAGE, RUN, Message, Run
from outlast.store.port import Store
from outlast.store.sqlite.database import OFF, Database
from outlast.store.sqlite.store import open_without_sync
from tests.conformance.subject import (
    LANE,
    append_message,
    claim_by,
    claimed,
    done,
    effect_row,
    event_row,
    fence,
    message_row,
    moved,
    put_run,
    run_row,
    start,
    the_run,
)
from tests.store.helpers import SystemWall, ended, forked, in_child, opened

Opener = Callable[[str], Awaitable[Store]]
STEPS = 4
AUDITORS = itertools.count()
STORE_POINTS = [name for name in crash_points.POINTS if name.startswith("store.batch")]


def sqlite(path: Path) -> Opener:
    """Return the function that opens a writer on a file."""
    return lambda writer: open_without_sync(path, writer=writer, clock=SystemWall())


async def life(opener: Opener, acknowledged: int, writer: str) -> None:
    """Take one run through a few effects, and write down each acknowledgement at once."""

    def tell(text: str) -> None:
        os.write(acknowledged, f"{text}\n".encode())

    store = await opener(writer)
    found = await store.load(RUN, ("acme", "run-1"))
    if found is None:
        await store.commit(start(run_row())._replace(label="run-1 start"))
        tell("start")
    row = await the_run(store)
    mine = claimed(row, writer, await store.now())
    await store.commit(Commit((Put(RUN, mine, row.version),), label="run-1 claim"))
    tell(f"epoch {mine.epoch}")
    while mine.seq <= STEPS:
        mine = await step(store, mine, tell)
    await store.close()


async def step(store: Store, mine: Run, tell: Callable[[str], None]) -> Run:
    """Intend, record and advance as the engine does, with a message beside them."""
    chain, guard = Chain(), fence(mine)
    effect = effect_row(key=f"invite/{mine.seq}")
    known = await store.load(EFFECT, effect[:4])
    if known is None:
        await store.commit(Commit((Put(EFFECT, effect, 0),), guard, label=f"run-1 intend {effect.key}"), chain=chain)
        tell(f"intend {mine.seq}")
    if known in (None, effect):
        write = Put(EFFECT, done(effect), 1)
        store.submit(Commit((write,), guard, label=f"run-1 record {effect.key}"), chain=chain, linger=True)
    message = store.submit(append_message(message_row(payload=b"%d" % mine.seq))._replace(label="run-1 post"))
    after = moved(mine, seq=mine.seq + 1)
    writes = (Put(RUN, after, mine.version), Put(EVENT, event_row(seq=after.seq), 0))
    await store.commit(Commit(writes, guard, label=f"run-1 advance {mine.seq}"), chain=chain)
    tell(f"advance {mine.seq}")
    tell(f"message {(await message).inbox_seq}")
    return after


def kill_at(number: int, written: int) -> crash_points.Hook:
    """Return a hook that kills this process at the n-th point, after writing down which."""
    count = 0

    def hook(name: str, labels: Sequence[str]) -> None:
        nonlocal count
        count += 1
        if count == number:
            os.write(written, f"{name} {'; '.join(labels)}\n".encode())
            os.kill(os.getpid(), signal.SIGKILL)

    return hook


async def audit(opener: Opener, acknowledged: list[str]) -> int:
    """Assert that acknowledged rows are there and rows are whole. Return how far the run got."""
    store = await opener(f"auditor-{next(AUDITORS)}")
    try:
        return await _audited(store, acknowledged)
    finally:
        await store.close()


async def _audited(store: Store, acknowledged: list[str]) -> int:
    (rows,) = await store.run_rows((("acme", "run-1"),))
    events = await store.rows(EVENT, ("acme", "run-1"))
    if rows is None:
        assert not acknowledged
        assert not events
        return 0
    assert [row[2] for row in events] == list(range(1, rows.run.seq + 1))
    assert [message.n for message in rows.messages] == list(range(1, rows.run.inbox_seq + 1))
    effects = {effect.key: effect for effect in rows.effects}
    for told in acknowledged:
        verb, _, number = told.partition(" ")
        n = int(number or 0)
        assert verb != "epoch" or rows.run.epoch >= n
        assert verb != "advance" or (rows.run.seq > n and effects[f"invite/{n}"].version == 2)
        assert verb != "intend" or f"invite/{n}" in effects
        assert verb != "message" or rows.run.inbox_seq >= n
    for n in range(1, rows.run.seq):
        assert effects[f"invite/{n}"].version == 2, "an advance landed without the record before it"
    return rows.run.seq


def one_life(folder: Path, opener: Opener, killed_at: int, writer: str) -> tuple[int, list[str], str]:
    """Run a process that dies at a point. Return how it ended, its acknowledgements, and the point."""
    told, where = folder / "told", folder / "where"
    where.unlink(missing_ok=True)

    def work() -> None:
        acknowledged = os.open(told, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        crash_points.hook = kill_at(killed_at, os.open(where, os.O_WRONLY | os.O_CREAT))
        asyncio.run(life(opener, acknowledged, writer))

    status = in_child(work)
    lines = told.read_text().splitlines() if told.exists() else []
    return status, lines, where.read_text() if where.exists() else ""


def every_kill(folder: Path, fresh: Callable[[int], Opener], *, every: int = 1, first: int = 1) -> list[str]:
    """Kill a process at each point of its life, or at one of `every`, and judge what is left.

    Another process continues to the same end. Returns the points.
    """
    died: list[str] = []
    for number in range(first, 1_000, every):
        opener, inside = fresh(number), folder / f"{number}"
        inside.mkdir()
        status, told, where = one_life(inside, opener, number, "writer-1")
        if status == 0:
            break
        assert status == -signal.SIGKILL
        died.append(where)
        asyncio.run(audit(opener, told))
        if number % 4 == 1:  # and once more, in the life that takes over
            status, told, _ = one_life(inside, opener, 5, "writer-2")
            assert status in (0, -signal.SIGKILL)
            asyncio.run(audit(opener, told))
        status, told, _ = one_life(inside, opener, 0, "writer-3")
        assert status == 0
        assert asyncio.run(audit(opener, told)) == STEPS + 1, "the next process goes on to the same end"
    return died


@pytest.mark.req("CKP-2", "RT-2")
def test_a_kill_at_every_point_loses_nothing_acknowledged(tmp_path: Path) -> None:
    """SIGKILL before, inside and after every batch of a run, then another process continues to the same end."""
    died = every_kill(tmp_path, lambda number: sqlite(tmp_path / f"{number}.db"))
    assert {name for name in STORE_POINTS if any(name in where for where in died)} == set(STORE_POINTS)
    for verb in ("start", "claim", "intend invite/1", "record", "advance 4", "post"):
        assert any(f"run-1 {verb}" in where for where in died), verb


@pytest.mark.parametrize("number", [1])
def test_a_kill_inside_a_migration_leaves_no_half_schema(number: int, tmp_path: Path) -> None:
    path = tmp_path / "s.db"

    def work() -> None:
        crash_points.hook = kill_at(number, os.open(tmp_path / "where", os.O_WRONLY | os.O_CREAT))
        Database(path, synchronous=OFF).migrate()

    assert in_child(work) == -signal.SIGKILL
    assert (tmp_path / "where").read_text().startswith("store.migration:inside")

    async def go_on() -> None:
        async with opened(path) as store:
            await store.commit(start(run_row()))

    asyncio.run(go_on())


def test_a_kill_around_a_checkpoint_loses_nothing(tmp_path: Path) -> None:
    """The log is copied under the lock. A kill before or after leaves every acknowledged row."""
    for i, name in enumerate(("store.checkpoint:before", "store.checkpoint:after")):
        path = tmp_path / f"{i}.db"

        def hook(reached: str, labels: Sequence[str], name: str = name) -> None:
            if reached == name:
                os.kill(os.getpid(), signal.SIGKILL)

        async def work(path: Path = path, hook: crash_points.Hook = hook) -> None:
            store = await open_without_sync(path, writer="writer-1", clock=SystemWall())
            await store.commit(start(run_row()))
            crash_points.hook = hook
            await store.close()

        assert in_child(lambda: asyncio.run(work())) == -signal.SIGKILL  # it is run at once

        async def look(path: Path = path) -> None:
            async with opened(path, f"auditor-{next(AUDITORS)}") as store:
                assert await the_run(store) == run_row()

        asyncio.run(look())


@pytest.mark.req("RUN-3", "REC-5")
def test_two_processes_share_a_file(tmp_path: Path) -> None:
    """Messages, takes and moves of two processes: none lost, none numbered twice, no run taken twice."""
    path, n = tmp_path / "s.db", 40

    async def prepare() -> None:
        async with opened(path) as store:
            await asyncio.gather(*(store.commit(start(run_row(f"run-{i:02}"))) for i in range(n)))

    async def work(name: str) -> None:
        store = await open_without_sync(path, writer=name, clock=SystemWall())
        mine: list[Run] = []
        posts = [store.submit(append_message(message_row("run-00", name.encode()))) for _ in range(n)]
        while some := await store.take((LANE,), 3, claim_by(name)):
            mine += some
            for run in some:
                await store.commit(put_run(run, node=name)._replace(fence=fence(run)))
        await asyncio.gather(*posts)
        (tmp_path / f"{name}.txt").write_text(" ".join(run.run for run in mine))
        await store.close()

    async def check() -> None:
        async with opened(path, f"auditor-{next(AUDITORS)}") as store:
            messages = [row for row in await store.rows(MESSAGE, ("acme", "run-00")) if isinstance(row, Message)]
            assert [message.n for message in messages] == list(range(1, 2 * n + 1))
            assert sorted(message.payload for message in messages) == [b"child-0"] * n + [b"child-1"] * n
            taken = {name: (tmp_path / f"{name}.txt").read_text().split() for name in ("child-0", "child-1")}
            assert sorted(taken["child-0"] + taken["child-1"]) == [f"run-{i:02}" for i in range(n)]
            for name, runs in taken.items():
                for run in runs:
                    row = await the_run(store, run)
                    assert (row.owner, row.node, row.version, row.epoch) == (name, name, 3, 1)

    asyncio.run(prepare())
    pids = [forked(lambda name=name: asyncio.run(work(name))) for name in ("child-0", "child-1")]  # type: ignore[misc]
    assert [ended(pid) for pid in pids] == [0, 0]
    asyncio.run(check())


def test_waiting_processes_get_the_lock_in_turn(tmp_path: Path) -> None:
    """The lock is a queue: a waiting process gets it although another never stops writing."""
    path = tmp_path / "s.db"
    stop = tmp_path / "stop"

    async def greedy() -> None:
        store = await open_without_sync(path, writer="greedy", clock=SystemWall())
        await store.commit(start(run_row("greedy")))
        seq = 1
        while not stop.exists():
            batch = [Commit((Put(EVENT, event_row("greedy", seq + i + 1), 0),)) for i in range(50)]
            seq += 50
            await asyncio.gather(*(store.submit(commit) for commit in batch))
        await store.close()

    async def modest() -> float:
        async with opened(path, "modest") as store:
            while await store.load(RUN, ("acme", "greedy")) is None:  # noqa: ASYNC110  # no event crosses processes
                await asyncio.sleep(0.001)  # the other process has no event to set here
            longest = 0.0
            for i in range(30):
                before = time.monotonic()
                await store.commit(start(run_row(f"run-{i}")))
                longest = max(longest, time.monotonic() - before)
            return longest

    pid = forked(lambda: asyncio.run(greedy()))
    try:
        assert asyncio.run(modest()) < 1.0
    finally:
        stop.touch()
        assert ended(pid) == 0


def test_a_message_of_another_process_wakes_within_a_moment(tmp_path: Path) -> None:
    """A subscriber learns of another process's commit within 20 ms, plus delays of a loaded machine."""
    path = tmp_path / "s.db"

    async def poster() -> None:
        store = await open_without_sync(path, writer="poster", clock=SystemWall())
        await store.commit(append_message(message_row()))
        await store.close()

    async def listen() -> None:
        async with opened(path) as store:
            await store.commit(start(run_row()))
            woken = asyncio.Event()
            end = store.on_change(woken.set)
            await asyncio.sleep(0.1)
            woken.clear()
            pid = forked(lambda: asyncio.run(poster()))
            assert await asyncio.to_thread(ended, pid) == 0
            await asyncio.wait_for(woken.wait(), 20)
            end()

    asyncio.run(listen())
