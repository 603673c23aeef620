"""A commit that the store can never accept: a person is asked, with the reason, and nothing is repeated without end."""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import outlast
from outlast.core.commit import Commit, append_to_inbox
from outlast.core.limits import KEY_BYTES_MAX, TEXT_CHARS_MAX
from outlast.core.rows.effect_rows import EFFECT
from outlast.core.rows.run_rows import EVENT, RUN
from outlast.engine.run_session import RunSession
from outlast.errors import Rejected
from outlast.flow import (
    Allow,
    Context,
    Deny,
    Happened,
    Perhaps,
    Refused,
    Unknown,
    activity,
    role,
    workflow,
)
from outlast.flow.policy import PolicyRequest
from outlast.store import batching_store
from tests import slices
from tests.engine.conftest import GROUNDS
from tests.engine.test_store_faults import LABELS, whole
from tests.engine.world import MINUTE, QUIET, Receiver, State, World, one_node

HUGE = "<html>" * 500_000
UNSTORABLE = "a\0b\ud83d"
OF_THE_RUN = [label for label in LABELS if label != "claim"]  # a claim lands with the read that finds the run
PLAYED = [
    *(("memory", label) for label in OF_THE_RUN),
    # on PostgreSQL 10 s of CPU each, and the rejection is the same
    *slices.params(
        [(ground, label) for ground in GROUNDS if ground != "memory" for label in OF_THE_RUN], 2, "rejected commits"
    ),
]


async def play(world: World) -> None:
    """Give the run all that it waits for, and time."""
    await world.pass_(QUIET + MINUTE)
    if any(kind == "signal" for kind, _ in world.waiting()):
        await world.signal("go")
        await world.pass_(QUIET + MINUTE)
    if any(kind == "approval" for kind, _ in world.waiting()):
        await world.decide(world.pending())
        await world.pass_(QUIET + MINUTE)


@pytest.mark.req("RUN-2", "RUN-3")
@pytest.mark.parametrize(("world", "label"), PLAYED, indirect=["world"])
async def test_a_commit_that_is_always_rejected_calls_a_person_and_is_not_made_again(world: World, label: str) -> None:
    """The holder's chain was broken: the commit that calls a person failed, too, and the node ran again without end."""
    world.add_slots("t", 1)
    shop = Receiver()
    flow = whole(shop)
    process = world.worker(flow)
    process.wire.rejected.append(label)
    await world.start(flow)
    await play(world)
    assert world.reasons() == ["exception"], label
    assert "OUT-503" in world.attention()[0].detail and "the limit is 1048576" in world.attention()[0].detail
    seen = len(process.wire.labels)
    await world.pass_(10 * MINUTE)
    assert len(process.wire.labels) == seen, "it waits for a person and does nothing"
    process.wire.rejected.clear()
    await world.answer("exception", "continue")
    await play(world)
    assert (world.status(), world.reasons()) == ("completed", [])
    assert sorted(shop.did) == ["t:r1:1:order/a", "t:r1:2:order/b"]


@pytest.mark.req("RUN-2")
async def test_a_rejected_request_to_a_person_is_made_in_a_few_words(world: World) -> None:
    """The first request is rejected, too: the second has no text of the author."""

    async def body(ctx: Context[State]) -> None:
        raise RuntimeError("as the author wrote it")

    process = world.worker(flow := one_node(body))
    process.wire.rejected_once.append("flag")
    await world.start(flow)
    (entry,) = world.attention()
    assert entry.detail.startswith("Rejected: ") or "OUT-503" in entry.detail
    process.wire.rejected_once += ["flag", "flag"]
    await world.answer("exception", "continue")
    (entry,) = world.attention()
    assert entry.detail == "Rejected: a commit of this run cannot be stored"


@pytest.mark.req("RUN-2")
async def test_a_body_that_catches_everything_does_not_go_on_after_a_rejected_commit(world: World) -> None:
    """Its later commits would be lost with their chain, and it would look like a store that is away."""
    shop = Receiver()
    went_on: list[str] = []

    @activity(key="order/{what}", no_undo="a test")
    async def order(what: str) -> str:
        return await shop.call()

    async def body(ctx: Context[State]) -> None:
        try:
            await ctx.approval(order.plan("a"), summary="a", by=role("boss"), within=timedelta(hours=1))
        except Exception:
            went_on.append("on")

    process = world.worker(flow := one_node(body))
    process.wire.rejected.append("ask")
    await world.start(flow)
    assert (world.reasons(), went_on) == (["exception"], [])
    assert "the node waited at" in world.attention()[0].detail and "test_rejected_commits.py" in (
        world.attention()[0].detail
    )


@pytest.mark.req("RUN-3")
async def test_later_commits_of_a_broken_chain_say_that_it_was_rejected(world: World) -> None:
    """They looked like a store that is away, so the holder waited and tried again."""
    flow = one_node(lambda ctx: ctx.sleep("1h"))
    wire = world.worker(flow).wire
    await world.start(flow)
    (rows,) = await world.store.run_rows([("t", "r1")])
    assert rows is not None
    session = RunSession(wire, rows, world.processes[0].clock)
    wire.rejected.append("too large")
    for label in ("too large", "small"):
        with pytest.raises(Rejected, match="1048576"):
            await session.chain.land(Commit((append_to_inbox("t", "r1", "signal", "go", "me"),), label=label))
    await session.chain.go_on()
    await session.chain.land(Commit((append_to_inbox("t", "r1", "signal", "go", "me"),), label="small"))


# --- texts of authors, receivers and policies -----------------------------------------------------------------
def check_rows(world: World, run: str = "r1") -> None:
    """Check that each row is far below its limit, and each text of it can be stored and shown."""
    for kind in (RUN, EVENT, EFFECT):
        for row in world._rows(kind, run) if kind is not RUN else [world.run(run)]:
            assert sum(len(str(column)) for column in row) < 1_000_000
    for entry in world.attention(run):
        assert entry.detail.encode() and "\0" not in entry.detail


@pytest.mark.req("EFF-4", "RUN-2")
@pytest.mark.every_store
@pytest.mark.parametrize("text", [HUGE, UNSTORABLE], ids=["huge", "unstorable"])
@pytest.mark.parametrize("place", ["unknown", "raises", "wrong_answer", "external_id", "refused", "perhaps"])
async def test_a_text_of_a_receiver_is_cut_where_its_row_is_written(world: World, place: str, text: str) -> None:
    """Of 31 places, six let 3 MB through: the run row was rejected, and `continue` led to the same."""

    @activity(key="pay/{i}", no_undo="a test", if_uncertain="reconcile")
    async def pay(i: int) -> str:
        if place == "refused":
            raise Refused(text, text)
        raise Perhaps(text)

    @pay.reconcile
    async def find(i: int) -> Any:
        if place == "raises":
            raise RuntimeError(text)
        if place == "external_id":
            return Happened("r", text)
        return text if place == "wrong_answer" else Unknown(text)

    async def body(ctx: Context[State]) -> None:
        await ctx.do_all([pay.plan(i) for i in range(20)])

    world.worker(flow := one_node(body))
    await world.start(flow)
    await world.pass_(QUIET + MINUTE)
    check_rows(world)
    if place == "external_id":
        assert world.status() == "completed"
        assert {len(e.external_id.encode()) <= KEY_BYTES_MAX + 3 for e in world.effects()} == {True}
    elif place == "refused":
        assert world.reasons() == ["exception"] and all(e.code for e in world.effects())
    else:
        assert set(world.reasons()) == {"effect_uncertain"} and len(world.attention()) == 20


@pytest.mark.req("RUN-2")
@pytest.mark.parametrize("text", [HUGE, UNSTORABLE], ids=["huge", "unstorable"])
@pytest.mark.parametrize("proposed", [False, True])
async def test_a_text_of_a_policy_is_cut_before_it_is_recorded(world: World, text: str, proposed: bool) -> None:
    shop = Receiver()

    @activity(key="order/{what}", no_undo="a test")
    async def order(what: str) -> str:
        return await shop.call()

    def policy(request: PolicyRequest) -> Deny | Allow:
        return Deny(text, text) if request.key == "order/a" else Allow(text)

    async def body(ctx: Context[State]) -> None:
        await ctx.do(order, "b")
        if proposed:
            await ctx.check(order.plan("a"), proposed_by=text[:10])
        await ctx.do(order, "a")

    world.worker(flow := one_node(body, policy=policy))
    await world.start(flow)
    check_rows(world)
    assert (world.reasons(), shop.did) == (["policy_denied"], ["t:r1:1:order/b"])
    assert len(world.effect("order/b").allowed_by) < TEXT_CHARS_MAX + 100


@pytest.mark.req("GATE-1", "RUN-2")
@pytest.mark.every_store
async def test_an_approval_whose_summary_cannot_be_stored_is_asked_for_once(world: World) -> None:
    """A model wrote the summary, with NUL and half a surrogate pair: the approval was asked for without end."""
    shop = Receiver()

    @activity(key="order/{what}", no_undo="a test")
    async def order(what: str) -> str:
        return await shop.call()

    runs: list[int] = []

    async def body(ctx: Context[State]) -> None:
        runs.append(1)
        decision = await ctx.approval(order.plan("a"), summary=UNSTORABLE, by=role("boss"), within="96h")
        assert decision.chosen
        await ctx.do(decision.chosen)

    world.worker(flow := one_node(body))
    await world.start(flow)
    await world.pass_(MINUTE)
    asked = world.pending()
    assert asked.summary == r"a\x00b\ud83d"
    assert (world.reasons(), len(runs)) == ([], 1)
    await world.decide(asked)
    assert (world.status(), shop.did) == ("completed", ["t:r1:1:order/a"])


@pytest.mark.req("GATE-1", "RUN-2")
@pytest.mark.parametrize("what", ["plans", "risk"])
async def test_an_approval_that_no_row_can_hold_is_refused_at_its_line(world: World, what: str) -> None:
    @activity(key="order/{n}", no_undo="a test")
    async def order(n: int, text: str = "") -> str:
        return text

    async def body(ctx: Context[State]) -> None:
        others = [order.plan(n, "x" * 200_000) for n in range(30)] if what == "plans" else []
        risk: Any = "a\0b" if what == "risk" else "low"
        await ctx.approval(order.plan(99), summary="s", by=role("boss"), within="1h", alternatives=others, risk=risk)

    world.worker(flow := one_node(body))
    await world.start(flow)
    await world.pass_(MINUTE)
    (entry,) = world.attention()
    assert "test_rejected_commits.py" in entry.detail and "OUT-503" not in entry.detail
    assert ("offers plans of 6,0" if what == "plans" else "(risk='a\\x00b')") in entry.detail


# --- on a disk ------------------------------------------------------------------------------------------------
@pytest.mark.whole
@pytest.mark.req("RUN-2", "RUN-3")
def test_on_sqlite_a_rejected_commit_calls_a_person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The node ran again every five seconds without end, and the run showed RUNNING."""
    executions: list[int] = []

    @activity(key="disk/{n}", no_undo="a test")
    async def made(n: int) -> str:
        return "ok"

    @workflow
    async def asks(ctx: Context) -> str:
        executions.append(1)
        return (await ctx.approval(made.plan(1), summary="s", by=role("x"), within="1h")).reason

    def check(commit: Commit) -> None:
        if " ask " in f"{commit.label} ":
            raise Rejected("approval: 2000000 bytes in one row; the limit is 1048576")

    monkeypatch.setattr(batching_store, "check", check)

    async def play() -> str:
        async with outlast.connect(f"sqlite:{tmp_path}/o.db") as client, client.worker([asks]):
            run = await client.start(asks)
            async for event in run.events():
                if event.type.endswith("attention"):
                    return str((await run.status()).attention)
        raise AssertionError("it ended")

    assert "2000000 bytes in one row" in asyncio.run(asyncio.wait_for(play(), 60))
    assert len(executions) == 1
