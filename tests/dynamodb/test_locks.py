"""Recovery locks: who takes over the run of a dead worker, and when the next one may (REC-1, REC-5, REC-7).

Drop the lock and it is still right; drop the fence and it is not.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest
from pydantic import BaseModel

from outlast import Context, Workflow
from outlast.core.commit import Instant, Mapping
from outlast.core.durations import HEARTBEAT_WINDOW, HOUR, SECOND
from outlast.core.effect_verbs import Intent, intend
from outlast.core.rows.run_rows import EVENT, RUN, Run
from outlast.core.verbs import advance, claim
from outlast.engine import commands
from outlast.errors import Stale
from outlast.store.dynamodb.items import lock_place
from outlast.store.dynamodb.store import DynamoStore, open_dynamodb
from tests.conformance.subject import HandClock
from tests.dynamodb import server
from tests.mutants import remove

CONDITION = "attribute_not_exists(pk) OR expires_at < :now_epoch"
"""As the source of the requirement has it, byte for byte."""
LIFE_S = 600
KEPT_S = 3600
DEAD = "wk-dead"
RUNS = 8
CALL = Intent(1, "k", "pay", "d", b"", "", 1_000, 2_000, 500)


class Nothing(BaseModel):
    """An empty state."""


flow = Workflow("flow", state=Nothing)


@flow.node(start=True)
async def first(ctx: Context[Nothing]) -> None:
    """End at once."""


class Bench(NamedTuple):
    """Stores of several processes with one clock, and a raw client."""

    clock: HandClock
    stores: tuple[DynamoStore, ...]
    client: Any
    locks: str

    async def begin(self, *runs: str) -> None:
        """Start runs and have the dead worker, over the first store, hold them for longer than any test."""
        for run in runs:
            await commands.start(self.stores[0], flow, {}, tenant="t", actor="me", run=run)

        def held(run: Run, now: Instant, _: Mapping) -> Any:
            return claim(run, worker=DEAD, now=now, claim_ms=24 * HOUR)

        assert len(await self.stores[0].take(["flow@1"], len(runs), held)) == len(runs)

    async def recover(self, store: int, worker: str) -> tuple[Run, ...]:
        """Have a worker take over all runs of the dead one, whose row is closed."""

        def taken(run: Run, now: Instant, _: Mapping) -> Any:
            return claim(run, worker=worker, now=now, claim_ms=HOUR, closed={DEAD: 1})

        return await self.stores[store].take(["flow@1"], RUNS, taken, owners=[DEAD])

    async def run(self, name: str) -> Run:
        row = await self.stores[0].load(RUN, ("t", name))
        assert isinstance(row, Run)
        return row

    async def lock(self, run: str) -> dict[str, str]:
        found = await self.client.get_item(TableName=self.locks, Key=lock_place("t", run).key(), ConsistentRead=True)
        return {name: next(iter(value.values())) for name, value in found.get("Item", {}).items()}

    async def put_lock(self, run: str, expires_at: int) -> None:
        item = {
            **lock_place("t", run).key(), "owner": {"S": "another instance"},
            "expires_at": {"N": str(expires_at)}, "ttl": {"N": str(expires_at + KEPT_S)},
        }  # fmt: skip
        await self.client.put_item(TableName=self.locks, Item=item)


@asynccontextmanager
async def bench(url: str, env: str, width: int) -> AsyncIterator[Bench]:
    clock = HandClock()
    stores = [await open_dynamodb(url, writer=f"p{n}", clock=clock) for n in range(width)]
    async with server.client() as client:
        try:
            yield Bench(clock, tuple(stores), client, f"{env}-recovery-locks")
        finally:
            for store in stores:
                await store.close()


def live(url: str, env: str, body: Callable[[Bench], Awaitable[None]], width: int = 2) -> None:
    async def main() -> None:
        async with bench(url, env, width) as on:
            await body(on)

    asyncio.run(main())


# --- the figure of the source ----------------------------------------------------------------
@pytest.mark.req("REC-1", "REC-5", "RT-5")
def test_the_next_instance_steps_in_one_second_after_a_dead_ones_lock_has_ended(url: str, env: str) -> None:
    """The holder of the lock is dead with 600 s to run, and the row stays after `ttl`, because TTL only tidies."""

    async def body(on: Bench) -> None:
        await on.begin("r")
        expires_at = on.clock.time // SECOND + LIFE_S
        await on.put_lock("r", expires_at)
        for at in (expires_at - LIFE_S, expires_at - 1, expires_at):
            on.clock.time = at * SECOND + 999
            assert await on.recover(1, "wk-next") == ()
        assert (await on.run("r")).owner == DEAD and (await on.lock("r"))["expires_at"] == str(expires_at)
        on.clock.time = (expires_at + 1) * SECOND
        (taken,) = await on.recover(1, "wk-next")
        assert taken.owner == "wk-next" and taken.epoch == 2
        lock = await on.lock("r")
        end = int(lock["expires_at"])
        assert lock["owner"] == "wk-next" and int(lock["ttl"]) == end + KEPT_S
        assert end * SECOND >= on.clock.time + HEARTBEAT_WINDOW > (end - 1) * SECOND

    live(url, env, body)


def test_the_lock_of_one_run_delays_no_other(url: str, env: str) -> None:
    """The claims share a transaction, which is refused because of one of them."""

    async def body(on: Bench) -> None:
        await on.begin("r1", "r2", "r3")
        await on.put_lock("r2", on.clock.time // SECOND + LIFE_S)
        assert {run.run for run in await on.recover(1, "wk-next")} == {"r1", "r3"}
        assert (await on.run("r2")).owner == DEAD

    live(url, env, body)


def test_a_row_that_outlived_its_ttl_locks_nothing(url: str, env: str) -> None:
    async def body(on: Bench) -> None:
        await on.begin("r")
        await on.put_lock("r", on.clock.time // SECOND - KEPT_S - 1)
        assert len(await on.recover(1, "wk-next")) == 1

    live(url, env, body)


def test_the_condition_of_the_lock_is_sent_as_the_source_has_it(url: str, env: str) -> None:
    async def body(on: Bench) -> None:
        await on.begin("r")
        connection, sent = on.stores[1]._connection, []
        kept = connection.call

        async def seen(operation: str, **request: Any) -> dict[str, Any]:
            sent.extend(action.get("Put", {}) for action in request.get("TransactItems", ()))
            return await kept(operation, **request)

        connection.call = seen  # type: ignore[method-assign]
        assert len(await on.recover(1, "wk-next")) == 1
        (put,) = [each for each in sent if each.get("TableName") == on.locks]
        assert put["ConditionExpression"] == CONDITION
        assert put["ExpressionAttributeValues"] == {":now_epoch": {"N": str(on.clock.time // SECOND)}}
        assert {*put["Item"]} == {"pk", "owner", "expires_at", "ttl", "receipt"}

    live(url, env, body)


def test_only_a_takeover_needs_a_lock(url: str, env: str) -> None:
    async def body(on: Bench) -> None:
        await on.begin("r")
        assert await on.lock("r") == {}, "a run that was due is claimed without one"

    live(url, env, body)


# --- the lock and the fence, each without the other -----------------------------------------------
class Outcome(NamedTuple):
    """What three instances and the worker that they took for dead did to its runs."""

    taken: int
    intents: int  # of the first holder that landed after the takeover
    moves: int  # … and its moves
    sound: bool


async def _recovered_at_once(on: Bench) -> Outcome:
    names = [f"r{n}" for n in range(RUNS)]
    await on.begin(*names)
    before = {name: await on.run(name) for name in names}
    found = await asyncio.gather(*(on.recover(n, f"wk-{n}") for n in range(1, len(on.stores))))
    late = [0, 0]
    for run in before.values():  # the first holder, whose process knows these rows as its own
        now = await on.stores[0].now()
        moved = advance(run, node="first", status_label="", state=b"{}", now=now, claim_ms=HOUR)
        for n, commit in enumerate((intend(run, CALL, None, ordinal=1, now=now), moved)):
            try:
                await on.stores[0].commit(commit)
                late[n] += 1
            except Stale:
                pass
    sound = True
    for name in names:
        run, events = await on.run(name), await on.stores[1].rows(EVENT, ("t", name))
        sound = sound and run.epoch == 2 and run.seq == len(events) == 3 and run.event_hash == events[-1].hash
    return Outcome(sum(map(len, found)), *late, sound)


def _race(url: str, env: str) -> Outcome:
    found: list[Outcome] = []

    async def body(on: Bench) -> None:
        found.append(await _recovered_at_once(on))

    live(url, env, body, width=4)
    return found[0]


RIGHT = Outcome(RUNS, 0, 0, True)


@pytest.mark.req("REC-1", "REC-5")
def test_instances_that_recover_at_once_share_the_runs(url: str, env: str) -> None:
    assert _race(url, env) == RIGHT


def test_without_the_lock_it_is_still_right(url: str, env: str, monkeypatch: pytest.MonkeyPatch) -> None:
    remove("recovered_without_lock", monkeypatch)
    assert _race(url, env) == RIGHT


def test_without_the_lock_the_next_instance_does_not_wait(url: str, env: str, monkeypatch: pytest.MonkeyPatch) -> None:
    remove("recovered_without_lock", monkeypatch)

    async def body(on: Bench) -> None:
        await on.begin("r")
        await on.put_lock("r", on.clock.time // SECOND + LIFE_S)
        assert len(await on.recover(1, "wk-next")) == 1

    live(url, env, body)


def test_without_the_fence_it_is_wrong(url: str, env: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock is in place, and a worker that is not dead goes on to make the calls of its successor's runs.

    It cannot move them, because the number of the next event is used: the last line of defence.
    """
    remove("claim_not_compared", monkeypatch)
    found = _race(url, env)
    assert found.intents == RUNS and found.moves == 0
