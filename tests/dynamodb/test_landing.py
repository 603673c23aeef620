"""A commit lands once or not at all, and its answer says which, whatever happens to its requests (S-9)."""

import asyncio
import os
from collections import Counter
from collections.abc import Callable
from itertools import cycle
from random import Random

import pytest

from outlast.core.commit import Commit, Put
from outlast.core.machine import LeaseStatus
from outlast.core.rows.outbox_rows import UNPUBLISHED
from outlast.core.rows.run_rows import MESSAGE, RUN, TOKEN
from outlast.core.rows.store_rows import META, STORE, WRITER
from outlast.core.webhooks.deliveries import subscribed_tenants_row
from outlast.errors import Stale, StoreError, Unavailable, Uncertain
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
from tests.dynamodb.writers import Bench, Writer, on_a_bench
from tests.mutants import remove

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


@on_a_bench
async def test_conflicts_and_throttling_are_no_answers(bench: Bench) -> None:
    a = await bench.writer()
    bench.through.rule(WRITE, Fate.CONFLICT, 3)
    bench.through.rule(WRITE, Fate.THROTTLE, 3)
    await a.land(start(run_row()))
    assert operations(bench) == [WRITE] * 7
    assert (await bench.row(WRITER, (STORE, a.name))).batch == 1


@pytest.mark.req("RUN-3")
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


async def beside_fast_writers(bench: Bench, messages: int) -> int:
    """Append messages over a slow line beside two fast writers, and return how many transactions that took."""
    a = await bench.writer()
    others = [await bench.writer(f"fast-{i}", direct=True) for i in range(2)]
    await a.land(start(run_row()))
    bench.through.delay_s = 0.05
    bench.through.record.clear()
    over = asyncio.Event()

    async def append(writer: Writer) -> int:
        landed = 0
        while not over.is_set():
            await writer.land(append_message(message_row()))
            landed += 1
        return landed

    racing = [asyncio.ensure_future(append(each)) for each in others]
    try:
        for _ in range(messages):
            await a.land(append_message(message_row()))
    finally:
        over.set()
        landed = await asyncio.gather(*racing)
    assert min(landed) > 0
    assert (await bench.row(RUN, RUN_1)).inbox_seq == messages + sum(landed)
    return len(bench.through.seen(WRITE))


@on_a_bench
async def test_a_slow_writer_appends_beside_fast_ones(bench: Bench) -> None:
    """The inbox gives the next turn to the writer that was refused more often."""
    assert await beside_fast_writers(bench, 3) <= 3 * 10


# --- everything at once --------------------------------------------------------------------------
FATES = [
    Fate.DROP, Fate.LOSE, Fate.HALF, Fate.FAIL, Fate.FAIL_AFTER, Fate.CONFLICT, Fate.THROTTLE, Fate.HOLD, Fate.FORWARD,
]  # fmt: skip


async def campaign(bench: Bench, dice: Random, commits: int) -> Counter[str]:
    """Append messages by two writers while requests meet random fates, and return how many ended how.

    Every message that was acknowledged is there once, no refused one is, and an uncertain one is there at most once.
    """
    writers = [await bench.writer(name, answer_s=0.3) for name in ("writer-a", "writer-b")]
    for i in range(4):
        await writers[0].land(start(run_row(f"run-{i}")))
    ended: dict[bytes, str] = {}
    over = asyncio.Event()

    async def misbehave() -> None:
        for fate in cycle(FATES):
            if over.is_set():
                return
            for _ in range(10):  # a rule for a request that is not sent is given up
                if any(rule.times > 0 for rule in bench.through.rules):
                    await asyncio.sleep(0.003)
            bench.through.rules.clear()
            operation = dice.choice([WRITE, WRITE, WRITE, UPDATE, ""])
            bench.through.rule(operation, fate, dice.randint(1, 3), skip=dice.randint(0, 2))
            if dice.random() < 0.1:
                await asyncio.to_thread(bench.through.release)

    async def append(n: int) -> None:
        name = b"%d" % n
        message = append_message(message_row(f"run-{dice.randrange(4)}", name))
        try:
            await dice.choice(writers).submit(message)
            ended[name] = "landed"
        except StoreError as error:
            ended[name] = {False: "refused", None: "uncertain"}[error.landed]

    misbehaving = asyncio.ensure_future(misbehave())
    for begin in range(0, 20 * commits, 20):
        if begin >= commits and {*FATES} <= {request.fate for request in bench.through.record}:
            break
        await asyncio.gather(*(append(n) for n in range(begin, begin + 20)))
    over.set()
    await misbehaving
    bench.through.rules.clear()
    await asyncio.to_thread(bench.through.release)
    found: Counter[bytes] = Counter()
    for i in range(4):
        seqs = (await bench.row(RUN, ("acme", f"run-{i}"))).inbox_seq
        found.update([(await bench.row(MESSAGE, ("acme", f"run-{i}", n))).payload for n in range(1, seqs + 1)])
    for name, how in ended.items():
        assert found[name] <= 1, name
        assert how == "uncertain" or found[name] == (how == "landed"), (name, how)
    return Counter(ended.values()) + Counter(r.fate.name for r in bench.through.record)


@pytest.mark.req("RT-5")
def test_no_message_is_lost_or_doubled(env: str) -> None:
    """A longer campaign: OUTLAST_TEST_LANDINGS=20000 pytest tests/dynamodb/test_landing.py -k doubled."""

    async def random(bench: Bench) -> None:
        ended = await campaign(bench, Random(17), int(os.environ.get("OUTLAST_TEST_LANDINGS", "200")))
        assert ended["landed"] > 100, ended

    on_a_bench(random)(env)


# --- safeguards ----------------------------------------------------------------------------------
def few_attempts(env: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def many(bench: Bench) -> None:
        monkeypatch.setattr(landing, "TURNS_MAX", 10)
        await beside_fast_writers(bench, 20)

    on_a_bench(many)(env)


def short_campaign(env: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def random(bench: Bench) -> None:
        await campaign(bench, Random(17), 100)

    on_a_bench(random)(env)


FAILS: dict[str, Callable[[str, pytest.MonkeyPatch], None]] = {
    "receipts_not_compared": test_a_late_request_finds_the_fence,
    "lost_answers_count_as_refused": short_campaign,
    "settings_not_compared": lambda env, _: test_commits_by_old_settings_are_judged_again(env),
    "refusals_by_old_rows": lambda env, _: test_an_outdated_run_is_read_and_judged_again(env),
    "inboxes_without_turns": few_attempts,
}


@pytest.mark.parametrize("safeguard", FAILS)
def test_a_removed_safeguard_is_noticed(safeguard: str, env: str, monkeypatch: pytest.MonkeyPatch) -> None:
    remove(safeguard, monkeypatch)
    with pytest.raises((AssertionError, StoreError)):
        FAILS[safeguard](env, monkeypatch)


@pytest.mark.parametrize(
    ("fate", "fails"),
    [
        (Fate.LOSE, test_a_lost_answer_is_resolved_by_the_receipt),
        (Fate.DROP, test_a_lost_request_is_fenced_off_and_sent_again),
    ],
)
def test_requests_repeated_by_the_library_are_noticed(
    fate: Fate, fails: Callable[[Fate, str], None], env: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove("lost_requests_repeated", monkeypatch)
    with pytest.raises(AssertionError):
        fails(fate, env)
