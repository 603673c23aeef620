"""A commit lands once or not at all, and its answer says which, whatever happens to its requests (S-9)."""

import asyncio
from typing import Any

import pytest

from outlast.core.commit import Commit, Put
from outlast.core.deliveries import subscribed_tenants_row
from outlast.core.machine import LeaseStatus
from outlast.core.outbox_rows import UNPUBLISHED
from outlast.core.rows import META, RUN, STORE, TOKEN, WRITER
from outlast.errors import Stale, Unavailable, Uncertain
from outlast.store.dynamodb import landing
from tests.conformance.subject import (
    append_message,
    event_row,
    message_row,
    moved,
    put_run,
    puts,
    run_row,
    start,
    token_row,
)
from tests.dynamodb.proxy import Fate
from tests.dynamodb.writers import Bench, on_a_bench

WRITE = "TransactWriteItems"
UPDATE = "UpdateItem"
RUN_1 = ("acme", "run-1")


def operations(bench: Bench) -> list[str]:
    return [request.operation for request in bench.through.record]


@on_a_bench
async def test_a_commit_is_one_request(bench: Bench) -> None:
    a = await bench.writer()
    await a.land(start(run_row()))
    await a.land(append_message(message_row()))
    await a.land(put_run(run_row()))
    assert operations(bench) == [WRITE, WRITE, WRITE]
    assert (await bench.row(RUN, RUN_1)) == moved(run_row())._replace(inbox_seq=1)
    assert (await bench.row(WRITER, (STORE, a.name))).batch == 3


@pytest.mark.parametrize("fate", [Fate.LOSE, Fate.HALF, Fate.FAIL_AFTER])
def test_a_lost_answer_is_resolved_by_the_receipt(fate: Fate, env: str) -> None:
    """The transaction landed. It is not sent again, neither by the writer nor by the library below it."""

    async def lost(bench: Bench) -> None:
        a = await bench.writer()
        bench.through.rule(WRITE, fate)
        bench.clock.time += 5
        await a.land(start(run_row()))
        assert operations(bench) == [WRITE, UPDATE, "GetItem"]
        assert await bench.row(RUN, RUN_1) == run_row()
        await a.land(put_run(run_row()))
        assert (await bench.row(WRITER, (STORE, a.name))).batch == 2

    on_a_bench(lost)(env)


@pytest.mark.parametrize("fate", [Fate.DROP, Fate.FAIL])
def test_a_lost_request_is_fenced_off_and_sent_again(fate: Fate, env: str) -> None:
    async def lost(bench: Bench) -> None:
        a = await bench.writer()
        bench.through.rule(WRITE, fate)
        await a.land(start(run_row()))
        assert operations(bench) == [WRITE, UPDATE, WRITE]
        assert (await bench.row(WRITER, (STORE, a.name))).batch == 3  # 1 was lost, 2 is the fence

    on_a_bench(lost)(env)


@pytest.mark.parametrize("fate", [Fate.LOSE, Fate.DROP, Fate.CONFLICT, Fate.THROTTLE, Fate.FAIL_AFTER])
@pytest.mark.parametrize("landed", [True, False])
def test_the_fence_may_be_lost_too(fate: Fate, landed: bool, env: str) -> None:
    async def lost(bench: Bench) -> None:
        a = await bench.writer()
        bench.through.rule(WRITE, Fate.LOSE if landed else Fate.DROP)
        bench.through.rule(UPDATE, fate, 2)
        await a.land(append_of_a_new_run())
        assert len(bench.through.seen(WRITE)) == (1 if landed else 2)
        assert await bench.row(TOKEN, token_row()[:3]) == token_row()

    on_a_bench(lost)(env)


def append_of_a_new_run() -> Commit:
    return Commit((*start(run_row()).writes, *puts(token_row())))


async def held_back(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> int:
    """Hold a transaction back, have it answered as not landed, let it go, and return the server's status."""
    monkeypatch.setattr(landing, "TURNS_MAX", 4)
    a = await bench.writer(answer_s=0.2)
    bench.through.rule(WRITE, Fate.HOLD)
    bench.through.rule(WRITE, Fate.CONFLICT, 1_000)
    with pytest.raises(Unavailable) as refused:
        await a.land(Commit(puts(token_row())))
    assert refused.value.landed is False
    (released,) = await asyncio.to_thread(bench.through.release)
    return released.status


def test_a_late_request_finds_the_fence(env: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that reaches the server after its commit was refused has no effect."""

    async def late(bench: Bench) -> None:
        assert await held_back(bench, monkeypatch) == 400
        assert await bench.row(TOKEN, token_row()[:3]) is None

    on_a_bench(late)(env)


def test_without_receipts_a_late_request_lands(env: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above sees the difference: the receipt is what refuses it."""
    made = landing.actions

    def without(*args: Any, **kwargs: Any) -> Any:
        return made(*args, **kwargs)[1:]

    async def late(bench: Bench) -> None:
        monkeypatch.setattr(landing, "actions", without)
        assert await held_back(bench, monkeypatch) == 200
        assert await bench.row(TOKEN, token_row()[:3]) is not None

    on_a_bench(late)(env)


@on_a_bench
async def test_conflicts_and_throttling_are_no_answers(bench: Bench) -> None:
    a = await bench.writer()
    bench.through.rule(WRITE, Fate.CONFLICT, 3)
    bench.through.rule(WRITE, Fate.THROTTLE, 3)
    await a.land(start(run_row()))
    assert operations(bench) == [WRITE] * 7
    assert (await bench.row(WRITER, (STORE, a.name))).batch == 1


@on_a_bench
async def test_an_outdated_run_is_read_and_judged_again(bench: Bench) -> None:
    """A refusal is an answer only by rows that were read after the commit was submitted."""
    a, b = await bench.writer(), await bench.writer("writer-b", direct=True)
    await a.land(start(run_row()))
    await b.land(put_run(run_row()))
    bench.through.record.clear()
    await a.land(put_run(moved(run_row())))
    assert operations(bench) == ["BatchGetItem", WRITE]
    await b.land(append_message(message_row()))
    bench.through.record.clear()
    done = await a.land(append_message(message_row()))
    assert done.inbox_seq == 2
    assert operations(bench) == [WRITE, "BatchGetItem", WRITE]
    with pytest.raises(Stale, match="version"):
        await a.land(put_run(run_row()))
    assert (await bench.row(WRITER, (STORE, a.name))).batch == 3


def test_an_unresolved_answer_is_uncertain(env: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """While nothing is known of a transaction, its shard lands no other. It is settled before the next one."""

    async def unresolved(bench: Bench) -> None:
        monkeypatch.setattr(landing, "RESOLVE_S", 0.05)
        a = await bench.writer()
        bench.through.rule(WRITE, Fate.LOSE)
        down = bench.through.rule(UPDATE, Fate.DROP, 1_000)
        with pytest.raises(Uncertain):
            await a.land(start(run_row()))
        with pytest.raises(Unavailable):
            await a.land(Commit(puts(token_row())))
        assert len(bench.through.seen(WRITE)) == 1
        down.times = 0
        await a.land(Commit(puts(token_row())))
        assert (await bench.row(WRITER, (STORE, a.name))).batch == 2
        assert await bench.row(RUN, RUN_1) == run_row()

    on_a_bench(unresolved)(env)


@on_a_bench
async def test_a_closed_writer_lands_nothing(bench: Bench) -> None:
    """Another process closes all shards of a writer at once. A lost answer from before is still resolved."""
    a, b = await bench.writer(), await bench.writer("writer-b", direct=True)
    await asyncio.gather(*(a.submit(start(run_row(f"run-{i}"))) for i in range(20)))
    await a.scheduler.idle()
    row = await bench.row(WRITER, (STORE, a.name))
    bench.through.rule(WRITE, Fate.LOSE)
    bench.through.rule(UPDATE, Fate.HOLD)
    lost = asyncio.ensure_future(a.land(Commit(puts(token_row()))))
    await bench.through.until(lambda: bool(bench.through.seen(UPDATE, Fate.HOLD)))
    await b.land(Commit((Put(WRITER, row._replace(version=2, status=LeaseStatus.CLOSED), 1),)))
    await asyncio.to_thread(bench.through.release)
    await lost
    for _ in range(20):
        with pytest.raises(Unavailable, match="has been closed"):
            await a.land(Commit(puts(token_row("start-2"))))
    with pytest.raises(Unavailable, match="has been closed"):
        await a.lander.land(Commit(puts(token_row("start-2"))), urgent=True)
    assert await bench.row(TOKEN, token_row("start-2")[:3]) is None


@on_a_bench
async def test_commits_by_old_settings_are_judged_again(bench: Bench) -> None:
    """Once a change of the subscribed tenants is answered, no writer lands a commit that does not know of it."""
    a, b = await bench.writer(), await bench.writer("writer-b", direct=True)
    await asyncio.gather(*(a.submit(start(run_row(f"run-{i}"))) for i in range(20)))
    row = subscribed_tenants_row(None, ["acme"])
    await b.land(Commit((Put(META, row, 0),)))
    await asyncio.gather(*(a.submit(start(run_row(f"later-{i}"))) for i in range(20)))
    for i in range(20):
        assert await bench.row(UNPUBLISHED, ("acme", f"run-{i}", 1)) is None
        assert await bench.row(UNPUBLISHED, ("acme", f"later-{i}", 1)) is not None
    assert a.lander.subscribed_tenants == {"acme"}


@on_a_bench
async def test_a_late_writer_knows_the_settings(bench: Bench) -> None:
    """A writer that registers while the settings change is found by the change, or knows of it."""
    a = await bench.writer(direct=True)
    row = None
    for version in range(1, 6):
        row, old = subscribed_tenants_row(row, [f"tenant-{version}"]), row
        changing = asyncio.ensure_future(a.land(Commit((Put(META, row, version - 1),))))
        late = await bench.writer(f"late-{version}", direct=True)
        await changing
        await late.land(Commit(puts(event_row(tenant=f"tenant-{version}", run="x"))))
        assert await bench.row(UNPUBLISHED, (f"tenant-{version}", "x", 1)) is not None, old
