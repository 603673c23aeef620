"""Workflows of the simulation.

To add one, decorate a function that returns a Workflow with @scenario. Bodies are ordinary author's code that raises
nothing unexpected: an `exception` in a run's attention is a finding.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, Literal

from pydantic import BaseModel

from outlast.core.machine import Reason
from outlast.flow import (
    Activity,
    Cancel,
    Context,
    DidNotHappen,
    Fail,
    Happened,
    Refused,
    Unknown,
    Workflow,
    activity,
    lookup,
    resend,
    role,
)
from tests.simulation.receivers import WINDOW, Receivers
from tests.simulation.workers import RELEASE

NONE: Final = "a simulated receiver takes nothing back"


class At:
    """Receivers of the current seed."""

    world: Receivers


# --- activities, one of each kind -----------------------------------------------------------------
@activity(key="order/{what}", no_undo=NONE)
async def order(what: str, amount: int = 1) -> str:
    """Ask: the receiver neither deduplicates nor answers questions."""
    return await At.world.call("ask", what, amount=amount)


@activity(key="book/{what}", no_undo=NONE, if_uncertain=resend(remembered_for=timedelta(milliseconds=WINDOW)))
async def book(what: str) -> str:
    """Resend: the receiver deduplicates for a while."""
    return await At.world.call("repeat", what)


@activity(key="reserve/{what}", no_undo=NONE)
async def reserve(what: str) -> str:
    """Reconcile: the receiver can be asked."""
    return await At.world.call("reconcile", what)


@reserve.reconcile
async def find_reservation(what: str) -> Happened[str] | DidNotHappen | Unknown:
    return await At.world.find(what)


@activity(key="pay/{what}", no_undo=NONE)
async def pay(what: str, cents: int) -> str:
    """Ask, and only with an approval."""
    return await At.world.call("ask", what, cents=cents)


@activity(key="seat/{what}")
async def seat(what: str) -> str:
    """Reconcile; the undo asks a person."""
    return await At.world.call("reconcile", what)


@seat.reconcile
async def find_seat(what: str) -> Happened[str] | DidNotHappen | Unknown:
    return await At.world.find(what)


@seat.undo
async def free_seat(done: str, what: str) -> str:
    return await At.world.call("ask", what)


@activity(key="car/{what}", if_uncertain=resend(remembered_for=timedelta(milliseconds=WINDOW)))
async def car(what: str) -> str:
    """Resend; so does the undo."""
    return await At.world.call("repeat", what)


@car.undo(if_uncertain=resend(remembered_for=timedelta(milliseconds=WINDOW)))
async def return_car(done: str, what: str) -> str:
    return await At.world.call("repeat", what)


async def find_refund(done: str, what: str, cents: int) -> Happened[object] | DidNotHappen | Unknown:
    """Return whether the deposit was paid back, as a reconcile answer."""
    return await At.world.find(what)


@activity(key="deposit/{what}")
async def deposit(what: str, cents: int) -> str:
    """Ask; the undo asks the receiver."""
    return await At.world.call("ask", what, cents=cents)


@deposit.undo(reconcile=find_refund)
async def refund(done: str, what: str, cents: int) -> str:
    return await At.world.call("reconcile", what, cents=cents)


@lookup
async def price(what: str, release: int) -> int:
    """Return the amount, which differs between two releases."""
    return 100 * release


class State(BaseModel):
    """State of the simulated runs."""

    said: list[str] = []
    rounds: int = 0


class Word(BaseModel):
    """Payload of a signal."""

    n: int = 0


# --- the table --------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Scenario:
    """Workflow, and the reasons for which it may call a person besides the common ones."""

    name: str
    workflow: Workflow[State]
    reasons: frozenset[Reason] = frozenset()
    signals: tuple[str, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)


SCENARIOS: Final[dict[str, Scenario]] = {}
Ctx = Context[State]


def scenario(*reasons: Reason, **options: Any) -> Callable[[Callable[[], Workflow[State]]], None]:
    """Register a scenario. `reasons`: attention that is no finding in it."""

    def add(make: Callable[[], Workflow[State]]) -> None:
        name = make.__name__
        SCENARIOS[name] = Scenario(name, make().validate(), frozenset(reasons), **options)

    return add


HONEST: Final = range(1_000_000, 2_000_000)
"""Seeds of bodies that ask for the same keys in each execution, and of edits of them that are safe (S-27)."""
DRIFTING: Final = range(2_000_000, 3_000_000)
"""Seeds of bodies that ask for another key in each execution."""


def scenarios_of(seed: int) -> list[Scenario]:
    """Return the scenarios from which a seed draws."""
    ranges = {"honest": HONEST, "drifting": DRIFTING}
    for name, seeds in ranges.items():
        if seed in seeds:
            return [SCENARIOS[name]]
    return [each for name, each in SCENARIOS.items() if name not in ranges]


async def attempt(ctx: Ctx, call: Activity[Any, str], *args: Any) -> None:
    """Make a call; treat a refusal as an answer, used-up attempts as an error."""
    try:
        ctx.log(f"asks {call.name} {args[0]}", "an entry before the call")
        ctx.state.said.append(await ctx.do(call, *args))
        ctx.log(f"asked {call.name} {args[0]}", "an entry after it")
    except Refused as error:
        if error.code == Reason.RETRIES_EXHAUSTED.value:
            raise
        ctx.state.said.append(error.code)


def second(n: float) -> timedelta:
    return timedelta(seconds=n)


@scenario()
def trip() -> Workflow[State]:
    """Return a workflow with one effect of each mode, in two nodes."""
    flow = Workflow("trip", state=State, ceiling=second(900))

    @flow.node(start=True)
    async def outward(ctx: Ctx) -> Literal["back"]:
        await attempt(ctx, reserve, "seat")
        await attempt(ctx, book, "room")
        return "back"

    @flow.node
    async def back(ctx: Ctx) -> None:
        await attempt(ctx, order, "taxi")
        await attempt(ctx, reserve, "seat")

    return flow


@scenario(Reason.POLICY_DENIED, Reason.CONTRADICTION, Reason.NODE_DIVERGED)
def gate() -> Workflow[State]:
    """Return a workflow with an approval whose amount the next release computes again, or a further round."""
    flow = Workflow("gate", state=State, ceiling=second(900))

    @flow.node(start=True, max_visits=3)
    async def ask(ctx: Ctx) -> Literal["ask", "settle"]:
        cents = 100 * RELEASE.get()
        decision = await ctx.approval(
            pay.plan("bill", cents), summary="the bill", by=role("boss"), within=second(90), valid_for=second(60),
            again=True,
        )  # fmt: skip
        if decision.outcome == "again":
            ctx.state.rounds += 1
            return "ask"
        if not decision.approved:
            raise Cancel("rejected")
        return "settle"

    @flow.node
    async def settle(ctx: Ctx) -> Literal["again"]:
        """Pay; another release may be loaded, with another amount."""
        await ctx.sleep(second(5), name="a-while")
        await attempt(ctx, pay, "bill", 100 * RELEASE.get())
        return "again"

    @flow.node
    async def again(ctx: Ctx) -> None:
        """Pay the same bill in a later visit, which needs another approval."""
        decision = await ctx.approval(pay.plan("bill", 100), summary="once more", by=role("boss"), within=second(60))
        if decision.chosen is not None:
            await attempt(ctx, pay, "bill", 100)

    return flow


@scenario()
def fan() -> Workflow[State]:
    """Return a workflow of concurrent calls, in which a refusal or a wait does not disturb the others."""
    flow = Workflow("fan", state=State, ceiling=second(900))

    @flow.node(start=True)
    async def all_at_once(ctx: Ctx) -> Literal["rest"]:
        ctx.log("fans out", "an entry beside many calls")
        cost = await ctx.do(price, "x", 1)
        got = await ctx.do_all(
            {
                "a": reserve.plan("a"),
                "b": book.plan("b"),
                "c": order.plan("c", cost),
                "d": reserve.plan("d"),
            },
            refused="return",
        )
        ctx.state.said += [str(name) for name in got]
        return "rest"

    @flow.node
    async def rest(ctx: Ctx) -> None:
        await ctx.sleep(second(30), name="breath")
        await attempt(ctx, order, "done")

    return flow


@scenario(signals=("go", "bid"))
def post_office() -> Workflow[State]:
    """Return a workflow of signals and deadlines, with an effect after each."""
    flow = Workflow("post_office", state=State, ceiling=second(900))

    @flow.node(start=True)
    async def wait(ctx: Ctx) -> Literal["gather"]:
        word = await ctx.receive("go", Word, timeout=second(60))
        ctx.state.said.append("nothing" if word is None else f"go {word.n}")
        await attempt(ctx, book, "letter")
        return "gather"

    @flow.node
    async def gather(ctx: Ctx) -> None:
        ctx.state.said += [f"bid {bid.n}" for bid in await ctx.collect("bid", Word, timeout=second(45), limit=3)]
        await attempt(ctx, reserve, "parcel")

    return flow


@scenario(Reason.UNDO_FAILED)
def saga() -> Workflow[State]:
    """Return a workflow of three effects with different undo terms, which completes, fails or is cancelled."""
    flow = Workflow("saga", state=State, ceiling=second(900))

    @flow.node(start=True)
    async def out(ctx: Ctx) -> Literal["end"]:
        await ctx.do_all({"seat": seat.plan("1a"), "car": car.plan("red")}, refused="return")
        return "end"

    @flow.node
    async def end(ctx: Ctx) -> None:
        await attempt(ctx, deposit, "car", 500)
        how = ctx.random("end")
        if how < 0.3:
            raise Cancel("it rains")
        if how < 0.6:
            raise Fail("no car")

    return flow


@lookup(durable=True)
async def quote(what: str) -> str:
    """Return a paid text, which differs in each call."""
    return f"{what} {At.world.env.dice.rng.random()}"


@lookup
async def flaky(what: str) -> str:
    """Fail sometimes, so that the body takes another way, and must take it in each execution."""
    if At.world.env.dice.rng.random() < 0.5:
        raise ValueError("a parser bug")
    return what


@scenario(Reason.UNDO_FAILED, signals=("go",))
def honest() -> Workflow[State]:
    """Return a workflow whose node makes the same calls in each execution, in an order that differs."""
    flow = Workflow("honest", state=State, ceiling=second(900))

    async def elsewhere() -> None:
        """Wait for something that is not the engine's, as a thread does, for another time in each execution."""
        await asyncio.sleep(At.world.env.dice.rng.random() * At.world.env.dice.choice((0, 0, 0.01, 2, 20)))

    async def branch(ctx: Ctx, name: str, calls: int) -> None:
        await elsewhere()
        for n in range(calls):
            call = (order, book, reserve)[int(ctx.random(f"{name}{n}") * 3)]
            await attempt(ctx, call, f"{name}{n}")
            if ctx.random(f"{name}{n} thread") < 0.4:
                await elsewhere()
            if ctx.random(f"{name}{n} sleeps") < 0.2:
                await ctx.sleep(second(7), name=f"{name}{n}")

    newest: dict[tuple[Receivers, str], int] = {}

    def is_edited(ctx: Ctx) -> bool:
        """Return True from the first execution by a later release on: a rollback that removes calls is not safe."""
        place = (At.world, ctx.run_id)
        newest[place] = max(newest.get(place, 1), RELEASE.get())
        return newest[place] > 1

    async def edited(ctx: Ctx) -> None:
        """Make calls that a later release has added: of another activity, which the edit may put anywhere."""
        if is_edited(ctx):
            await attempt(ctx, car, "added")

    @flow.node(start=True)
    async def work(ctx: Ctx) -> Literal["rest"]:
        await edited(ctx)
        said = await ctx.do(quote, "today")
        try:
            fetched = await ctx.do(flaky, "page")
        except ValueError:
            fetched = "nothing"
        await attempt(ctx, order, f"first {said[-6:]} {fetched}")
        names = ["a", "b", "c"][: 1 + int(ctx.random("branches") * 3)]
        if is_edited(ctx):
            names.reverse()
        if ctx.random("grouped") < 0.3:
            async with asyncio.TaskGroup() as group:
                for name in names:
                    group.create_task(branch(ctx, name, 1 + int(ctx.random(name) * 3)))
        else:
            await asyncio.gather(*(branch(ctx, name, 1 + int(ctx.random(name) * 3)) for name in names))
        await ctx.sleep(second(10), name="between")
        plans = {f"p{n}": reserve.plan(f"p{n}") for n in range(int(ctx.random("plans") * 5))}
        await ctx.do_all(plans, at_most=int(ctx.random("at most") * 3), refused="return")
        word = await ctx.receive("go", Word, timeout=second(30))
        await attempt(ctx, book, "after" if word is None else f"after {word.n}")
        if is_edited(ctx):  # after the recorded ones
            await attempt(ctx, order, "appended")
        return "rest"

    @flow.node
    async def rest(ctx: Ctx) -> None:
        await attempt(ctx, reserve, "first")

    return flow


@scenario(Reason.NODE_DIVERGED, signals=("go",))
def drifting() -> Workflow[State]:
    """Return a workflow that makes keys of a counter, a clock and a text that is not recorded."""
    flow = Workflow("drifting", state=State, ceiling=second(900))

    def wrong(ctx: Ctx, name: str) -> str:
        env = At.world.env
        made = {0: str(env.loop.now), 1: str(env.dice.rng.random())}
        return f"drift-{name}-{made.get(int(ctx.random(name) * 2))}"

    @flow.node(start=True)
    async def work(ctx: Ctx) -> None:
        one, two = (((order, book, reserve)[int(ctx.random(name) * 3)]) for name in ("one", "two"))
        if ctx.random("shape") < 0.4:
            await attempt(ctx, one, wrong(ctx, "x"))
        elif ctx.random("shape") < 0.7:
            await ctx.do_all([one.plan(wrong(ctx, "x"))], refused="return")
        else:
            await asyncio.gather(attempt(ctx, one, wrong(ctx, "x")), ctx.receive("go", Word, timeout=second(40)))
        await ctx.sleep(second(10), name="between")
        if two is not one:
            await attempt(ctx, two, wrong(ctx, "y"))
            await ctx.sleep(second(10), name="at-the-end")

    return flow
