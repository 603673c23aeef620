"""Transactions of judged commits, carried out by the emulator, and the changes that refuse each."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from outlast.core.commit import (
    AppendMessage,
    Commit,
    Drop,
    Erase,
    Expect,
    Fence,
    Instant,
    Put,
    Wake,
    actions_of,
    bytes_of,
)
from outlast.core.limits import ACTIONS_MAX
from outlast.core.machine import ENDED, LeaseStatus, RunStatus
from outlast.core.rows.effect_rows import EFFECT, MEMO, Memo
from outlast.core.rows.limit_rows import SLOT
from outlast.core.rows.outbox_rows import UNPUBLISHED
from outlast.core.rows.row_kind import AnyKind, Key
from outlast.core.rows.run_rows import EVENT, MESSAGE, RUN, Run
from outlast.core.rows.store_rows import STORE, WRITER, Writer
from outlast.store.batch import Batch
from outlast.store.dynamodb import items
from outlast.store.dynamodb.connection import ConditionRefused, Connection, DynamoAddress
from outlast.store.dynamodb.items import Item, ItemPlace, Revision, Stamp
from outlast.store.dynamodb.tables import open_tables
from outlast.store.dynamodb.transact import (
    LOCK_CONDITION,
    Action,
    Receipt,
    actions,
    changed_runs,
    refuse_late,
)
from tests.conformance.subject import T0, TENANT, done, effect_row, event_row, message_row, run_row, slot_row, start
from tests.dynamodb import server

NOW = Instant(T0 + 5_000, T0 + 5_000, 3)
RUN_1 = (TENANT, "run-1")
HELD = {"owner": "w-1", "status": RunStatus.RUNNING, "due_at": T0 + 60_000, "epoch": 4, "visit": 2, "version": 9}
FENCE = Fence(TENANT, "run-1", 4, 2)
WRITER_ROW = Writer(STORE, "writer-1", 1, LeaseStatus.ALIVE, 0, T0)
SETTINGS = "3/0"


class World:
    """The rows that a writer knows, and the tables."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.env = connection.address.environment
        self.known: dict[Key, Revision] = {}
        self.rows: dict[tuple[str, Key], Any] = {}
        self.receipt = Receipt("writer-1", 0, 1, SETTINGS)

    async def store(self, kind: AnyKind, row: Any, mapping: int = 3, **more: items.Value) -> None:
        """Put a row into its table without any condition, and know it."""
        item, *bodies = items.encode(kind, row, Stamp("other", 0, 1), mapping=mapping)
        table = f"{self.env}-{items.place(kind, row[: kind.key]).table}"
        for each in (item | more, *bodies):
            await self.connection.call("PutItem", TableName=table, Item=each)
        self.rows[kind.name, row[: kind.key]] = row
        if kind is RUN:
            self.known[row[:2]] = Revision(row, mapping)

    async def change(self, key: Key, **columns: items.Value | None) -> None:
        """Change attributes of a run's item behind the writer's back."""
        item = await self.item(items.place(RUN, key))
        assert item is not None
        changed = {name: value for name, value in (item | columns).items() if value is not None}
        await self.connection.call("PutItem", TableName=f"{self.env}-runs", Item=changed)

    async def item(self, where: ItemPlace) -> Item | None:
        answer = await self.connection.call(
            "GetItem", TableName=f"{self.env}-{where.table}", Key=where.key(), ConsistentRead=True
        )
        found: Item | None = answer.get("Item")
        return found

    async def row(self, kind: AnyKind, key: Key) -> Any:
        item = await self.item(items.place(kind, key))
        return None if item is None else items.decode(kind, item)

    def judged(self, *commits: Commit, subscribed: frozenset[str] = frozenset()) -> Batch:
        batch = Batch(
            lambda kind, key: self.rows.get((kind.name, key)), NOW, optimistic=True, subscribed_tenants=subscribed
        )
        for commit in commits:
            batch.land(commit)
        return batch

    def built(
        self, *commits: Commit, batch: Batch | None = None, shards: Mapping[str, int] | None = None
    ) -> list[Action]:
        batch = batch or self.judged(*commits)
        return actions(
            self.env, batch, commits, self.receipt, self.known, lease_end=lambda _: T0 + 600_000, shards=shards or {}
        )

    async def send(self, transaction: Sequence[Action]) -> None:
        """Send a transaction. Raises ConditionRefused."""
        await self.connection.call("TransactWriteItems", TransactItems=list(transaction))
        self.receipt = self.receipt._replace(batch=self.receipt.batch + 1)

    async def land(self, *commits: Commit, **more: Any) -> list[Action]:
        transaction = self.built(*commits, **more)
        await self.send(transaction)
        return transaction

    async def refused(self, *commits: Commit) -> tuple[str, ...]:
        """Return where in the transaction of these commits a condition failed."""
        transaction = self.built(*commits)
        with pytest.raises(ConditionRefused) as refusal:
            await self.send(transaction)
        return tuple(
            next(iter(action))
            for action, code in zip(transaction, refusal.value.reasons, strict=True)
            if code == "ConditionalCheckFailed"
        )


@asynccontextmanager
async def world(env: str) -> AsyncIterator[World]:
    connection = Connection(DynamoAddress.parse(server.url(env)))
    await connection.open()
    try:
        await open_tables(connection, make=True)
        found = World(connection)
        await found.store(WRITER, WRITER_ROW, shards={"N": "3"}, settings={"S": SETTINGS})
        for shard in (1, 2):
            where = items.receipt_place("writer-1", shard)
            receipt = {**where.key(), "batch": {"N": "0"}, "status": {"S": "alive"}, "settings": {"S": SETTINGS}}
            await connection.call("PutItem", TableName=f"{env}-runs", Item=receipt)
        yield found
    finally:
        await connection.close()


def step(run: Run, **changes: Any) -> Put:
    """Return the write of a run's next version."""
    return Put(RUN, run._replace(version=run.version + 1, **changes), run.version)


def test_a_start_lands_whole_and_once(env: str) -> None:
    async def play() -> None:
        async with world(env) as w:
            commit = start(run_row())
            transaction = await w.land(commit)
            assert await w.row(RUN, RUN_1) == run_row()
            assert await w.row(EVENT, (*RUN_1, 1)) is not None
            stored = await w.item(items.place(RUN, RUN_1))
            assert stored is not None and stored["mapping"] == {"N": "3"} and stored["batch"] == {"N": "1"}
            assert next(iter(transaction[0])) == "Update" and len(transaction) <= actions_of(commit)
            assert await w.refused(commit) == tuple("Put" for put in commit.writes)

    asyncio.run(play())


@pytest.mark.parametrize(
    "changed",
    [
        {"version": {"N": "10"}}, {"epoch": {"N": "5"}}, {"owner": {"S": "w-2"}}, {"visit": {"N": "3"}},
        {"inbox_seq": {"N": "1"}}, {"due_at": {"N": "1"}}, {"due_at": None},
    ],
)  # fmt: skip
def test_a_run_that_changed_refuses_its_write(env: str, changed: dict[str, Any]) -> None:
    async def play() -> None:
        async with world(env) as w:
            run = run_row(**HELD)
            await w.store(RUN, run)
            await w.land(Commit((step(run),), FENCE))
            assert (await w.row(RUN, RUN_1)).version == 10
            await w.store(RUN, run)
            await w.change(RUN_1, **changed)
            assert await w.refused(Commit((step(run),), FENCE)) == ("Put",)

    asyncio.run(play())


@pytest.mark.parametrize(
    "changed", [{"epoch": {"N": "5"}}, {"visit": {"N": "3"}}, {"inbox_seq": {"N": "1"}}, {"owner": {"S": ENDED}}]
)
def test_a_fence_refuses_a_write_beside_the_run(env: str, changed: dict[str, Any]) -> None:
    async def play() -> None:
        async with world(env) as w:
            await w.store(RUN, run_row(**HELD))
            intent = Commit((Put(EFFECT, effect_row(), 0),), FENCE)
            await w.land(intent)
            await w.change(RUN_1, version={"N": "77"})  # no part of a fence
            answer = Commit((Put(EFFECT, done(effect_row()), 1),), FENCE)
            await w.change(RUN_1, **changed)
            assert await w.refused(answer) == ("ConditionCheck",)
            assert (await w.row(EFFECT, effect_row()[:4])).version == 1

    asyncio.run(play())


def test_versions_and_expectations_are_compared(env: str) -> None:
    async def play() -> None:
        async with world(env) as w:
            await w.store(SLOT, slot_row())
            memo = MEMO.row(*RUN_1, 1, "m", "a", "d", b"", "", T0)
            one = Expect(SLOT, slot_row()[:2], 1)
            await w.land(Commit((Put(MEMO, memo, 0),), None, (one,)))
            assert await w.refused(Commit((Put(EFFECT, done(effect_row()), 1),))) == ("Put",)
            assert await w.refused(Commit((Put(MEMO, memo, 0),))) == ("Put",)
            w.rows.pop((MEMO.name, memo[:4]), None)
            assert await w.refused(Commit((Put(EFFECT, effect_row(), 0),), None, (Expect(MEMO, memo[:4], 0),))) == (
                "ConditionCheck",
            )
            await w.store(SLOT, slot_row()._replace(version=2))
            w.rows[SLOT.name, slot_row()[:2]] = slot_row()
            assert await w.refused(Commit((Put(EFFECT, effect_row(), 0),), None, (one,))) == ("ConditionCheck",)
            # An expectation of the item that a commit writes is one condition with the write.
            both = Commit((Put(SLOT, slot_row()._replace(version=2), 1),), None, (one,))
            assert [next(iter(action)) for action in w.built(both)] == ["Update", "Put"]
            assert await w.refused(both) == ("Put",)

    asyncio.run(play())


def test_a_commit_that_contradicts_itself_never_lands(env: str) -> None:
    async def play() -> None:
        async with world(env) as w:
            await w.store(EFFECT, effect_row())
            w.rows[EFFECT.name, effect_row()[:4]] = done(effect_row())
            expect = Expect(EFFECT, effect_row()[:4], 2)
            assert await w.refused(Commit((Put(EFFECT, done(effect_row()), 1),), None, (expect,))) == ("Put",)

    asyncio.run(play())


def test_a_message_wakes_a_parked_run(env: str) -> None:
    async def play() -> None:
        async with world(env) as w:
            parked = run_row(due_at=None, waiting_for_text="x", status=RunStatus.WAITING)
            await w.store(RUN, parked, mapping=2)
            await w.land(Commit((AppendMessage(message_row()),)))
            found = await w.item(items.place(RUN, RUN_1))
            woken = Revision(parked._replace(inbox_seq=1, due_at=NOW.real), 3, at_once=True)
            assert found is not None and items.revision(found) == woken
            assert found["due_lane"] == {"S": items.lane_of(parked.lane, 3)} and found["batch"] == {"N": "1"}
            assert (await w.row(MESSAGE, (*RUN_1, 1))).n == 1
            for changed in ({"lane": {"S": "auction@2"}, "version": {"N": "2"}}, {"owner": {"S": "w-1"}}):
                await w.store(RUN, parked)
                await w.change(RUN_1, **changed)
                assert await w.refused(Commit((AppendMessage(message_row()),))) == ("Update", "Put")

    asyncio.run(play())


def test_a_message_to_an_owned_run_lands_whatever_its_worker_writes(env: str) -> None:
    async def play() -> None:
        async with world(env) as w:
            await w.store(RUN, run_row(**HELD))
            await w.change(RUN_1, version={"N": "12"}, visit={"N": "5"}, seq={"N": "30"})
            message = Commit((AppendMessage(message_row()),))
            await w.land(message)
            found = await w.row(RUN, RUN_1)
            assert (found.inbox_seq, found.version, found.seq, found.due_at) == (1, 12, 30, T0 + 60_000)
            assert await w.refused(message) == ("Update", "Put")  # another message came first
            await w.store(RUN, run_row(**HELD))
            await w.change(RUN_1, owner={"S": ""}, due_at=None)
            assert (await w.refused(message))[0] == "Update"
            fenced = Commit((AppendMessage(message_row()),), FENCE)
            await w.store(RUN, run_row(**HELD))
            await w.change(RUN_1, epoch={"N": "5"})
            assert (await w.refused(fenced))[0] == "Update"

    asyncio.run(play())


def test_a_wake_up_without_effect_is_compared(env: str) -> None:
    async def play() -> None:
        async with world(env) as w:
            wake = Commit((Put(EFFECT, effect_row("run-2"), 0), Wake(*RUN_1)))
            await w.store(RUN, run_row(**HELD))
            assert [next(iter(action)) for action in await w.land(wake)] == ["Update", "Put", "ConditionCheck"]
            await w.change(RUN_1, owner={"S": ""}, due_at=None)  # it has parked since
            other = Commit((Put(EFFECT, effect_row("run-3"), 0), Wake(*RUN_1)))
            assert await w.refused(other) == ("ConditionCheck",)
            await w.store(RUN, run_row())
            await w.change(RUN_1, due_at={"N": str(T0 + 90_000)})
            assert await w.refused(other) == ("ConditionCheck",)
            await w.store(RUN, run_row(due_at=T0 + 90_000))
            await w.land(other)
            assert (await w.row(RUN, RUN_1)).due_at == NOW.real

    asyncio.run(play())


def test_marks_are_put_and_dropped(env: str) -> None:
    async def play() -> None:
        async with world(env) as w:
            commit = Commit((Put(EVENT, event_row(), 0),))
            await w.land(commit, batch=w.judged(commit, subscribed=frozenset({TENANT})))
            assert await w.row(UNPUBLISHED, (*RUN_1, 1)) is not None
            await w.land(Commit((Drop(*RUN_1, 1), Drop(*RUN_1, 2))))
            assert await w.row(UNPUBLISHED, (*RUN_1, 1)) is None

    asyncio.run(play())


@pytest.mark.req("RUN-10")
def test_an_erased_row_leaves_no_part(env: str) -> None:
    """A large row has further items, which are deleted with it if its size is named."""

    async def play() -> None:
        async with world(env) as w:
            memo = Memo(*RUN_1, 0, "fork?call/p/000001", "", "", b"x" * 900_000, "", T0)
            key = memo[: MEMO.key]
            await w.land(Commit((Put(MEMO, memo, 0),)))
            places = items.places_of_size(MEMO, key, bytes_of(memo))
            assert len(places) == 4 and [await w.item(each) is not None for each in places] == [True] * 4
            await w.land(Commit((Erase(MEMO, key, bytes_of(memo)),)))
            assert [await w.item(each) for each in places] == [None] * 4

    asyncio.run(play())


@pytest.mark.req("REC-5")
def test_a_takeover_leaves_a_lock_that_the_next_one_respects(env: str) -> None:
    async def play() -> None:
        async with world(env) as w:
            run = run_row(**HELD)
            take = Commit((step(run, owner="w-2", epoch=5),))
            await w.store(RUN, run)
            transaction = await w.land(take)
            (lock,) = [
                each["Put"] for each in transaction if each.get("Put", {}).get("TableName") == f"{env}-recovery-locks"
            ]
            assert (
                lock["ConditionExpression"] == LOCK_CONDITION == ("attribute_not_exists(pk) OR expires_at < :now_epoch")
            )
            until = (T0 + 600_000) // 1000
            stored = await w.item(items.lock_place(*RUN_1))
            assert stored is not None and stored["owner"] == {"S": "w-2"}
            assert (stored["expires_at"], stored["ttl"]) == ({"N": str(until)}, {"N": str(until + 3600)})
            again = Commit((step(run, owner="w-3", epoch=5),))
            for now_epoch, landed in ((until, False), (until + 1, True)):
                await w.store(RUN, run)
                batch = w.judged(again)
                batch.now = Instant(now_epoch * 1000, now_epoch * 1000, 3)
                with suppress(ConditionRefused):
                    await w.land(again, batch=batch)
                assert ((await w.row(RUN, RUN_1)).owner == "w-3") is landed
            released = step(run, owner="", status=RunStatus.QUEUED)
            assert "recovery-locks" not in str(w.built(Commit((released,))))

    asyncio.run(play())


def test_a_receipt_is_left_once(env: str) -> None:
    async def play() -> None:
        async with world(env) as w:
            commit = Commit((Put(SLOT, slot_row(), 0),))
            lost = w.built(commit)
            assert await w.row(SLOT, slot_row()[:2]) is None
            request = refuse_late(env, w.receipt)
            await w.connection.call("UpdateItem", **request)
            with pytest.raises(ConditionRefused):  # it arrives late
                await w.send(lost)
            with pytest.raises(ConditionRefused):
                await w.connection.call("UpdateItem", **request)
            w.receipt = w.receipt._replace(batch=3)
            await w.land(commit)
            w.receipt = w.receipt._replace(settings="4/0")
            assert await w.refused(Commit((Put(SLOT, slot_row(2), 0),))) == ("Update",)
            w.receipt = Receipt("writer-1", 2, 1, SETTINGS)
            await w.land(Commit((Put(SLOT, slot_row(2), 0),)))

    asyncio.run(play())


@pytest.mark.parametrize("shard", [0, 2])
def test_a_closed_writer_leaves_no_receipt(env: str, shard: int) -> None:
    async def play() -> None:
        async with world(env) as w:
            closed = WRITER_ROW._replace(version=2, status=LeaseStatus.CLOSED)
            await w.store(WRITER, WRITER_ROW._replace(id="me"), shards={"N": "1"}, settings={"S": SETTINGS})
            close, mine = Commit((Put(WRITER, closed, 1),)), Receipt("me", 0, 1, SETTINGS)
            w.receipt = mine
            with pytest.raises(ConditionRefused):  # it has got another receipt since
                await w.land(close, shards={"writer-1": 2})
            transaction = await w.land(close, shards={"writer-1": 3})
            assert len(transaction) == 4 <= actions_of(close)
            stored = await w.row(WRITER, (STORE, "writer-1"))
            assert stored == closed
            w.receipt = Receipt("writer-1", shard, 1, SETTINGS)
            assert await w.refused(Commit((Put(SLOT, slot_row(), 0),))) == ("Update",)

    asyncio.run(play())


@pytest.mark.parametrize(("shard", "kept"), [(0, 1), (2, 0)])
def test_a_writer_closes_itself_in_one_action_for_each_receipt(env: str, shard: int, kept: int) -> None:
    async def play() -> None:
        async with world(env) as w:
            w.receipt = Receipt("writer-1", shard, 1, SETTINGS)
            close = Commit((Put(WRITER, WRITER_ROW._replace(version=2, status=LeaseStatus.CLOSED), 1),))
            assert len(await w.land(close, shards={"writer-1": 3})) == 3
            found = await w.row(WRITER, (STORE, "writer-1"))
            assert (found.status, found.batch) == (LeaseStatus.CLOSED, kept)

    asyncio.run(play())


def test_the_mapping_of_a_run_is_that_of_its_due_time(env: str) -> None:
    async def play() -> None:
        async with world(env) as w:
            for changes, mapping in (
                ({}, 2),  # the due_at is kept, so nothing was converted again
                ({"due_at": T0 + 9}, 3),
                ({"owner": "w-1", "status": RunStatus.RUNNING}, 3),  # of an owned run it is real time
            ):
                await w.store(RUN, run_row(), mapping=2)
                commit = Commit((step(run_row(), **changes),))
                batch = w.judged(commit)
                await w.land(commit, batch=batch)
                found = await w.item(items.place(RUN, RUN_1))
                assert found is not None
                assert changed_runs(batch, w.known) == {RUN_1: items.revision(found)}
                assert items.revision(found).mapping == mapping

    asyncio.run(play())


def test_commits_of_one_chain_land_together(env: str) -> None:
    async def play() -> None:
        async with world(env) as w:
            run = run_row(**HELD)
            await w.store(RUN, run)
            later = run._replace(version=10)
            chain = [
                Commit((Put(EFFECT, effect_row(), 0),), FENCE),
                Commit((Put(EFFECT, done(effect_row()), 1), step(run)), FENCE, (Expect(RUN, RUN_1, 9),)),
                Commit((step(later, seq=7),), FENCE, (Expect(EFFECT, effect_row()[:4], 2), Expect(RUN, RUN_1, 10))),
            ]
            transaction = await w.land(*chain)
            assert [next(iter(action)) for action in transaction] == ["Update", "Put", "Put"]
            assert (await w.row(RUN, RUN_1)).version == 11 and (await w.row(EFFECT, effect_row()[:4])).version == 2

    asyncio.run(play())


def test_a_large_row_lands_with_its_body_items(env: str) -> None:
    async def play() -> None:
        async with world(env) as w:
            effect = effect_row()._replace(args=b"a" * 900_000)
            transaction = await w.land(Commit((Put(EFFECT, effect, 0),)))
            assert len(transaction) == 5
            where = items.place(EFFECT, effect[:4])
            item = await w.item(where)
            assert item is not None
            bodies = [await w.item(place) for place in items.body_places(where.table, item)]
            assert items.decode(EFFECT, item, [body for body in bodies if body is not None]) == effect

    asyncio.run(play())


def test_a_commit_has_no_more_actions_than_are_counted() -> None:
    w = World.__new__(World)
    w.env, w.known, w.rows, w.receipt = "test", {}, {}, Receipt("writer-1", 0, 1, SETTINGS)
    run = run_row(**HELD)
    w.known[RUN_1], w.rows[RUN.name, RUN_1] = Revision(run, 3), run
    for commit in (
        start(run_row("run-2")),
        Commit((step(run, owner="w-2", epoch=5), Put(EVENT, event_row(seq=2), 0))),
        Commit((Put(EFFECT, effect_row(), 0), Wake(*RUN_1), AppendMessage(message_row()), Drop(*RUN_1, 1)), FENCE),
        Commit(tuple(Put(EVENT, event_row(seq=n), 0) for n in range(1, 40)), FENCE, (Expect(SLOT, ("t", 1), 0),)),
    ):
        batch = w.judged(commit, subscribed=frozenset({TENANT}))
        assert 1 < len(w.built(commit, batch=batch)) <= actions_of(commit) <= ACTIONS_MAX
