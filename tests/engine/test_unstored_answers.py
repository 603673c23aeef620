"""A call that was done and whose answer cannot be stored: done, without a response, in every execution (EFF-2)."""

from typing import Any

import pytest

from outlast.core.machine import EffectStatus
from outlast.core.row_checks import check_effect
from outlast.errors import AnswerNotStored, Corrupt
from outlast.flow import Context, Failures, Happened, Perhaps, activity
from tests.engine.world import MINUTE, QUIET, SECOND, Go, Receiver, Slow, State, World, one_node, ordering, write

pytestmark = pytest.mark.req("EFF-1", "EFF-2")
LARGE = "x" * 300_000


class Odd:
    """A value that no JSON has, and whose `repr` fails."""

    def __repr__(self) -> str:
        raise RuntimeError("no text")


def catching(act: Any, seen: list[AnswerNotStored]) -> Any:
    """Call `act` once, keep its error, and wait for a signal, so that a second execution calls it again."""

    async def body(ctx: Context[State]) -> None:
        try:
            await ctx.do(act, "a")
        except AnswerNotStored as error:
            seen.append(error)
        await ctx.receive("go", Go)

    return one_node(body)


@pytest.mark.every_store
async def test_it_is_done_and_the_node_gets_the_error_in_each_execution(world: World) -> None:
    shop = Receiver(LARGE)
    seen: list[AnswerNotStored] = []
    flow = catching(write(shop), seen)
    world.worker(flow)
    await world.start(flow)
    effect = world.effect("order/a")
    assert (effect.status, effect.response, effect.code) == (EffectStatus.DONE, None, "answer_not_stored")
    await world.signal("go")
    assert world.status() == "completed" and not world.reasons()
    assert [(e.key, e.size, e.limit, e.head) for e in seen] == [("order/a", 300_000, 262_144, "x" * 1_000)] * 2
    assert "is too large: it takes 300,002 bytes" in seen[1].why
    assert len(shop.attempts) == 1


@pytest.mark.parametrize(
    ("returned", "returns", "head"),
    [
        ("half a pair \ud800", str, "half a pair \\ud800"),
        ([float("nan")], list[float], "[NaN]"),
        ({"a": object}, Any, '{"a":"'),
        (Odd(), Any, "a Odd"),
        ("token=abcdefgh " + LARGE, str, "token=[redacted] xxx"),
    ],
    ids=["surrogate", "nan", "object", "odd", "secret"],
)
async def test_any_answer_that_cannot_be_stored_is_done(world: World, returned: Any, returns: Any, head: str) -> None:
    """The rule names no kind of value. The head that is stored can be shown, and shows no secret."""
    calls: list[str] = []

    @activity(name="act", key="act/{what}", no_undo="a test")
    async def act(what: str) -> returns:
        calls.append(what)
        return returned

    seen: list[AnswerNotStored] = []
    flow = catching(act, seen)
    world.worker(flow)
    await world.start(flow)
    await world.signal("go")
    assert world.status() == "completed"
    assert len(seen) == 2 and seen[1].head.startswith(head)
    assert calls == ["a"]
    seen[1].head.encode()


async def test_an_author_who_does_not_catch_it_meets_a_person(world: World) -> None:
    """The attention names the cause and the way out; to continue repeats no call."""
    shop = Receiver(LARGE)
    flow = ordering(write(shop), "a")
    world.worker(flow)
    await world.start(flow)
    (entry,) = world.attention()
    assert entry.reason == "exception"
    assert "OUT-106" in entry.detail and "the call was done" in entry.detail and "catch AnswerNotStored" in entry.detail
    await world.answer("exception", "continue")
    await world.pass_(SECOND)
    assert world.reasons() == ["exception"] and len(shop.attempts) == 1


async def test_the_receiver_confirms_it_with_an_answer_that_cannot_be_stored(world: World) -> None:
    shop = Receiver(Perhaps("gone"))
    shop.tells = [Happened(LARGE, "ext-1")]
    seen: list[AnswerNotStored] = []
    flow = catching(write(shop, mode="reconcile"), seen)
    world.worker(flow)
    await world.start(flow)
    await world.pass_(MINUTE)
    effect = world.effect("order/a")
    assert (effect.status, effect.settled_by, effect.external_id) == (EffectStatus.DONE, "reconcile", "ext-1")
    assert len(seen) == 1 and len(shop.attempts) == 1


@pytest.mark.req("EFF-6")
async def test_its_undo_gets_no_response_so_a_person_undoes_it(world: World) -> None:
    """The undo is not called with null. The attention shows how the answer began."""
    shop, other = Receiver("head of it " + LARGE), Receiver()
    flow = catching(write(shop, undo=other), [])
    world.worker(flow)
    await world.start(flow)
    await world.cancel()
    await world.pass_(SECOND)
    assert world.reasons() == ["undo_failed"] and other.given == []
    (entry,) = world.attention()
    assert "answer_not_stored: its undo needs the answer" in entry.detail and "head of it" in entry.detail
    await world.answer("undo_failed", "done_by_hand")
    await world.pass_(SECOND)
    assert world.status() == "cancelled" and world.effect("order/a").status is EffectStatus.UNDONE


async def test_another_run_that_uses_it_gets_the_same_error(world: World) -> None:
    shop = Receiver(LARGE)
    act = write(shop, once_per="tenant")
    seen: list[AnswerNotStored] = []
    flow = catching(act, seen)
    world.worker(flow)
    await world.start(flow, run="r1")
    await world.signal("go", run="r1")
    await world.start(flow, run="r2")
    await world.pass_(SECOND)
    assert len(shop.attempts) == 1 and [e.key for e in seen] == ["order/a"] * 3


@pytest.mark.req("OUT-4")
async def test_fails_if_counts_it_as_done(world: World) -> None:
    shop = Receiver(LARGE)
    seen: list[AnswerNotStored] = []

    async def body(ctx: Context[State]) -> None:
        for what in ("a", "b"):
            try:
                ctx.state.said.append(await ctx.do(act, what))
            except AnswerNotStored as error:
                seen.append(error)

    act = write(shop)
    flow = one_node(body, fails_if=Failures(0.5))
    world.worker(flow)
    await world.start(flow)
    assert world.status() == "completed" and len(seen) == 1


@pytest.mark.parametrize("refused", ["raise", "return"])
async def test_a_list_of_calls_settles_before_it_is_raised(world: World, refused: Any) -> None:
    """As for a refusal: no call of the list is in flight when the node gets the error."""
    slow = Slow()
    shop = Receiver(LARGE, slow)
    act = write(shop)
    open_calls: list[int] = []

    async def body(ctx: Context[State]) -> None:
        try:
            await ctx.do_all([act.plan("a"), act.plan("b"), act.plan("c")], refused=refused)
        except AnswerNotStored:
            open_calls.append(sum(e.settled_at == 0 for e in world.effects()))

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    assert not open_calls
    slow.go.set()
    await world.settle()
    assert world.status() == "completed"
    assert open_calls == [0] and len(shop.attempts) == 3


async def test_a_run_that_ends_settles_it_without_a_question(world: World) -> None:
    """It is left open at the end of the run, and the receiver confirms it: nothing stops the end."""
    shop = Receiver(Perhaps("gone"))
    shop.tells = [*[Perhaps("away")] * 3, Happened(LARGE)]
    flow = ordering(write(shop, mode="reconcile"), "a")
    world.worker(flow)
    await world.start(flow)
    await world.cancel()
    await world.pass_(2 * QUIET)
    assert world.status() == "cancelled" and world.effect("order/a").code == "answer_not_stored"


async def test_no_other_row_is_done_without_a_response(world: World) -> None:
    """Only this error explains a missing response; any other such row is corrupt."""
    flow = ordering(write(Receiver(LARGE)), "a")
    world.worker(flow)
    await world.start(flow)
    effect = world.effect("order/a")
    check_effect(effect)
    with pytest.raises(Corrupt, match="done without a response"):
        check_effect(effect._replace(error_text=""))
