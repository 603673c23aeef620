"""`ctx.stream` and `this_call().stream`: texts go to listeners and are never stored; recorded parts stay silent."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from outlast.core.rows.all_kinds import KINDS
from outlast.core.state.delta_packets import Delta, DeltaOrigin
from outlast.engine.delta_sender import PENDING_CHARS_MAX, PENDING_OF_ONE_MAX, DeltaBuffer
from outlast.flow import Context, lookup, role, this_call
from outlast.store.memory import MemoryStore
from tests.engine.world import MINUTE, Receiver, State, World, one_node, threads_and_time, write

Ctx = Context[State]


class Ear:
    """Subscriber of a world's store."""

    def __init__(self, world: World) -> None:
        self.deltas: list[Delta] = []
        self.end = world.store.on_deltas(self.heard)

    def heard(self, deltas: Sequence[Delta]) -> None:
        self.deltas += deltas

    @property
    def text(self) -> str:
        return "".join(delta.text for delta in self.deltas)


async def test_texts_arrive_in_order_with_their_place_and_are_not_stored(world: World) -> None:
    @lookup
    async def model(n: int) -> str:
        this_call().stream("so")
        await asyncio.sleep(0.01)
        this_call().stream("me")
        return "some"

    @lookup
    def threaded(n: int) -> str:
        this_call().stream("thread")
        return ""

    async def body(ctx: Ctx) -> None:
        ctx.stream("plan ")
        ctx.stream("")
        await ctx.do(model, 1)
        await ctx.do(threaded, 1)
        ctx.stream("end token=abcdef123456")
        ctx.state.said = [ctx.run_id]

    ear = Ear(world)
    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await threads_and_time(world, lambda: world.status() == "completed", MINUTE)
    assert world.status() == "completed"
    assert "".join(d.text for d in ear.deltas if not d.origin.key) == "plan end token=[redacted]"
    (said,) = {d.origin for d in ear.deltas if d.text in ("so", "me", "some")}
    assert said[:5] == ("t", "r1", "only", 1, 1) and said.attempt == 1 and said.key
    assert "thread" in ear.text
    stored = b"".join(repr(row).encode() for kind in KINDS for row in world.core.rows.under(kind, ("t",)))
    assert b"plan " not in stored and b"thread" not in stored.replace(b"threaded", b"")
    heard = len(ear.deltas)
    ear.end()
    await world.start(flow, "r2")
    await threads_and_time(world, lambda: world.status("r2") == "completed", MINUTE)
    assert world.status("r2") == "completed" and len(ear.deltas) == heard


async def test_an_execution_repeats_no_text_before_a_recorded_call(world: World) -> None:
    shop = Receiver()
    order = write(shop, key="order/{what}/{amount}")

    @lookup(durable=True)
    async def model(n: int) -> str:
        this_call().stream(f"words-{n} ")
        return "x"

    async def body(ctx: Ctx) -> None:
        ctx.stream("first ")
        await ctx.do(model, 1)
        ctx.stream("second ")
        await ctx.allowed([order])
        decision = await ctx.approval(order.plan("a", 100), summary="Order", by=role("boss"), within=timedelta(hours=1))
        ctx.stream("third ")
        await ctx.do(model, 2)
        ctx.state.said = [decision.by]

    ear = Ear(world)
    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await world.pass_(MINUTE)
    assert sorted(ear.text.split()) == ["first", "second", "words-1"]
    begun = {d.origin.epoch for d in ear.deltas}
    ear.deltas.clear()
    await world.decide(world.pending())
    await world.pass_(MINUTE)
    assert world.status() == "completed"
    assert sorted(ear.text.split()) == ["third", "words-2"]
    (after,) = {d.origin.epoch for d in ear.deltas}
    assert begun < {*begun, after} and after > max(begun)


async def test_what_is_no_text_is_refused(world: World) -> None:
    async def body(ctx: Ctx) -> None:
        wrong: Any = b"bytes"
        ctx.stream(wrong)

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    assert world.reasons() == ["exception"]
    assert "a stream is of text" in world.attention()[0].detail


async def test_a_channel_that_fails_does_not_stop_a_run(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def body(ctx: Ctx) -> None:
        ctx.stream("lost")
        await ctx.sleep("1s")

    def fails(self: MemoryStore, deltas: Sequence[Delta]) -> None:
        raise OSError("the socket is gone")

    monkeypatch.setattr(MemoryStore, "publish", fails)
    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await world.pass_(MINUTE)
    assert world.status() == "completed" and "deltas were lost" in caplog.text


HERE = DeltaOrigin("t", "r", "write", 1, 1, "", 0)


def test_a_buffer_joins_texts_by_origin_and_says_when_to_send() -> None:
    buffer, other = DeltaBuffer(), HERE._replace(key="model/1", attempt=1)
    assert [buffer.add(Delta(HERE, "a")), buffer.add(Delta(other, "x")), buffer.add(Delta(HERE, "b"))] == [
        True, False, False,
    ]  # fmt: skip
    assert buffer.take() == [Delta(HERE, "ab"), Delta(other, "x")]
    assert buffer.take() == []
    assert buffer.add(Delta(HERE, "c"))


def test_a_buffer_loses_text_beyond_its_limits() -> None:
    buffer = DeltaBuffer()
    for n in range(20):
        for _ in range(10):
            buffer.add(Delta(HERE._replace(visit=n), "x" * PENDING_OF_ONE_MAX))
    found = buffer.take()
    assert max(len(delta.text) for delta in found) == PENDING_OF_ONE_MAX
    assert sum(len(delta.text) for delta in found) == PENDING_CHARS_MAX
