"""Every public parameter that takes a duration takes a `timedelta` and text, through one parser."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Hashable, Iterator
from datetime import timedelta
from types import UnionType
from typing import Any, Union, get_args, get_origin

import pytest
from pydantic import BaseModel

import outlast
import outlast.testing
from outlast import Context, NeedsApproval, Retry, RetryLater, Workflow, activity, lookup, resend, role
from outlast.core.approvals import Actor
from outlast.core.durations import Duration, ms_of
from outlast.core.machine import Choice, Reason
from outlast.errors import DefinitionError, InvalidInput, NotFound
from outlast.flow import Resend
from outlast.operations.effect_operations import ListLedger
from outlast.operations.run_operations import ListRuns
from outlast.runtime.client import Client
from outlast.runtime.operations import Operations
from outlast.runtime.run_handle import RunHandle, seconds_of
from outlast.runtime.stores import open_store
from outlast.runtime.webhooks import Webhooks
from outlast.testing import FakeReceivers, every_crash, status, too_many
from outlast.testing.virtual_runtime import AppClock, AppFactory


class State(BaseModel):
    within: str = "2h"
    valid_for: str = "30m"
    said: str = ""


def make(**options: Any) -> Workflow[State]:
    return Workflow("durations", state=State, **options)


def noded(**options: Any) -> Any:
    made = make()

    @made.node(start=True, **options)
    async def only(ctx: Context[State]) -> None: ...

    return made.nodes["only"]


def act(**options: Any) -> Any:
    @activity(key="act/{a}", once_per="tenant", no_undo="nothing", **options)
    async def act(a: str) -> None: ...

    return act


def looked(**options: Any) -> Any:
    @lookup(**options)
    async def look(a: str) -> str:
        return a

    return look


def undone(**options: Any) -> Any:
    @activity(key="undone/{a}")
    async def undone(a: str) -> None: ...

    async def ask(done: None, a: str) -> Any: ...

    @undone.undo(reconcile=ask, **options)
    async def undo(done: None, a: str) -> None: ...

    return undone.undoing


def reconciled(span: Duration) -> timedelta | None:
    made = act()

    @made.reconcile(settle_time=span)
    async def ask(a: str) -> Any: ...

    found: timedelta | None = made.settle_time
    return found


def routed(span: Duration) -> Any:
    receivers = FakeReceivers()
    receivers.route("/x", remembers=span)
    return receivers._routes[0].remembers


DECLARED: dict[str, Callable[[Any], Any]] = {
    "Workflow: ceiling": lambda span: make(ceiling=span).ceiling,
    "node: within": lambda span: noded(within=span).within,
    "node: ceiling": lambda span: noded(ceiling=span).ceiling,
    "activity: timeout": lambda span: act(timeout=span).timeout,
    "activity: keep": lambda span: act(keep=span).keep,
    "lookup: timeout": lambda span: looked(timeout=span).timeout,
    "reconcile: settle_time": reconciled,
    "undo: timeout": lambda span: undone(timeout=span).timeout,
    "undo: settle_time": lambda span: undone(settle_time=span).settle_time,
    "Retry: total_wait": lambda span: Retry(total_wait=span).total_wait,
    "Retry: first": lambda span: Retry(first=span).first,
    "Resend: remembered_for": lambda span: Resend(span).remembered_for,
    "resend: remembered_for": lambda span: resend(remembered_for=span).remembered_for,
    "NeedsApproval: within": lambda span: NeedsApproval("rule", role("lead"), within=span).within,
    "RetryLater: after": lambda span: RetryLater(after=span).after,
    "RunHandle.result: timeout": lambda span: timedelta(seconds=seconds_of(span) or 0),
    "FakeReceivers.route: remembers": routed,
    "status: retry_after": lambda span: timedelta(seconds=int(status(503, retry_after=span).headers[0][1])),
    "too_many: retry_after": lambda span: timedelta(seconds=int(too_many(span).headers[0][1])),
    "every_crash: attempt_timeout": lambda span: (
        every_crash(make(), {}, attempt_timeout=span) and timedelta(seconds=90)
    ),
}
BAD = ("soon", "", "5", "5 h", "-1h", 5, 1.5)
MISTAKES = (DefinitionError, InvalidInput)


@pytest.mark.parametrize("name", DECLARED)
def test_text_and_timedelta_are_the_same(name: str) -> None:
    take = DECLARED[name]
    assert take("1m30s") == take("90s") == take(timedelta(seconds=90)) == timedelta(seconds=90)


@pytest.mark.parametrize("name", DECLARED)
def test_a_bad_text_names_the_parameter_and_the_accepted_forms(name: str) -> None:
    for bad in BAD[:5] if name.startswith("RunHandle") else BAD:  # a timeout may be a number of seconds
        with pytest.raises(MISTAKES) as error:
            DECLARED[name](bad)
        assert name.rpartition(": ")[2] in error.value.what and repr(bad) in error.value.what
        assert '"500ms"' in error.value.why and '"96h"' in error.value.why and "timedelta" in error.value.why


ASKED: dict[str, Callable[[Operations, Any], Awaitable[object]]] = {
    "since of runs": lambda ops, span: ops.rows.runs(ListRuns(since=span)),
    "since of effects": lambda ops, span: ops.rows.ledger(ListLedger(since=span)),
    "by of extend": lambda ops, span: ops.extend("r9", by=span, reason="x"),
    "by of answer": lambda ops, span: ops.answer("r9", Choice.EXTEND, reason=Reason.TOTAL_TIMEOUT, text="x", by=span),
    "by of start_bulk_answer": lambda ops, span: ops.start_bulk_answer(
        Reason.TOTAL_TIMEOUT, Choice.EXTEND, text="x", by=span
    ),
    "keep of rotate": lambda ops, span: ops.webhooks.rotate("wh_9", keep=span),
}


@pytest.mark.parametrize("name", ASKED)
def test_operations_take_text(name: str) -> None:
    async def go() -> None:
        store = await open_store("memory:")
        ops = Operations(store, tenant="t", actor=Actor("ana"), workflows={})
        try:
            for good in ("90s", timedelta(seconds=90)):
                try:
                    await ASKED[name](ops, good)
                except NotFound:
                    pass  # the duration was read, and there is no such row
            for bad in BAD:
                with pytest.raises(InvalidInput, match=f"^OUT-103  {name.partition(' ')[0]} is "):
                    await ASKED[name](ops, bad)
        finally:
            await store.close()

    asyncio.run(go())


asks = Workflow("asks", state=State)


@activity(key="buy/{a}", no_undo="nothing")
async def buy(a: str) -> None: ...


@asks.node(start=True)
async def ask(ctx: Context[State]) -> None:
    s = ctx.state
    try:
        await ctx.approval(buy.plan("a"), summary="?", by=role("lead"), within=s.within, valid_for=s.valid_for)
    except InvalidInput as error:
        s.said = error.what


def test_an_approval_takes_text(outlast_app: AppFactory) -> None:
    app = outlast_app(asks)
    app.start(asks, {})
    (pending,) = app.do(app.runtime.operations.rows.approvals())[0]
    assert pending.within_until - pending.asked_at == ms_of("", "2h")
    for given in ({"within": "soon"}, {"valid_for": "soon"}):
        ended = app.start(asks, given)
        assert ended.outcome["said"] == f"{next(iter(given))} of approval buy is 'soon'"


# --- completeness ------------------------------------------------------------------------------
def callables() -> Iterator[tuple[str, Any]]:
    """Yield every public function, class and method that users call."""
    public: list[Any] = [getattr(outlast, name) for name in outlast.__all__]
    public += [getattr(outlast.testing, name) for name in outlast.testing.__all__]
    public += [Resend, Client, Operations, Webhooks, RunHandle, AppClock]
    for each in public:
        if inspect.isclass(each):
            for name, method in inspect.getmembers(each, inspect.isfunction):
                if not name.startswith("_") or name == "__init__":
                    yield f"{each.__name__}.{name}", method
        elif inspect.isfunction(each):
            yield each.__name__, each


def parts(annotation: Any) -> set[Any]:
    if get_origin(annotation) in (Union, UnionType):
        return {part for arg in get_args(annotation) for part in parts(arg)}
    return {annotation} if isinstance(annotation, Hashable) else set()  # P.args is not


def test_no_public_parameter_takes_a_timedelta_alone() -> None:
    found = {
        f"{name}({parameter.name})": parts(parameter.annotation)
        for name, fn in callables()
        for parameter in inspect.signature(fn).parameters.values()
        if timedelta in parts(parameter.annotation) or "timedelta" in str(parameter.annotation)
    }
    assert len(found) > 20, "the search finds parameters"
    assert [name for name, kinds in found.items() if str not in kinds] == []
