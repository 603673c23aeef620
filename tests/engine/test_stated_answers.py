"""Answers of people about uncertain calls: loaded before the node sees them, correctable until used (EFF-2)."""

import json
from typing import Any

import pytest
from pydantic import BaseModel, field_validator

from outlast.core.machine import EffectStatus
from outlast.core.rows.effect_rows import EFFECT, STATED, Effect
from outlast.engine import commands
from outlast.errors import Conflict, InvalidInput
from outlast.flow import Context, Perhaps, Refused, activity, workflow
from outlast.insight.answer_schemas import encoder_of
from tests.engine.world import QUIET, Acts, Receiver, Slow, State, World, one_node, ordering, write
from tests.mutants import remove

Ctx = Context[State]
pytestmark = pytest.mark.req("EFF-2")
UNFIT = "answer_unfit: the answer stated by ana does not fit the type that order returns: (the whole): Input should be"


async def state(
    world: World, key: str, verb: Any, response: bytes | None = None, *, by: str = "ana", correct: bool = False,
    run: str = "r1",
) -> None:  # fmt: skip
    """Record a person's answer as it is, as a path that does not check it would."""
    await commands.resolve_effect(
        world.store, tenant="t", run=run, key=key, verb=verb, actor=by, reason=f"says {by}",
        encode=None if response is None else lambda _: response, correct=correct,
    )  # fmt: skip
    await world.settle()


def answers(world: World, run: str = "r1") -> list[tuple[str, str]]:
    """Return who gave which answer, as the history of the run has it."""
    said = [json.loads(e.body)["data"] for e in world.events(run) if e.type.endswith(".answered")]
    return [(each["by"], each["choice"]) for data in said for each in data["answers"]]


def row_of(world: World, key: str) -> Effect:
    row = world.core.rows.get(EFFECT, ("t", "", 0, key))
    assert isinstance(row, Effect)
    return row


@pytest.mark.every_store
async def test_an_answer_that_does_not_fit_asks_again_and_changes_nothing(world: World) -> None:
    shop = Receiver(Perhaps("lost"))
    flow = ordering(write(shop), "a", "b")
    world.worker(flow)
    await world.start(flow)
    settle_after = world.effect("order/a").settle_after
    await state(world, "order/a", "happened", b"null")
    effect = world.effect("order/a")
    assert (effect.status, effect.response, effect.settled_at) == (EffectStatus.UNCERTAIN, None, 0)
    assert (effect.settle_after, effect.attempts, len(shop.attempts)) == (settle_after, 1, 1)
    assert world.reasons() == ["effect_uncertain"] and world.attention()[0].detail.startswith(UNFIT)
    await state(world, "order/a", "happened", b'"seen"', by="ben")
    assert world.outcome()["said"] == ["seen", "did order/b"]
    assert answers(world) == [("ana", "happened"), ("ben", "happened")]
    assert shop.did == ["t:r1:1:order/b"]


@pytest.mark.parametrize(
    ("cents", "why"), [(1, "(the whole): reading it raises KeyError"), (2, "(the whole): reading it raises Unicode")]
)
async def test_a_validator_that_raises_anything_asks_again(world: World, cents: int, why: str) -> None:
    """Also one with the error of a mistake, or with a text that is not Unicode."""

    class Receipt(BaseModel):
        cents: int

        @field_validator("cents")
        @classmethod
        def checked(cls, given: int) -> int:
            if given == 1:
                raise KeyError(given)
            if given == 2:
                raise ValueError("\ud800")
            return given

    @activity(key="order/{item}", no_undo="sent")
    async def order(item: str) -> Receipt:
        raise Perhaps("lost")

    async def body(ctx: Ctx) -> None:
        ctx.state.said = [str((await ctx.do(order, "a")).cents)]

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)

    @workflow
    async def orders(ctx: Context) -> None:
        await ctx.do(order, "a")

    given = json.dumps({"cents": cents})
    with pytest.raises(InvalidInput) as refused:
        encoder_of(orders, {}, "1", {"cents": cents})(world.effect("order/a"))
    assert why in str(refused.value)
    await state(world, "order/a", "happened", given.encode())
    assert world.reasons() == ["effect_uncertain"] and why in world.attention()[0].detail
    await state(world, "order/a", "happened", b'{"cents":3}')
    assert world.outcome()["said"] == ["3"]


async def test_an_answer_that_the_code_refused_in_other_places_is_asked_again_too(world: World) -> None:
    """`ctx.recorded` and an undo read the same answer, so they find the same."""
    shop = Receiver(Perhaps("lost"))
    order = write(shop, undo=True)

    async def body(ctx: Ctx) -> None:
        ctx.state.said = [str(each.response) for each in await ctx.recorded(order.plan("a"))]
        ctx.state.said.append(await ctx.do(order, "a"))

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await state(world, "order/a", "happened", b"1")
    assert world.reasons() == ["effect_uncertain"] and world.attention()[0].detail.startswith(UNFIT)
    await world.cancel()
    await state(world, "order/a", "happened", b"2")
    assert (world.status(), world.reasons()) == ("compensating", ["effect_uncertain"])
    assert world.attention()[0].detail.startswith(UNFIT) and shop.given == []
    await state(world, "order/a", "happened", b'"seen"')
    assert (world.status(), shop.given) == ("cancelled", ["seen"])


async def test_an_answer_is_given_once_it_is_durable_that_it_was(world: World) -> None:
    """From then on it is not corrected, whatever happens to the process."""
    shop = Receiver(Perhaps("lost"))
    order, seen = write(shop), list[int]()

    async def body(ctx: Ctx) -> None:
        ctx.state.said = [await ctx.do(order, "a")]
        seen.append(world.effect("order/a").shared)
        await ctx.receive("go", State)

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await state(world, "order/a", "happened", b'"seen"')
    assert seen == [0]
    with pytest.raises(Conflict, match="is not uncertain"):
        await state(world, "order/a", "happened", b'"other"', correct=True)
    assert answers(world) == [("ana", "happened")]


@pytest.mark.every_store
async def test_an_answer_is_corrected_while_the_run_waits_for_another_person(world: World) -> None:
    """Every correction is one more event, and only the last answer reaches the node and a receiver."""
    shop = Receiver(Perhaps("lost"), Perhaps("lost"))
    order = write(shop)

    async def body(ctx: Ctx) -> None:
        ctx.state.said = [str(each) for each in await ctx.do_all([order.plan("a"), order.plan("b")])]

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await state(world, "order/a", "happened", b'"first"')
    assert world.effect("order/a").shared == STATED
    await state(world, "order/a", "happened", b'"second"', by="ben")
    await world.pass_(QUIET)
    with pytest.raises(Conflict, match="ben has answered: it happened"):
        await state(world, "order/a", "did_not_happen", by="cem")
    await state(world, "order/a", "did_not_happen", by="cem", correct=True)
    await state(world, "order/a", "happened", b'"third"', by="dora", correct=True)
    await state(world, "order/b", "happened", b'"b"', by="eve")
    assert world.outcome()["said"] == ["third", "b"]
    assert [name for name, _ in answers(world)] == ["ana", "ben", "cem", "dora", "eve"]
    assert shop.did == [] and len(shop.attempts) == 2


async def test_answers_that_no_execution_was_given_are_corrected_before_a_worker_comes(world: World) -> None:
    """Given up by mistake: it is called again, as another person says, and never given up to the node."""
    shop = Receiver(Perhaps("lost"))
    flow = ordering(write(shop), "a")
    world.worker(flow)
    await world.start(flow)
    await world.pass_(QUIET)
    await world.off_duty()
    await state(world, "order/a", "give_up")
    await state(world, "order/a", "did_not_happen", by="ben", correct=True)
    world.worker(flow)
    await world.settle()
    assert world.outcome()["said"] == ["did order/a"] and shop.did == ["t:r1:1:order/a"]
    assert answers(world) == [("ana", "give_up"), ("ben", "did_not_happen")]


async def test_a_refusal_that_a_person_stated_is_given_once_too(world: World) -> None:
    shop = Receiver(Perhaps("lost"))
    order = write(shop)

    async def body(ctx: Ctx) -> None:
        try:
            await ctx.do(order, "a")
        except Refused as refused:
            ctx.state.said = [refused.code]
        await ctx.receive("go", State)

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await state(world, "order/a", "give_up")
    assert world.effect("order/a").shared == 0
    with pytest.raises(Conflict, match="is not uncertain"):
        await state(world, "order/a", "happened", b'"x"', correct=True)


async def test_an_answer_that_another_run_uses_is_not_corrected(world: World) -> None:
    """A shared call: its run is asked again if the answer does not fit; the run that waits does not notice it."""
    shop = Receiver(Perhaps("lost"))
    flow = ordering(write(shop, once_per="tenant"), "a")
    world.worker(flow)
    await world.start(flow, "r1")
    await world.start(flow, "r2")
    await state(world, "order/a", "happened", b"7")
    assert (world.reasons("r1"), world.status("r2")) == (["effect_uncertain"], "waiting")
    await state(world, "order/a", "happened", b'"seen"')
    assert [world.outcome(run)["said"] for run in ("r1", "r2")] == [["seen"], ["seen"]]
    with pytest.raises(Conflict, match="is not uncertain"):
        await state(world, "order/a", "happened", b'"other"', correct=True)
    assert len(shop.attempts) == 1


async def test_a_run_that_ended_takes_no_correction_of_an_answer_that_it_never_used(world: World) -> None:
    shop = Receiver(Perhaps("lost"))
    flow = ordering(write(shop, once_per="tenant"), "a")
    world.worker(flow)
    await world.start(flow, "r1")
    await world.off_duty()
    await state(world, "order/a", "happened", b"7")
    await world.cancel()
    world.worker(flow)
    await world.settle()
    assert world.status() == "cancelled" and row_of(world, "order/a").shared == STATED
    with pytest.raises(Conflict, match="run r1 has ended"):
        await state(world, "order/a", "happened", b'"seen"')
    await world.start(flow, "r2")
    assert world.reasons("r2") == ["exception"], "it does not wait for a run that has ended"
    assert "the answer stated by ana to order/a does not fit" in world.attention("r2")[0].detail


class Receipt(BaseModel):
    """A type with a validator, which no schema knows."""

    number: str

    @field_validator("number")
    @classmethod
    def _known(cls, number: str) -> str:
        if number in FORGOTTEN:
            raise ValueError("no receipt of ours")
        return number


FORGOTTEN = {"R-0"}


def paying(receiver: Receiver) -> Any:
    @activity(key="pay/{what}", no_undo="a test undoes nothing")
    async def pay(what: str) -> Receipt:
        return Receipt(number=await receiver.call())

    return pay


async def test_an_answer_that_a_validator_refuses_is_asked_again(world: World) -> None:
    pay = paying(Receiver(Perhaps("lost")))

    async def body(ctx: Ctx) -> None:
        ctx.state.said = [(await ctx.do(pay, "a")).number]

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await state(world, "pay/a", "happened", b'{"number": "R-0"}')
    assert world.reasons() == ["effect_uncertain"] and "no receipt of ours" in world.attention()[0].detail
    await state(world, "pay/a", "happened", b'{"number": "R-1"}')
    assert world.outcome()["said"] == ["R-1"]


async def test_the_error_names_whose_answer_it_was_if_the_type_changes_later(world: World) -> None:
    """The answer was given, so the effect stays as it is."""
    pay = paying(Receiver(Perhaps("lost")))

    async def body(ctx: Ctx) -> None:
        ctx.state.said = [(await ctx.do(pay, "a")).number]
        await ctx.receive("go", State)

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await state(world, "pay/a", "happened", b'{"number": "R-7"}')
    FORGOTTEN.add("R-7")
    await world.signal("go")
    assert world.reasons() == ["exception"]
    assert "the answer stated by ana to pay/a does not fit what" in world.attention()[0].detail
    assert world.effect("pay/a").status is EffectStatus.DONE


async def test_use_recorded_takes_a_stated_answer_only_if_it_fits(world: World) -> None:
    shop = Receiver(Acts(Perhaps("lost")))
    order, amounts = write(shop), [1]

    async def body(ctx: Ctx) -> None:
        ctx.state.said = [await ctx.do(order, "a", amounts[0])]

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    amounts[0] = 2
    await state(world, "order/a", "happened", b"5")
    assert world.reasons() == ["contradiction"]
    await world.answer("contradiction", "use_recorded")
    assert world.reasons() == ["effect_uncertain"] and world.attention()[0].detail.startswith(UNFIT)
    await state(world, "order/a", "happened", b'"seen"')
    assert world.outcome()["said"] == ["seen"] and len(shop.did) == 1


async def test_an_answer_corrected_while_it_is_being_given_is_given_as_corrected(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit that gives it fails, and the node begins again with the other one."""
    shop = Receiver(Perhaps("lost"))
    flow = ordering(write(shop), "a")
    process = world.worker(flow)
    await world.start(flow)
    submit, raced = process.wire.submit, list[str]()

    def meanwhile(commit: Any, **options: Any) -> Any:
        if commit.label.endswith(" give order/a") and not raced:
            raced.append(commit.label)
            world.ground.now(
                commands.resolve_effect(
                    world.store, tenant="t", run="r1", key="order/a", verb="happened", actor="ben", reason="no",
                    encode=lambda _: b'"second"',
                )
            )  # fmt: skip
        return submit(commit, **options)

    monkeypatch.setattr(process.wire, "submit", meanwhile)
    await state(world, "order/a", "happened", b'"first"')
    assert (raced, world.outcome()["said"]) == (["r1 give order/a"], ["second"])
    assert answers(world) == [("ana", "happened"), ("ben", "happened")]


# --- each safeguard removed --------------------------------------------------------------------------
@pytest.mark.parametrize("removed", ["", "answer_unloaded"])
async def test_without_the_load_a_wrong_answer_ends_the_node(
    world: World, monkeypatch: pytest.MonkeyPatch, removed: str
) -> None:
    if removed:
        remove(removed, monkeypatch)
    flow = ordering(write(Receiver(Perhaps("lost"))), "a")
    world.worker(flow)
    await world.start(flow)
    await state(world, "order/a", "happened", b"null")
    assert world.reasons() == (["exception"] if removed else ["effect_uncertain"])


@pytest.mark.parametrize("removed", ["", "answer_not_given"])
async def test_without_the_commit_an_answer_is_corrected_after_the_node_has_it(
    world: World, monkeypatch: pytest.MonkeyPatch, removed: str
) -> None:
    if removed:
        remove(removed, monkeypatch)
    order = write(Receiver(Perhaps("lost")))

    async def body(ctx: Ctx) -> None:
        ctx.state.said = [await ctx.do(order, "a")]
        await ctx.receive("go", State)

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await state(world, "order/a", "happened", b'"seen"')
    if removed:
        await state(world, "order/a", "happened", b'"other"')
        assert world.effect("order/a").response == b'"other"', "another value than the node has"
    else:
        with pytest.raises(Conflict):
            await state(world, "order/a", "happened", b'"other"')


@pytest.mark.parametrize("removed", ["", "undo_leaves_answer_open"])
async def test_without_the_mark_an_answer_is_corrected_while_its_undo_uses_it(
    world: World, monkeypatch: pytest.MonkeyPatch, removed: str
) -> None:
    if removed:
        remove(removed, monkeypatch)
    slow = Slow()
    flow = ordering(write(Receiver(Perhaps("lost")), undo=Receiver(slow)), "a")
    world.worker(flow)
    await world.start(flow)
    await world.off_duty()
    await state(world, "order/a", "happened", b'"seen"')
    await world.cancel()
    world.worker(flow)
    await world.settle()
    await slow.begun.wait()
    if removed:
        await state(world, "order/a", "happened", b'"other"')
        assert world.effect("order/a").response == b'"other"', "another value than the undo has"
    else:
        with pytest.raises(Conflict):
            await state(world, "order/a", "happened", b'"other"')
    slow.go.set()
    await world.settle()


@pytest.mark.parametrize("removed", ["", "answer_corrected_unseen"])
async def test_without_the_word_correct_two_people_cause_two_calls(
    world: World, monkeypatch: pytest.MonkeyPatch, removed: str
) -> None:
    """The second one has not seen the first answer."""
    if removed:
        remove(removed, monkeypatch)
    shop = Receiver(Acts(Perhaps("lost")))
    flow = ordering(write(shop), "a")
    world.worker(flow)
    await world.start(flow)
    await world.pass_(QUIET)
    await world.off_duty()
    await state(world, "order/a", "happened", b'"seen"')
    if removed:
        await state(world, "order/a", "did_not_happen", by="ben")
    else:
        with pytest.raises(Conflict):
            await state(world, "order/a", "did_not_happen", by="ben")
    world.worker(flow)
    await world.settle()
    assert len(shop.did) == (2 if removed else 1)


@pytest.mark.parametrize("removed", ["", "answer_fits_any_schema"])
async def test_without_the_stored_schema_a_program_without_the_code_takes_any_answer(
    world: World, monkeypatch: pytest.MonkeyPatch, removed: str
) -> None:
    if removed:
        remove(removed, monkeypatch)
    flow = ordering(write(Receiver(Perhaps("lost"))), "a")
    world.worker(flow)
    await world.start(flow)
    encode = encoder_of(None, {"order": {"type": "string"}}, "flow@1", None)
    if removed:
        assert encode(world.effect("order/a")) == b"null"
    else:
        with pytest.raises(InvalidInput, match="the answer of activity"):
            encode(world.effect("order/a"))
