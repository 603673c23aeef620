"""A crash before and after each commit of the start of a fork and of the fork: the outside record does not grow."""

import asyncio
from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple

import pytest

from outlast.core.forks import Effects
from outlast.core.rows.run_rows import RUN
from outlast.engine import fork_start
from outlast.engine.fork_start import ForkRequest
from outlast.flow import Context, Workflow
from outlast.upkeep.fsck import Fsck
from tests.engine.process import ProcessClock, Wire
from tests.engine.world import MINUTE, QUIET, Go, Receiver, State, World, reading, write

pytestmark = pytest.mark.req("RUN-10", "REC-1")
When = Literal["before", "after"]
FORK: Final = "f1"


class Case(NamedTuple):
    """Terms of a fork, and whether its ancestor has ended."""

    effects: Effects
    in_flight: bool = False


class Ground:
    """An ancestor that has made a call of each kind, and the record of its receiver."""

    def __init__(self, world: World, case: Case) -> None:
        self.world, self.case = world, case
        self.shop, self.reads = Receiver(), list[str]()
        self.flow = self._flow()
        self.before: list[str] = []
        self.callers = 0

    def _flow(self) -> Workflow[State]:
        order, tell = (
            write(self.shop, mode="reconcile"),
            write(self.shop, name="tell", mode="reconcile", once_per="run"),
        )

        def price() -> int:
            self.reads.append("price")
            return 7

        look = reading(price, key="price/{what}", durable=True)
        flow = Workflow("forked", state=State)

        @flow.node(start=True)
        async def begin(ctx: Context[State]) -> Literal["one"]:
            ctx.state.said.append(await ctx.do(tell, "all"))
            return "one"

        @flow.node
        async def one(ctx: Context[State]) -> Literal["two"]:
            ctx.state.said.append(await ctx.do(look, "p"))
            ctx.state.said.append(await ctx.do(order, "a"))
            ctx.state.said.append(await ctx.do(tell, "all"))
            return "two"

        @flow.node
        async def two(ctx: Context[State]) -> None:
            ctx.state.said.append(await ctx.do(order, "b"))
            if ctx.state.n:
                await ctx.receive("go", Go)

        return flow.validate()

    async def play(self) -> None:
        """Play the ancestor to its end, or to its wait."""
        worker = self.world.worker(self.flow)
        await self.world.start(self.flow, n=int(self.case.in_flight))
        await self.world.pass_(QUIET)
        assert self.world.status() == ("waiting" if self.case.in_flight else "completed")
        self.before = [*self.shop.did]
        assert len(self.before) == 3 and len(self.reads) == 1
        worker.kill()

    def start(self, wire: Wire) -> "asyncio.Task[Any]":
        """Start the fork by a process. The state lets it end without the signal."""
        state = {"said": ["did tell/all"], "n": 0}
        effects, why = self.case.effects, "both are needed" if self.case.in_flight else ""
        approvers = "" if effects == "live" else "boss"
        asked = ForkRequest("r1", "one", state, effects=effects, approvers=approvers, both_go_on=why)
        work = fork_start.fork(wire, self.flow, asked, tenant="t", actor="ana", run=FORK)  # type: ignore[arg-type]
        return asyncio.get_running_loop().create_task(work)

    def caller(self) -> Wire:
        """Return a process that starts forks."""
        self.callers += 1
        return Wire(self.world.ground.open(f"caller-{self.callers}"), ProcessClock(self.world.time))

    def grown(self) -> list[str]:
        """Return the requests that the receiver has carried out since the ancestor."""
        return self.shop.did[len(self.before) :]

    async def lives(self) -> None:
        """Let a worker execute the fork until it ends or a person is asked."""
        self.world.worker(self.flow)
        await self.world.pass_(QUIET + MINUTE)

    async def check(self) -> None:
        """Check the record, the end of the fork, the rows, and that its ancestor can end."""
        world, effects = self.world, self.case.effects
        made = [f"t:{FORK}:2:order/a", f"t:{FORK}:3:order/b"] if effects == "live" else []
        assert self.grown() == made
        assert len(self.reads) == 1, "the recorded lookup answers"
        if effects == "ask":
            assert [kind for kind, _ in world.waiting(FORK)] == ["approval"]
            assert world.pending(FORK).plans[0].key == "order/a"
        else:
            assert (world.status(FORK), world.reasons(FORK)) == ("completed", [])
            answers = ["did tell/all", "7", "did order/a", "did tell/all", "did order/b"]
            assert world.outcome(FORK)["said"] == answers
        assert (await Fsck(world.store, chain=True).look()).findings == ()
        if self.case.in_flight:
            await world.signal("go")
            await world.pass_(QUIET)
            assert (world.status(), self.grown()) == ("completed", made)


def kill(wire: Wire) -> Callable[[], None]:
    """Return what stops all commits and answers of the process of a wire."""

    def stop() -> None:
        wire.dead = True
        wire._clock.going.clear()

    return stop


@pytest.fixture(autouse=True)
def _each_copy_is_a_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork_start, "in_portions", lambda puts: [(put,) for put in puts])


CASES: Final = {
    "ask": Case("ask"),
    "recorded": Case("recorded"),
    "live": Case("live"),
    "in-flight": Case("recorded", in_flight=True),
}
COPIES: Final = [f"/00000{n}" for n in range(1, 5)]
STARTS: Final = {
    name: [*(["note_fork f1"] if case.in_flight else []), "begin fork", *COPIES, "start"]
    for name, case in CASES.items()
}
"""Commits of the start of each fork."""
REUSED: Final = ["reuse price/p", "reuse fork?used/000002", "advance one#2", "reuse fork?used/000004", "complete two#3"]
MADE: Final = [
    "intend order/a",
    "record order/a",
    "advance one#2",
    "intend order/b",
    "record order/b",
    "complete two#3",
]
FORKS: Final = {
    "ask": ["reuse price/p", "ask policy/order/a", "park one#2"],
    "recorded": REUSED,
    "live": ["reuse price/p", *MADE],
    "in-flight": REUSED,
}
"""Commits of the worker of each fork, after the claim."""
WHENS: Final[tuple[When, ...]] = ("before", "after")


def deaths(commits: dict[str, list[str]], *more: str) -> list[Any]:
    """Return each crash of each case: its name, before or after, and the label of the commit."""
    found = [(name, when, label) for name in CASES for label in commits[name] for when in WHENS]
    found += [(name, "after", label) for name in CASES for label in more]
    return [pytest.param(*each, id="-".join(each).replace(" ", "-")) for each in found]


@pytest.mark.parametrize("name", CASES)
async def test_each_commit_has_a_crash(world: World, name: str) -> None:
    """The commits that the other tests name are all those of a fork that nothing interrupts."""
    ground = Ground(world, CASES[name])
    await ground.play()
    wire = ground.caller()
    await ground.start(wire)
    await ground.lives()
    await ground.check()
    landed = [(label, part) for label, part in zip(wire.labels, STARTS[name], strict=True) if label.endswith(part)]
    assert len(landed) == len(STARTS[name]), wire.labels
    made = [label for label in world.processes[-1].wire.labels if label.startswith(FORK)]
    assert [label.partition(" ")[2] for label in made] == FORKS[name]


@pytest.mark.parametrize(("name", "when", "label"), deaths(STARTS))
async def test_a_crash_at_each_commit_of_a_start(world: World, name: str, when: When, label: str) -> None:
    """Another process repeats the start. Before that, a worker finds no half of a fork."""
    ground = Ground(world, CASES[name])
    await ground.play()
    first = ground.caller()
    getattr(first, when)(label, kill(first))
    task = ground.start(first)
    await world.settle()
    assert first.dead and not task.done()
    task.cancel()
    last = (label, when) == ("start", "after")
    assert (await world.store.load(RUN, ("t", FORK)) is not None) == last
    if not last:
        await ground.lives()
        assert ground.grown() == []
    assert (await ground.start(ground.caller())).created == (not last)
    await ground.lives()
    await ground.check()


@pytest.mark.parametrize(("name", "when", "label"), deaths(FORKS, "take"))
async def test_a_crash_at_each_commit_of_a_fork(world: World, name: str, when: When, label: str) -> None:
    """Another worker takes over once the lease has run out."""
    ground = Ground(world, CASES[name])
    await ground.play()
    await ground.start(ground.caller())
    process = world.worker(ground.flow)
    getattr(process.wire, when)(label, process.kill)  # the store claims by itself: its answer is lost with the process
    await world.pass_(2 * QUIET)
    assert process.wire.dead
    await ground.lives()
    await ground.check()
