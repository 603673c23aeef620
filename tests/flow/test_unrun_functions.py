"""Functions whose call does not run them are refused where they are declared, or where their answer is used."""

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from outlast import Context, Workflow, activity, lookup, role, workflow
from outlast.errors import DefinitionError
from outlast.flow import Allow, DidNotHappen, PolicyRequest
from outlast.flow.functions import NeverAwaited, line_of, never_awaited, refuse_unrun, unrun_kind
from outlast.flow.migrations import migrated
from outlast.pydantic_ai import OutlastApprovals

pytestmark = [pytest.mark.req("EFF-2"), pytest.mark.filterwarnings("error")]


class State(BaseModel):
    order: str = "o"


def plainly(fn: Any) -> Any:
    """Wrap a function as a decorator that measures or logs does."""

    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    return wrapper


async def a_coroutine(order: str) -> str:
    return order


def a_generator(order: str) -> Iterator[str]:
    yield order


async def an_async_generator(order: str) -> AsyncIterator[str]:
    yield order


def a_function(order: str) -> str:
    return order


class Called:
    """Objects that are called."""

    def __init__(self, fn: Any) -> None:
        self.fn = fn

    async def __call__(self, order: str) -> str:
        return order

    async def method(self, order: str) -> str:
        return order


@pytest.mark.parametrize("unrun", [a_coroutine, a_generator, an_async_generator])
@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("decorate", [activity(key="pay/{order}", no_undo="x"), lookup, lookup(key="x/{order}")])
def test_a_plain_wrapper_is_refused_with_its_line(unrun: Any, times: int, decorate: Callable[[Any], Any]) -> None:
    wrapped = unrun
    for _ in range(times):
        wrapped = plainly(wrapped)
    with pytest.raises(DefinitionError, match="was put on") as refused:
        decorate(wrapped)
    line = plainly.__code__.co_firstlineno + 3
    assert f"test_unrun_functions.py:{line}" in str(refused.value), "the wrapper is to be changed"
    assert f"test_unrun_functions.py:{unrun.__code__.co_firstlineno}" in str(refused.value)


@pytest.mark.parametrize(
    "unrun",
    [
        a_generator,
        an_async_generator,
        functools.partial(a_coroutine, "x"),
        Called(None),
        staticmethod(a_coroutine),
        functools.lru_cache(a_coroutine),
    ],
)
def test_what_is_no_function_is_refused_with_its_line(unrun: Any) -> None:
    with pytest.raises(DefinitionError, match="was put on") as refused:
        activity(key="pay/{order}", no_undo="x")(unrun)
    assert "test_unrun_functions.py:" in str(refused.value)


def test_wrappers_that_run_the_function_are_accepted() -> None:
    @functools.wraps(a_function)
    async def later(order: str) -> str:
        return a_function(order)

    for fn in (a_function, plainly(a_function), a_coroutine, later):
        assert activity(key="fine/{order}", no_undo="x", name="fine")(fn).fn is fn
    assert (unrun_kind(a_function), unrun_kind(plainly(a_function)), unrun_kind(print)) == ("", "", "")


@pytest.mark.parametrize("make", [plainly, lambda fn: functools.partial(fn), lambda fn: Called(fn)])
def test_companions_of_an_activity_are_refused(make: Callable[[Any], Any]) -> None:
    @activity(key="book/{order}", if_uncertain="reconcile")
    async def book(order: str) -> str:
        return order

    async def find(order: str) -> DidNotHappen:
        return DidNotHappen()

    async def cancel(response: str, order: str) -> None: ...

    with pytest.raises(DefinitionError):
        book.reconcile(make(find))
    with pytest.raises(DefinitionError):
        book.undo(make(cancel))
    with pytest.raises(DefinitionError):
        book.undo(reconcile=make(cancel))(cancel)


@pytest.mark.parametrize(
    "unrun",
    [a_coroutine, plainly(a_coroutine), functools.partial(a_coroutine), Called(None), Called(None).method, a_generator],
)
def test_options_that_take_a_plain_function_refuse_others(unrun: Any) -> None:
    for option in ("policy", "outcome", "key", "objective"):
        with pytest.raises(DefinitionError, match=f"{option}= of .* is (async|a generator)"):
            Workflow("w", state=State, **{option: unrun})
    flow = Workflow("w", state=State)
    with pytest.raises(DefinitionError, match=r"a migration of .* is (async|a generator)"):
        flow.migrate(from_=1, to=2)(unrun)
    with pytest.raises(DefinitionError, match=r"summary= of .* is (async|a generator)"):
        OutlastApprovals(by=role("lead"), within="1h", summary=unrun)


def test_an_answer_that_has_not_run_is_an_error_that_names_the_function() -> None:
    """A def without functools.wraps shows nothing where it is declared."""

    def hidden(*_: Any) -> Any:
        return a_coroutine("x")

    flow = Workflow("hidden", state=State, key=hidden, objective=hidden, outcome=hidden)
    assert flow.key is not None and flow.objective is not None
    for call in (lambda: flow.key.of(State()), lambda: flow.objective.of(State())):  # type: ignore[union-attr]
        with pytest.raises(DefinitionError, match="`hidden` returned a coroutine that was never awaited"):
            call()
    with pytest.raises(NeverAwaited, match=r"`hidden` returned .* return the answer from a plain def"):
        flow.outcome_of(State())
    flow.migrate(from_=1, to=2)(hidden)
    path = flow.migrations.path(1, 2)
    assert path is not None
    with pytest.raises(NeverAwaited, match="`hidden` returned a coroutine"):
        migrated(path, "a", {}, {})


def test_the_policy_that_has_not_run_is_an_error() -> None:
    from outlast.engine.policy_gate import call_policy

    async def later() -> Allow:
        return Allow()

    def hidden(request: PolicyRequest) -> Any:
        return later()

    with pytest.raises(NeverAwaited, match="`hidden` returned a coroutine"):
        call_policy(hidden, None)  # type: ignore[arg-type]


def test_a_call_in_a_unit_test_shows_it() -> None:
    @activity(key="pay/{order}", no_undo="x", name="pay-hidden")
    def pay(order: str) -> str:
        return a_coroutine(order)  # type: ignore[return-value]  # outlast: ignore[OL305] the mistake under test

    with pytest.raises(NeverAwaited, match="`pay` returned a coroutine that was never awaited"):
        asyncio.run(pay("x"))


def test_each_value_that_stands_for_work_is_known() -> None:
    class Later:
        def __await__(self) -> Iterator[None]:
            yield

    async def future() -> None:
        with pytest.raises(NeverAwaited, match=r"an awaitable \(Future\)"):
            refuse_unrun(asyncio.get_running_loop().create_future(), a_function)

    asyncio.run(future())
    for value, said in (
        (a_coroutine("x"), "a coroutine that was never awaited"),
        (a_generator("x"), "a generator that was never run"),
        (an_async_generator("x"), "an async generator that was never run"),
        (Later(), r"an awaitable \(Later\) that was never awaited"),
    ):
        with pytest.raises(NeverAwaited, match=said):
            refuse_unrun(value, a_function)
    for fine in (None, "x", 1, [], {}, State(), range(3)):
        refuse_unrun(fine, a_function)
    assert "`partial` returned" in str(never_awaited(a_coroutine("x"), functools.partial(a_function)))
    assert line_of(print) == repr(print)


def test_workflows_and_nodes_are_refused_as_before() -> None:
    async def body(ctx: Context[State]) -> None: ...

    with pytest.raises(DefinitionError, match="is not async"):
        workflow(plainly(body))
    with pytest.raises(DefinitionError, match="is not async"):
        Workflow("n", state=State).node(start=True)(plainly(body))
