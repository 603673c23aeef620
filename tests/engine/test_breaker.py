"""Circuit breakers: one provider's outage is one item, not five thousand (S-23)."""

from datetime import timedelta
from typing import Any

import pytest

from outlast.core.durations import BREAKER_AFTER, BREAKER_PAUSE, BREAKER_PAUSE_MAX, Liveness
from outlast.core.effect_steps import Answered, Maybe, No, Unsent
from outlast.core.rows.limit_rows import PAUSE, Pause
from outlast.engine import known_pauses as pauses
from outlast.flow import Allow, Context, NeedsApproval, Refused, Retry, RetryLater, resend, role
from tests.engine.world import MINUTE, SECOND, Receiver, Slow, State, World, one_node, ordering, write

Ctx = Context[State]
pytestmark = pytest.mark.req("EFF-4", "RUN-9")
FEW = 12


class Erp(Receiver):
    """A receiver that is away until it is mended."""

    def __init__(self) -> None:
        super().__init__()
        self.away: BaseException | None = ConnectionRefusedError("nobody listens")

    async def call(self) -> str:
        self.script = [self.away] if self.away is not None else []
        return await super().call()


def sign(world: World, key: str = "provider/erp", tenant: str = "t") -> Pause:
    row = world.core.rows.get(PAUSE, (tenant, key))
    assert isinstance(row, Pause)
    return row


def at_erp(erp: Receiver, **options: Any) -> Any:
    return write(erp, provider="erp", **options)


async def out(world: World, erp: Erp, n: int = FEW, **options: Any) -> list[str]:
    """`n` runs meet a provider that is away."""
    flow = ordering(at_erp(erp, **options), "a")
    world.worker(flow)
    runs = [f"r{i:03}" for i in range(n)]
    for run in runs:
        await world.start(flow, run)
    await world.pass_(10 * SECOND)
    return runs


async def test_an_outage_is_one_item_and_uses_up_no_attempts(world: World) -> None:
    """Three hundred runs: a few calls, one open breaker, no run in attention; afterwards each is done once."""
    erp = Erp()
    runs = await out(world, erp, 300)
    assert len(erp.attempts) < 3 * BREAKER_AFTER
    assert [h.key for h in world.core.rows.under(PAUSE, ("t",))] == ["provider/erp"]
    row = sign(world)
    assert (row.up, row.kind, row.by, row.trips) == (1, "breaker", "outlast", 1)
    assert row.reason.startswith(f"{BREAKER_AFTER} calls in a row found it away; run r")
    assert {w.kind for run in runs for w in world.run(run).waiting_for} == {"pause"}
    before = len(erp.attempts)
    await world.pass_(2 * 60 * MINUTE)
    assert [world.reasons(run) for run in runs] == [[]] * 300
    assert len(erp.attempts) - before < 20, "one try after each pause, each twice as long"
    assert sign(world).trips > 5
    erp.away = None
    await world.pass_(2 * BREAKER_PAUSE_MAX)
    assert {world.status(run) for run in runs} == {"completed"}
    assert (len(erp.did), len(set(erp.did)), sign(world).up) == (300, 300, 0)


async def test_a_waiting_run_shows_its_wait_and_its_end(world: World) -> None:
    erp = Erp()
    runs = await out(world, erp)
    (wait,) = world.run(runs[-1]).waiting_for
    row = sign(world)
    assert wait.what.startswith("provider/erp: ") and wait.until == row.again_at
    assert row.again_at - world.time.wall() <= BREAKER_PAUSE
    assert row.again_at <= (world.run(runs[-1]).due_at or 0) <= row.again_at + BREAKER_PAUSE + 1


async def test_at_its_end_exactly_one_run_tries(world: World) -> None:
    """The run that writes the row first may try; the others wait for its result."""
    erp = Erp()
    runs = await out(world, erp)
    slow = Slow()
    erp.away = None
    before = len(erp.attempts)
    calls: list[Slow] = []

    async def slowly() -> str:
        calls.append(slow)
        erp.attempts.append("try")
        slow.begun.set()
        await slow.go.wait()
        return erp._do(f"t:{len(erp.did)}:x")

    erp.call = slowly  # type: ignore[method-assign]
    await world.pass_(BREAKER_PAUSE + 30 * SECOND)
    assert (len(erp.attempts) - before, sign(world).up) == (1, 1)
    slow.go.set()
    await world.settle()
    assert sign(world).up == 0
    assert {world.status(run) for run in runs} == {"completed"}


async def test_two_that_want_to_try_at_once_are_one(world: World) -> None:
    """The right to try is the row's next version: of two that read the same one, the store accepts one."""
    erp = Erp()
    await out(world, erp)
    await world.off_duty()
    await world.pass_(BREAKER_PAUSE)
    row, live = sign(world), Liveness()
    ones = [pauses.Breakers(world.store, pauses.PauseCache(world.store), live) for _ in range(2)]
    now = world.time.wall()
    lent = [await one.probe(row, now, MINUTE) for one in ones]
    assert [x is not None for x in lent] == [True, False]
    assert sign(world).again_at == now + MINUTE


async def test_one_that_died_trying_is_followed_by_another(world: World) -> None:
    erp = Erp()
    runs = await out(world, erp)
    erp.away = None
    process = world.processes[0]
    process.wire.after("breaker", process.kill)
    await world.pass_(BREAKER_PAUSE + MINUTE)
    assert (process.wire.dead, len(erp.did)) == (True, 0)
    world.worker(ordering(at_erp(erp), "a"))
    await world.pass_(10 * MINUTE)
    assert {world.status(run) for run in runs} == {"completed"}
    assert len(erp.did) == len(set(erp.did)) == FEW


async def test_its_pauses_double_up_to_the_longest(world: World) -> None:
    erp = Erp()
    await out(world, erp)
    pauses = []
    for _ in range(8):
        row = sign(world)
        while sign(world).trips == row.trips:
            await world.pass_(SECOND)
        pauses.append(sign(world).again_at - world.time.wall())
    expected = [min(BREAKER_PAUSE * 2**n, BREAKER_PAUSE_MAX) for n in range(1, 9)]
    assert all(e - SECOND <= p <= e for p, e in zip(pauses, expected, strict=True))


async def test_one_run_alone_opens_no_breaker(world: World) -> None:
    """It may have a wrong address: its attempts are used up, and it calls a person."""
    erp = Erp()

    async def body(ctx: Ctx) -> None:
        await ctx.do_all({str(i): act.plan(str(i)) for i in range(10)})

    act = at_erp(erp)
    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await world.pass_(2 * MINUTE)
    assert (world.reasons(), world.core.rows.under(PAUSE, ("t",))) == (["retries_exhausted"], [])


@pytest.mark.parametrize("answer", [Refused("sold_out"), "it was done"])
async def test_an_answer_between_two_failures_resets_the_count(world: World, answer: Any) -> None:
    """A refusal is an answer too, so the provider is not away."""
    fails = [ConnectionRefusedError()] * (BREAKER_AFTER - 1)
    erp = Receiver(*fails, answer, *fails, "ok")
    flow = ordering(at_erp(erp, retry=Retry(attempts=1)), "a")
    world.worker(flow)
    for i in range(2 * BREAKER_AFTER):
        await world.start(flow, f"r{i}")
    assert world.core.rows.under(PAUSE, ("t",)) == []


async def test_a_breaker_is_of_one_provider_and_one_tenant(world: World) -> None:
    """Activities that name the same provider share it; others go on, and so does another tenant."""
    erp = Erp()
    await out(world, erp)
    shop = Receiver()
    same = ordering(write(shop, name="same", provider="erp"), "a", name="same")
    other = ordering(write(shop, name="elsewhere"), "a", name="other")
    world.worker(same, other)
    await world.pass_(6 * SECOND)
    await world.start(same, "s1")
    await world.start(other, "o1")
    await world.start(same, "s1", tenant="u")
    assert ([w[0] for w in world.waiting("s1")], world.status("o1")) == (["pause"], "completed")
    assert world.run("s1", tenant="u").status.value == "completed"


@pytest.mark.req("RUN-9")
async def test_an_operator_closes_a_breaker_or_turns_it_into_a_pause(world: World) -> None:
    """Closed, all runs try at once; as a pause it lasts until an operator ends it."""
    erp = Erp()
    runs = await out(world, erp)
    await pauses.pause(world.store, "t", "provider/erp", actor="op", reason="they are moving house")
    assert (sign(world).kind, sign(world).by, sign(world).reason) == ("operator", "op", "they are moving house")
    erp.away = None
    await world.pass_(2 * 60 * MINUTE)
    assert erp.did == []
    assert await world.release("provider/erp") == FEW
    await world.pass_(MINUTE)
    assert {world.status(run) for run in runs} == {"completed"}


async def test_an_uncertain_call_is_resent_under_its_key_when_the_provider_is_back(world: World) -> None:
    """Timeouts open it too; a resend waits like all calls, and the receiver deduplicates."""
    erp = Erp()
    erp.dedupes = True
    erp.away = TimeoutError("no answer")
    runs = await out(world, erp, if_uncertain=resend(remembered_for=timedelta(hours=24)))
    await world.pass_(20 * MINUTE)
    assert (sign(world).up, [world.reasons(r) for r in runs]) == (1, [[]] * FEW)
    erp.away = None
    await world.pass_(20 * MINUTE)
    assert {world.status(run) for run in runs} == {"completed"}
    assert len(erp.did) == FEW


async def test_it_can_be_switched_off(world: World) -> None:
    erp = Erp()
    flow = ordering(at_erp(erp), "a")
    world.worker(flow, live=Liveness(breaker_after=0))
    for i in range(FEW):
        await world.start(flow, f"r{i}")
    await world.pass_(2 * MINUTE)
    assert [world.reasons(f"r{i}") for i in range(FEW)] == [["retries_exhausted"]] * FEW
    with pytest.raises(ValueError, match="pause"):
        Liveness(breaker_pause=0).checked()


@pytest.mark.parametrize(
    ("outcome", "away"),
    [
        (Unsent("not_sent", ""), True),
        (Maybe("http_503", ""), True),
        (Maybe("http_408", ""), True),
        (Maybe("timeout", ""), True),
        (Unsent("http_429", "", after_ms=60_000), True),
        (Unsent("http_429", "", after_ms=1_000), False),
        (Unsent("too_late", ""), False),
        (Maybe("http_409", ""), False),
        (Maybe("error", "KeyError: 'x'"), False),
        (No("http_404", ""), False),
        (Answered(1), False),
    ],
)
def test_outcomes_that_mean_a_provider_is_away(outcome: Any, away: bool) -> None:
    assert pauses.says_away(outcome) is away


async def test_a_receiver_that_asks_for_a_long_pause_is_away(world: World) -> None:
    erp = Erp()
    erp.away = RetryLater("busy", after=timedelta(minutes=1))
    await out(world, erp)
    assert sign(world).up == 1


async def test_a_run_that_asks_a_person_first_gives_back_the_right_to_try(world: World) -> None:
    """It kept the right for the time of a call, while it waited for a person."""
    erp = Erp()
    strict = False

    def policy(asked: Any) -> Any:
        return NeedsApproval("big", role("boss")) if strict else Allow("calm")

    flow = ordering(at_erp(erp), "a", policy=policy)
    world.worker(flow)
    for i in range(FEW):
        await world.start(flow, f"r{i:03}")
    await world.pass_(10 * SECOND)
    strict, opened = True, sign(world).again_at
    while not any(_asks(world, f"r{i:03}") for i in range(FEW)):
        await world.pass_(SECOND)
    assert sign(world).up
    assert opened <= sign(world).again_at <= world.time.wall(), "another run may try now"


def _asks(world: World, run: str) -> bool:
    return any(wait.kind == "approval" for wait in world.run(run).waiting_for)
