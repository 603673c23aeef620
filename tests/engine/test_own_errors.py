"""Errors of Outlast's own client inside an activity: the proof that each class gives (decision 0104)."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import httpx2
import pytest

import outlast
from outlast import errors
from outlast.agent import Price
from outlast.core.effect_steps import Maybe, No, Outcome, Unsent
from outlast.engine.call_outcome import is_transient, judge
from outlast.errors import OutlastError
from outlast.flow import Context, Refused, RetryLater, activity, resend
from outlast.service import problems
from outlast.testing.http_receiver import HttpReceiver, HttpRequest, Reply
from tests.client.test_lost_answers import WRITES
from tests.engine.world import MINUTE, Receiver, State, World, one_node, ordering, write
from tests.mutants import remove

pytestmark = [pytest.mark.req("EFF-5")]
Ctx = Context[State]
ALL: Final = {kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, OutlastError)}
REFUSED: Final = {
    errors.InvalidInput, errors.LimitExceeded, errors.NotFound, errors.Forbidden, errors.Unauthenticated,
    errors.BadRequest, errors.Rejected,
}  # fmt: skip
CONFLICTS: Final = {errors.Conflict, errors.Precondition, errors.KeyRefused, errors.Stale, errors.Ended}
NOT_SENT: Final = {errors.Unavailable, errors.StoreReplaced, errors.StoreUnusable, errors.Unverifiable}
LATER: Final = {errors.Busy, errors.TooManyFailures}


def made(kind: type[OutlastError], refusal: str = "") -> OutlastError:
    more = {"retry_after_s": 7} if kind in LATER else {}
    error = kind("it failed", "why", "do this", **more)  # type: ignore[call-arg]
    error.refusal = refusal
    return error


def expected(kind: type[OutlastError]) -> type[Outcome]:
    if kind in REFUSED | CONFLICTS:
        return No
    return Unsent if kind in NOT_SENT | LATER else Maybe


@pytest.mark.parametrize("kind", sorted(ALL, key=lambda kind: kind.__name__))
def test_every_class_is_judged(kind: type[OutlastError]) -> None:
    outcome = judge(made(kind))
    assert type(outcome) is expected(kind)
    if isinstance(outcome, No):
        assert (outcome.code, outcome.conflicts) == (kind.code, kind in CONFLICTS)
    if isinstance(outcome, Unsent):
        assert outcome.after_ms == (7_000 if kind in LATER else 0)
    assert is_transient(made(kind)) is (not isinstance(outcome, No) and _may_help(kind))


def _may_help(kind: type[OutlastError]) -> bool:
    return kind in NOT_SENT | LATER | {errors.Uncertain, errors.StoreError, errors.Fault, errors.WaitTimeout}


def test_a_key_in_flight_may_be_the_request_itself() -> None:
    assert isinstance(judge(made(errors.KeyRefused, "in_flight")), Maybe)


OVER_HTTP: Final = sorted(REFUSED | CONFLICTS | NOT_SENT | LATER | {errors.Uncertain, errors.Fault}, key=str)


def test_every_class_is_judged_alike_over_every_route() -> None:
    """The service answers each write with each error; the client raises it inside the activity, which is judged."""
    problem: list[Reply] = []

    async def reply(request: HttpRequest) -> Reply:
        return problem[-1]

    async def go() -> dict[str, set[tuple[type[OutlastError], str]]]:
        found: dict[str, set[tuple[type[OutlastError], str]]] = {}
        receiver = HttpReceiver(reply)
        await receiver.open()
        async with outlast.connect(receiver.url, timeout=0.9) as client:
            for kind in OVER_HTTP:
                answer = problems.answer(made(kind), "rq_1")
                headers = tuple((k, v) for k, v in answer.headers.items() if k != "content-length")
                problem.append(Reply(answer.status_code, bytes(answer.body), headers))
                for name, call in WRITES.items():
                    try:
                        await call(client)
                    except OutlastError as error:
                        found.setdefault(name, set()).add((kind, type(judge(error)).__name__))
        await receiver.close()
        return found

    found = asyncio.run(go())
    # A service answers a store that it cannot use as Unavailable, and a Stale row as it is.
    assert found == {name: {(kind, expected(kind).__name__) for kind in OVER_HTTP} for name in WRITES}


def test_an_error_that_the_author_caught_before_may_be_of_a_request_that_was_sent() -> None:
    async def activity() -> None:
        try:
            await _lose()
        except httpx2.ReadError:
            raise made(errors.NotFound)  # noqa: B904 - as a second call in the handler raises it

    async def _lose() -> None:
        raise httpx2.ReadError("reset")

    def raised(call: Any) -> BaseException:
        try:
            asyncio.run(call())
        except BaseException as error:
            return error
        raise AssertionError("it returned")

    assert isinstance(judge(raised(activity)), Maybe)

    async def read() -> None:
        async with outlast.connect("http://127.0.0.1:1", timeout=0.05) as client:
            await client.whoami()

    away = raised(read)
    assert away.__cause__ is not None and isinstance(judge(away), Unsent), "the client's own cause is its own"


def of_the_call() -> None:
    RetryLater("busy", after="-5s")


def of_a_price() -> None:
    Price(-1, 1)


def of_a_module() -> None:
    outlast.Budget(tokens=-1)


@pytest.mark.parametrize("guarded", [True, False])
@pytest.mark.parametrize("refused", [of_the_call, of_a_price, of_a_module])
async def test_an_error_of_another_part_of_the_package_proves_nothing(
    world: World, refused: Callable[[], None], guarded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The receiver has acted. Then a value is refused by the package itself, which is no refusal by the receiver."""
    if not guarded:
        remove("any_part_of_the_package_refuses", monkeypatch)
    acted: list[str] = []

    @activity(key="pay/{what}", no_undo="it is final")
    async def pay(what: str) -> None:
        acted.append(what)
        refused()

    async def body(ctx: Ctx) -> None:
        await ctx.do(pay, "a")

    await world.start(flow := one_node(body))
    world.worker(flow)
    await world.pass_(MINUTE)
    (effect,) = world.effects()
    assert acted == ["a"] and (effect.status.value == "uncertain") == guarded


async def test_a_refusal_reaches_the_node(world: World) -> None:
    caught: list[str] = []
    receiver = Receiver(made(errors.NotFound))
    order = write(receiver)

    async def body(ctx: Ctx) -> None:
        try:
            await ctx.do(order, "a")
        except Refused as refused:
            caught.append(refused.code)

    await world.start(flow := one_node(body))
    world.worker(flow)
    await world.pass_(MINUTE)
    assert (caught, receiver.numbers, world.status()) == (["OUT-401"], [1], "completed")


@pytest.mark.parametrize(
    ("script", "numbers", "status", "reasons"),
    [
        ([made(errors.Conflict)], [1], "waiting", ["exception"]),
        ([made(errors.Unavailable), made(errors.Conflict)], [1, 2], "waiting", ["exception"]),
        ([ConnectionResetError(), made(errors.Conflict)], [1, 2, 3], "completed", []),
        (
            [made(errors.Uncertain), made(errors.Conflict), made(errors.Conflict)],
            [1, 2, 3],
            "waiting",
            ["effect_uncertain"],
        ),
        ([made(errors.Unavailable)], [1, 2], "completed", []),
        ([made(errors.Busy)], [1, 2], "completed", []),
    ],
)
async def test_a_conflict_may_be_with_an_earlier_attempt(
    world: World, script: list[BaseException], numbers: list[int], status: str, reasons: list[str]
) -> None:
    """A record that a first attempt contradicts is another's. One that a later attempt contradicts may be its own."""
    receiver = Receiver(*script)
    flow = ordering(write(receiver, if_uncertain=resend(remembered_for="1h")), "a")
    await world.start(flow)
    world.worker(flow)
    await world.pass_(10 * MINUTE)
    assert receiver.numbers == numbers
    assert world.status() == status
    assert [str(each) for each in world.reasons()] == reasons
