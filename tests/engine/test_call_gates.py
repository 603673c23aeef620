"""Gates of a call: their order, their grants, and the second look at facts after a wait (S-17, S-20, S-23)."""

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from outlast.core.conclude import Parked
from outlast.core.effect_steps import Intend, Purpose
from outlast.core.rate_limit import limit_row, rate_limit_of
from outlast.core.rows.limit_rows import PAUSE, Pause
from outlast.core.rows.run_columns import Timer, WaitingFor
from outlast.core.rows.store_rows import META, Meta
from outlast.core.usage import Budget
from outlast.engine import attempts, call_gates, effect_executor
from outlast.engine import known_pauses as pauses
from outlast.engine.call_gates import ROUNDS_MAX, CallGate, GatedAttempt
from outlast.engine.known_pauses import BREAKER, BY_THE_ENGINE
from outlast.engine.limit_seats import CallSeat
from outlast.engine.node_execution import Unresolved
from outlast.errors import Unavailable
from outlast.flow import (
    Allow,
    Context,
    Deny,
    NeedsApproval,
    PolicyRequest,
    RateLimit,
    Verdict,
    activity,
    lookup,
    role,
    this_call,
)
from outlast.flow.workflow import Workflow
from tests.engine.process import Process
from tests.engine.world import (
    MINUTE,
    SECOND,
    Receiver,
    Slow,
    State,
    World,
    one_node,
    ordering,
    threads_and_time,
    write,
)
from tests.mutants import remove

pytestmark = pytest.mark.req("EFF-1", "RUN-6")
Ctx = Context[State]
ONE = RateLimit(concurrent=1)
FACTS = ("pause", "budget", "permission")
PLACES = ("limit", "thread", "window")


def asks_boss(asked: PolicyRequest) -> Verdict:
    return NeedsApproval("four-eyes", by=role("boss"))


class Scene:
    """A workflow of one call that meets every gate, with the places of its worker under control of the test."""

    def __init__(
        self, world: World, *, plain: bool = False, policy: Any = None, budget: Budget | None = None, **options: Any
    ) -> None:
        self.world = world
        self.calls = 0
        self.spending = Slow()
        settings: dict[str, Any] = {"key": "order/{what}", "name": "order", "provider": "erp", "limit": ONE, **options}

        @lookup(name="model", durable=True)
        async def model(what: str) -> str:
            self.spending.begun.set()
            await self.spending.go.wait()
            this_call().used(input_tokens=100, output_tokens=0, model="m-1")
            return what

        if plain:

            @activity(**settings, no_undo="a test undoes nothing")
            def order(what: str) -> str:
                self.calls += 1
                return what
        else:

            @activity(**settings, no_undo="a test undoes nothing")
            async def order(what: str) -> str:
                self.calls += 1
                return what

        self.order, self.model = order, model
        self.flow: Workflow[State] = ordering(order, "a", policy=policy, budget=budget)
        self.seat: CallSeat | None = None
        self.process: Process

    def work(self, flow: Workflow[State] | None = None) -> None:
        self.process = self.world.worker(flow or self.flow)

    @property
    def services(self) -> Any:
        return self.process.worker._services

    async def fill(self, place: str) -> None:
        """Take all places of one kind."""
        await self.world.settle()
        if place == "limit":
            entering = asyncio.create_task(self.services.throttle.enter("provider/erp", ONE))
            await self.world.settle()
            self.seat = entering.result()
        elif place == "thread":
            while not self.services.caller.seats.locked():
                await self.services.caller.seats.acquire()
        else:
            self.services.window._most = 0

    def free(self, place: str) -> None:
        if place == "limit":
            assert self.seat is not None
            self.seat.leave()
        elif place == "thread":
            self.services.caller.seats.release()
        else:
            self.services.window._most = 4
            self.services.window._let_in(0)

    def held(self) -> tuple[int, int, int]:
        """Return how many places of each kind are taken."""
        row = self.world.core.rows.get(META, limit_row("provider/erp"))
        inside = rate_limit_of(row if isinstance(row, Meta) else None).inside
        return sum(inside.values()), self.services.caller.seats._value, self.services.window._inside

    async def meet(self, fact: str) -> None:
        """Let a fact forbid the call before the run starts."""
        if fact == "pause":
            await pauses.pause(self.world.store, "t", "activity/order", actor="op", reason="an outage")

    def stops(self) -> str:
        """Return which fact the run has met."""
        if self.world.reasons():
            return {"budget_exhausted": "budget"}.get(self.world.reasons()[0], self.world.reasons()[0])
        kinds = {kind for kind, _ in self.world.waiting()}
        return {"pause": "pause", "approval": "permission"}.get(next(iter(kinds), ""), ",".join(kinds))


def scene_of(world: World, *facts: str, place: str = "") -> Scene:
    """Return a scene in which these facts forbid the call."""
    return Scene(
        world,
        plain=place == "thread",
        policy=asks_boss if "permission" in facts else None,
        budget=Budget(minutes=0.0) if "budget" in facts else None,
    )


async def began(scene: Scene, *facts: str, place: str = "") -> None:
    """Start a run whose call meets these facts, while all places of a kind are taken."""
    for fact in facts:
        await scene.meet(fact)
    scene.work()
    if place:
        await scene.fill(place)
    await scene.world.start(scene.flow)


# --- the order ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("fact", FACTS)
async def test_a_fact_stops_a_call_before_it_waits_for_a_place(world: World, fact: str, place: str) -> None:
    """No time passes: had the call asked for the place first, it would wait there."""
    scene = scene_of(world, fact, place=place)
    await began(scene, fact, place=place)
    assert scene.stops() == fact and scene.calls == 0


@pytest.mark.parametrize(("first", "second"), [("pause", "budget"), ("pause", "permission"), ("budget", "permission")])
async def test_of_two_facts_the_earlier_gate_stops_the_call(world: World, first: str, second: str) -> None:
    scene = scene_of(world, first, second)
    await began(scene, first, second)
    assert scene.stops() == first and world.approvals() == []


@pytest.mark.parametrize(
    ("place", "taken"), [("limit", (1, 1, 0)), ("thread", (1, 0, 0)), ("window", (1, 0, 0))], ids=PLACES
)
async def test_a_call_that_waits_for_a_place_holds_none_of_a_later_gate(
    world: World, place: str, taken: tuple[int, int, int]
) -> None:
    """The worker has one thread, the limit one seat."""
    scene = Scene(world, plain=True)
    scene.work()
    await world.settle()
    while scene.services.caller.seats._value > 1:
        await scene.services.caller.seats.acquire()
    await scene.fill(place)
    await world.start(scene.flow)
    assert scene.held() == taken and scene.calls == 0


# --- grants ----------------------------------------------------------------------------------------------
GRANTS = ("right to try", "seat of the limit", "thread", "place in the window")


class Last(CallGate):
    """A gate behind all others: its first attempt does what a test says."""

    def __init__(self, act: Callable[[GatedAttempt], Awaitable[None]] | None = None) -> None:
        self.act = act
        self.met = 0
        self.held: list[tuple[int, int, int]] = []
        self.holds: list[bool] = []
        self.scene: Scene | None = None

    def is_needed(self, attempt: GatedAttempt) -> bool:
        return True

    async def enter(self, attempt: GatedAttempt) -> None:
        self.met += 1
        if self.scene is not None:
            self.held.append(self.scene.held())
        if self.act is not None and self.met == 1:
            await self.act(attempt)

    async def still_holds(self, attempt: GatedAttempt) -> bool:
        return self.holds.pop(0) if self.holds else True


async def parks(attempt: GatedAttempt) -> None:
    at = attempt.execution.session.clock.now.real + SECOND
    attempt.execution.park(Parked("park", WaitingFor("limit", "a test"), Timer("a test", at, real=True)))
    raise Unresolved


async def is_cancelled(attempt: GatedAttempt) -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)


async def loses_the_store(attempt: GatedAttempt) -> None:
    raise Unavailable("the store is away")


async def meets_a_bug(attempt: GatedAttempt) -> None:
    raise RuntimeError("a policy with a bug")


async def closes(attempt: GatedAttempt) -> None:
    attempt.execution.hand_back("a test")


async def needs_another_look(attempt: GatedAttempt) -> None:
    attempt.waited = True


def noted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list to which each release of a grant is added."""
    released: list[str] = []
    kept = GatedAttempt.grant

    def grant(attempt: GatedAttempt, release: Any) -> None:
        name = GRANTS[len(attempt._granted)]

        def noting() -> Any:
            released.append(name)
            return release()

        kept(attempt, noting)

    monkeypatch.setattr(GatedAttempt, "grant", grant)
    return released


def breaker(world: World, *, again_in: int = 0) -> None:
    """A breaker of the provider is open, and a run may try the provider."""
    at = world.time.wall()
    row = Pause("t", "provider/erp", 1, 1, BY_THE_ENGINE, "away", at, BREAKER, at + again_in, 1)
    world.core.rows.put(PAUSE, ("t", "provider/erp"), row)


def sign(world: World) -> Pause:
    row = world.core.rows.get(PAUSE, ("t", "provider/erp"))
    assert isinstance(row, Pause)
    return row


async def completed(world: World) -> None:
    """Let time pass until the run has completed."""
    await threads_and_time(world, lambda: world.status() == "completed", MINUTE, SECOND)


async def tried(world: World, monkeypatch: pytest.MonkeyPatch, last: Last) -> tuple[Scene, list[str]]:
    """A call passes all gates to the last one, with one of each grant."""
    scene = last.scene = Scene(world, plain=True)
    monkeypatch.setattr(call_gates, "GATES", (*call_gates.GATES, last))
    released = noted(monkeypatch)
    breaker(world)
    scene.work()
    await world.settle()
    while scene.services.caller.seats._value > 1:
        await scene.services.caller.seats.acquire()
    return scene, released


WAYS_OUT: dict[str, Callable[[GatedAttempt], Awaitable[None]]] = {
    "the run parks": parks,
    "the task is cancelled": is_cancelled,
    "the store is away": loses_the_store,
    "a policy raises": meets_a_bug,
    "the execution closes": closes,
}


@pytest.mark.parametrize("way", WAYS_OUT)
async def test_on_each_way_out_all_grants_are_released_the_latest_first(
    world: World, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    last = Last(WAYS_OUT[way])
    scene, released = await tried(world, monkeypatch, last)
    monkeypatch.setattr(effect_executor.EffectExecutor, "_intent", None)  # no later round of the run calls
    await world.start(scene.flow)
    assert last.held[0] == (1, 0, 1), "each place was taken"
    assert released[:4] == list(reversed(GRANTS))
    await world.pass_(100)
    assert scene.calls == 0 and sign(world).up == 1
    if last.met == 1:
        assert scene.held() == (0, 1, 0) and sign(world).again_at <= world.time.wall()


async def test_grants_are_released_if_another_step_is_due(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that is due instead of the intent is decided after all gates; here once, by the test."""
    last = Last(needs_another_look)
    scene, released = await tried(world, monkeypatch, last)
    kept, others = effect_executor.EffectExecutor._again, [True]

    def again(self: Any, effect: Any, before: Any) -> Intend | None:
        return None if others and others.pop() else kept(self, effect, before)

    monkeypatch.setattr(effect_executor.EffectExecutor, "_again", again)
    await world.start(scene.flow)
    await completed(world)
    assert (world.status(), scene.calls, last.met) == ("completed", 1, 2)
    assert released[:4] == list(reversed(GRANTS)) and len(released) == 8


async def test_a_fact_that_fails_releases_all_and_begins_with_the_first_gate(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = Last(needs_another_look)
    last.holds = [False]
    scene, released = await tried(world, monkeypatch, last)
    await world.start(scene.flow)
    await completed(world)
    assert (world.status(), scene.calls, last.met) == ("completed", 1, 2)
    assert released == [*reversed(GRANTS)] * 2
    assert sign(world).up == 0, "the call tried the provider, and the provider answered"


async def test_an_intent_that_is_refused_gives_back_the_right_to_try(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was sent, so another run may try at once."""
    scene, released = await tried(world, monkeypatch, Last())
    scene.process.wire.away = [" intend "]
    # the process stops with the second commit of the breaker's row, before the run goes on
    scene.process.wire.after("breaker", lambda: scene.process.wire.after("breaker", scene.process.freeze))
    await world.start(scene.flow)
    assert released[:4] == list(reversed(GRANTS)) and scene.calls == 0
    assert (sign(world).up, sign(world).version) == (1, 3), "lent and given back"
    assert sign(world).again_at <= world.time.wall()


async def test_a_call_that_the_last_check_stops_gives_back_the_right_to_try(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The provider was not tried, so its breaker does not stay open for another pause."""
    scene = Scene(world)
    breaker(world)
    kept, stops = attempts.ActivityCaller._check, [True]

    def check(self: Any, permit: Any) -> None:
        kept(self, permit)
        if stops:
            stops.pop()
            raise attempts._TooLate("a test")

    monkeypatch.setattr(attempts.ActivityCaller, "_check", check)
    scene.work()
    await world.start(scene.flow)
    await world.pass_(2 * SECOND)
    assert (world.status(), scene.calls, sign(world).up) == ("completed", 1, 0)


async def test_a_release_that_raises_keeps_none_of_the_others(world: World) -> None:
    released: list[int] = []

    def fails() -> None:
        raise RuntimeError("a fault")

    async def later() -> None:
        released.append(1)

    attempt = attempt_for(Purpose.DO)
    attempt.grant(later)
    attempt.grant(fails)
    attempt.grant(lambda: released.append(3))
    with pytest.raises(RuntimeError):
        await attempt.release()
    assert released == [3, 1]


# --- the second look ---------------------------------------------------------------------------------
CHANGES = ("pause", "budget", "policy")


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("change", CHANGES)
async def test_a_fact_that_changes_while_a_call_waits_for_a_place_stops_it(
    world: World, change: str, place: str
) -> None:
    """Each fact allowed the call when it was asked for."""
    denies = [False]

    def policy(asked: PolicyRequest) -> Verdict:
        return Deny("closed", "for today") if denies[0] else Allow("open")

    budget = Budget(tokens=100) if change == "budget" else None
    limit = ONE if place == "limit" else None  # only one place is waited for
    scene = Scene(world, plain=place == "thread", limit=limit)

    async def body(ctx: Ctx) -> None:
        calls = [ctx.do(scene.order, "a")]
        if change == "budget":
            calls.append(ctx.do(scene.model, "q"))
        await asyncio.gather(*calls)

    flow = one_node(body, policy=policy if change == "policy" else None, budget=budget)
    scene.work(flow)
    await scene.fill(place)
    await world.start(flow)
    assert scene.calls == 0 and world.effects() == []
    if change == "pause":
        await pauses.pause(world.store, "t", "activity/order", actor="op", reason="an outage")
        await scene.services.pauses.refresh()
    elif change == "budget":
        scene.spending.go.set()
        await world.settle()
    else:
        denies[0] = True
    scene.free(place)
    await world.pass_(SECOND)
    assert scene.stops() == {"policy": "policy_denied"}.get(change, change)
    assert scene.calls == 0 and world.effects() == []
    assert scene.held()[0] == 0


@pytest.mark.parametrize("place", PLACES)
async def test_an_approval_that_lapses_while_its_call_waits_is_not_used(world: World, place: str) -> None:
    scene = Scene(world, plain=place == "thread", limit=ONE if place == "limit" else None)

    async def body(ctx: Ctx) -> None:
        plan = scene.order.plan("a")
        await ctx.approval(plan, summary="an order", by=role("boss"), within="1h", valid_for="3s")
        await ctx.do(plan)

    flow = one_node(body)
    scene.work(flow)
    await scene.fill(place)
    await world.start(flow)
    await world.decide(world.pending())
    await world.pass_(4 * SECOND)
    scene.free(place)
    await world.pass_(SECOND)
    assert scene.calls == 0 and [e for e in world.effects() if e.attempts] == []
    assert [each.consumed_by for each in world.approvals() if each.status.value == "approved"] == [""]


async def test_a_right_to_try_that_ends_during_the_wait_is_taken_again(world: World) -> None:
    """Another run may try the provider by then, and only one may at a time."""
    scene = Scene(world, timeout="5s", limit=None)
    breaker(world)
    scene.work()
    await scene.fill("window")
    await world.start(scene.flow)
    ends = sign(world).again_at
    assert ends > world.time.wall() and sign(world).version == 2
    await world.pass_(ends - world.time.wall() - SECOND)
    versions: list[int] = []
    scene.process.wire.before(" intend ", lambda: versions.append(sign(world).again_at - world.time.wall()))
    scene.free("window")
    await world.pass_(SECOND)
    assert scene.calls == 1 and versions and versions[0] >= 5 * SECOND


async def test_an_execution_that_closes_during_the_second_look_intends_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look reads the store, so the step is decided once more after it."""
    last = Last(needs_another_look)

    async def still_holds(attempt: GatedAttempt) -> bool:
        if last.met == 1:
            attempt.execution.hand_back("a test")
            monkeypatch.setattr(effect_executor.EffectExecutor, "drive", never)
        return True

    async def never(self: Any) -> None:
        await self.execution.never()

    monkeypatch.setattr(last, "still_holds", still_holds)
    scene, _ = await tried(world, monkeypatch, last)
    await world.start(scene.flow)
    assert (last.met, scene.calls, world.effects()) == (1, 0, [])


@pytest.mark.parametrize("guarded", [True, False])
async def test_a_lookup_whose_budget_is_spent_while_it_waits_for_a_seat_is_not_made(
    world: World, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    if not guarded:
        remove("lookups_by_old_budgets", monkeypatch)
    scene, asked = Scene(world), 0

    @lookup(name="search", durable=True, provider="erp", limit=ONE)
    async def search(what: str) -> str:
        nonlocal asked
        asked += 1
        return what

    async def body(ctx: Ctx) -> None:
        await asyncio.gather(ctx.do(search, "a"), ctx.do(scene.model, "q"))

    flow = one_node(body, budget=Budget(tokens=100))
    scene.work(flow)
    await scene.fill("limit")
    await world.start(flow)
    scene.spending.go.set()
    await world.settle()
    scene.free("limit")
    await world.pass_(SECOND)
    assert (asked, world.reasons()) == ((0, ["budget_exhausted"]) if guarded else (1, []))
    assert scene.held()[0] == 0


async def test_after_three_rounds_the_run_parks_and_tries_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    last = Last()
    last.holds = [False] * ROUNDS_MAX

    async def enter(attempt: GatedAttempt) -> None:
        last.met += 1
        attempt.waited = True

    monkeypatch.setattr(last, "enter", enter)
    monkeypatch.setattr(call_gates, "GATES", (*call_gates.GATES, last))
    scene = Scene(world)
    scene.work()
    await world.start(scene.flow)
    assert (last.met, scene.calls, world.run().owner) == (ROUNDS_MAX, 0, "")
    assert world.waiting() == [
        ("limit", f"order order/a: what it needs has changed {ROUNDS_MAX} times while it waited")
    ]
    assert scene.held()[::2] == (0, 0)
    await world.pass_(10 * SECOND)
    assert (world.status(), scene.calls, last.met) == ("completed", 1, ROUNDS_MAX + 1)


# --- calls that skip a gate ---------------------------------------------------------------------------
def attempt_for(purpose: Purpose, *, maybe_done: bool = False, **callee: Any) -> GatedAttempt:
    """An attempt of a run that meets every gate."""
    services = SimpleNamespace(pauses=SimpleNamespace(up={1: 1}), budgets=SimpleNamespace(tenants={"t"}))
    workflow = SimpleNamespace(budget=None, asks_permission=True)
    held = SimpleNamespace(approvals={})
    session = SimpleNamespace(held=held)
    execution: Any = SimpleNamespace(services=services, workflow=workflow, session=session, has_budget=False)
    of: Any = SimpleNamespace(**{"limit": ONE, "is_async": False, **callee})
    terms: Any = SimpleNamespace(purpose=purpose, in_transaction=False)
    attempt = GatedAttempt(execution, of, None, terms, None, watches=False)  # type: ignore[arg-type]
    attempt._begin(Intend(maybe_done=maybe_done))
    return attempt


@pytest.mark.parametrize(
    ("attempt", "skips"),
    [
        (attempt_for(Purpose.DO), set()),
        (attempt_for(Purpose.DO, maybe_done=True), {"BudgetGate"}),
        (attempt_for(Purpose.UNDO, is_async=True), {"BudgetGate", "ThreadGate"}),
        (attempt_for(Purpose.SETTLE), {"BudgetGate"}),
        (attempt_for(Purpose.DO, limit=None, is_async=True), {"LimitGate", "ThreadGate"}),
    ],
    ids=["call", "may have happened", "undo", "the run ends", "plain call"],
)
async def test_the_table_of_the_gates_that_a_call_skips(attempt: GatedAttempt, skips: set[str]) -> None:
    assert {type(gate).__name__ for gate in call_gates.GATES if not gate.is_needed(attempt)} == skips


async def test_a_call_without_a_gate_makes_no_attempt_of_gates(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A gate that is absent costs nothing."""
    made: list[Any] = []
    monkeypatch.setattr(effect_executor, "GatedAttempt", lambda *args, **options: made.append(args))
    shop = Receiver()
    flow = ordering(write(shop), "a", "b")
    world.worker(flow)
    await world.start(flow)
    assert (world.status(), len(shop.did), made) == ("completed", 2, [])


# --- each gate removed once ----------------------------------------------------------------------------
@pytest.mark.parametrize("guarded", [True, False])
async def test_without_the_gate_of_pauses_a_paused_activity_is_called(
    world: World, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    if not guarded:
        remove("no_breaker_gate", monkeypatch)
    scene = Scene(world)
    await began(scene, "pause")
    assert scene.calls == (0 if guarded else 1)


@pytest.mark.parametrize("guarded", [True, False])
async def test_without_the_gate_of_budgets_a_call_is_made_beyond_it(
    world: World, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    if not guarded:
        remove("no_budget_gate", monkeypatch)
    scene = scene_of(world, "budget")
    await began(scene, "budget")
    assert scene.calls == (0 if guarded else 1)


@pytest.mark.parametrize("guarded", [True, False])
async def test_without_the_gate_of_permission_a_call_is_made_unasked(
    world: World, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    if not guarded:
        remove("no_permission_gate", monkeypatch)
    scene = scene_of(world, "permission")
    await began(scene, "permission")
    assert scene.calls == (0 if guarded else 1)


@pytest.mark.parametrize(
    ("place", "mutant"), [("limit", "no_limit_gate"), ("thread", "no_thread_gate"), ("window", "no_window_gate")]
)
@pytest.mark.parametrize("guarded", [True, False])
async def test_without_the_gate_of_a_place_a_call_is_intended_although_none_is_free(
    world: World, monkeypatch: pytest.MonkeyPatch, place: str, mutant: str, guarded: bool
) -> None:
    if not guarded:
        remove(mutant, monkeypatch)
    scene = Scene(world, plain=place == "thread")
    await began(scene, place=place)
    assert len(world.effects()) == (0 if guarded else 1)


@pytest.mark.parametrize("guarded", [True, False])
async def test_without_the_second_look_a_call_is_made_by_old_facts(
    world: World, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    if not guarded:
        remove("no_second_look", monkeypatch)
    scene = Scene(world, limit=None, budget=Budget(minutes=9.0))  # else it waits without an attempt of gates
    scene.work()
    await scene.fill("window")
    await world.start(scene.flow)
    await pauses.pause(world.store, "t", "activity/order", actor="op", reason="an outage")
    await scene.services.pauses.refresh()
    scene.free("window")
    await world.settle()
    assert scene.calls == (0 if guarded else 1)


@pytest.mark.parametrize("guarded", [True, False])
async def test_a_call_that_waited_for_a_place_alone_looks_at_the_facts_again(
    world: World, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    if not guarded:
        remove("no_look_behind_the_window", monkeypatch)
    scene = Scene(world, limit=None)
    scene.work()
    await scene.fill("window")
    await world.start(scene.flow)
    await pauses.pause(world.store, "t", "activity/order", actor="op", reason="an outage")
    await scene.services.pauses.refresh()
    scene.free("window")
    await world.settle()
    assert (scene.calls, scene.stops()) == ((0, "pause") if guarded else (1, ""))
    assert scene.held()[2] == 0


@pytest.mark.parametrize("fact", ["pause", "daily budget", "approval"])
async def test_each_fact_that_comes_during_the_wait_for_a_place_is_met(
    world: World, monkeypatch: pytest.MonkeyPatch, fact: str
) -> None:
    """The call was without a gate before. It leaves its place, so that none is held while a gate is passed."""
    inside: list[int] = []
    kept = GatedAttempt.pass_all

    async def pass_all(attempt: GatedAttempt, *args: Any) -> Any:
        inside.append(attempt.execution.services.window._inside)
        return await kept(attempt, *args)

    monkeypatch.setattr(GatedAttempt, "pass_all", pass_all)
    scene = Scene(world, limit=None)
    other = Scene(world, name="other", limit=None).order

    async def body(ctx: Ctx) -> None:
        calls: list[Any] = [ctx.do(scene.order, "a")]
        if fact == "approval":
            await ctx.do(scene.model, "q")
            calls.append(ctx.approval(other.plan("b"), summary="an order", by=role("boss"), within="1h"))
        await asyncio.gather(*calls)

    flow = one_node(body)
    scene.work(flow)
    await scene.fill("window")
    await world.start(flow)
    if fact == "pause":
        await pauses.pause(world.store, "t", "activity/other", actor="op", reason="an outage")
        await scene.services.pauses.refresh()
    elif fact == "daily budget":
        scene.services.budgets.tenants = frozenset({"another"})
    else:
        scene.spending.go.set()
        await world.settle()
        assert len(world.approvals()) == 1
    assert inside == [], "the call waits, and needed no gate when it began to"
    scene.free("window")
    await world.settle()
    assert (inside, scene.calls) == ([0], 1)


async def test_a_call_that_waits_for_a_place_alone_makes_no_attempt_of_gates(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []
    monkeypatch.setattr(effect_executor, "GatedAttempt", lambda *args, **options: made.append(args))
    scene = Scene(world, limit=None)
    scene.work()
    await scene.fill("window")
    await world.start(scene.flow)
    assert (scene.calls, world.effects()) == (0, [])
    scene.free("window")
    await world.settle()
    assert (scene.calls, made) == (1, [])


async def test_an_execution_that_closes_while_its_call_waits_for_a_place_alone_intends_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(world, limit=None)
    scene.work()
    await scene.fill("window")
    kept = effect_executor.EffectExecutor._again

    def again(self: Any, effect: Any, before: Any) -> Intend | None:
        self.execution.hand_back("a test")
        return kept(self, effect, before)

    monkeypatch.setattr(effect_executor.EffectExecutor, "_again", again)
    monkeypatch.setattr(effect_executor.EffectExecutor, "_intent", None)
    await world.start(scene.flow)
    scene.free("window")
    await world.settle()
    assert (scene.calls, world.effects(), scene.held()[2]) == (0, [], 0)


@pytest.mark.parametrize("guarded", [True, False])
async def test_without_the_order_a_place_is_held_while_a_person_thinks(
    world: World, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    if not guarded:
        remove("places_before_facts", monkeypatch)
    scene = scene_of(world, "permission")
    await began(scene, place="limit")
    assert scene.stops() == ("permission" if guarded else "")


@pytest.mark.parametrize("guarded", [True, False])
async def test_without_the_release_a_run_that_parks_keeps_a_place(
    world: World, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    if not guarded:
        remove("grants_kept", monkeypatch)
    last = Last(parks)
    scene, _ = await tried(world, monkeypatch, last)
    await world.start(scene.flow)
    assert scene.held() == ((0, 1, 0) if guarded else (1, 0, 1))


@pytest.mark.parametrize("guarded", [True, False])
async def test_without_the_last_round_a_call_goes_round_as_long_as_its_facts_change(
    world: World, monkeypatch: pytest.MonkeyPatch, guarded: bool
) -> None:
    if not guarded:
        remove("endless_rounds", monkeypatch)
    last = Last()
    last.holds = [False] * 20

    async def enter(attempt: GatedAttempt) -> None:
        last.met += 1
        attempt.waited = True

    monkeypatch.setattr(last, "enter", enter)
    monkeypatch.setattr(call_gates, "GATES", (*call_gates.GATES, last))
    scene = Scene(world)
    scene.work()
    await world.start(scene.flow)
    assert last.met == (ROUNDS_MAX if guarded else 21)
