"""Workflows of one function: state, input, outcome and name come from the function, and each mistake has a remedy."""

import asyncio
import inspect
import json
from datetime import date, timedelta
from types import ModuleType
from typing import Any, cast

import pytest
from pydantic import BaseModel

from outlast import Context, Workflow, activity, workflow
from outlast.errors import DefinitionError, InvalidInput, NotStorable
from outlast.flow import FunctionWorkflow, workflows_of
from outlast.flow.topology import topology_of


class Receipt(BaseModel):
    number: str
    at: date | None = None


@activity(key="refund/{order}", once_per="run", no_undo="the money is gone")
async def issue(order: str, cents: int) -> str:
    return f"{order}-{cents}"


@workflow
async def refund(ctx: Context, order: str, cents: int = 5, *, why: list[str] = []) -> Receipt:  # noqa: B006 - copied
    """Pay an order back."""
    return Receipt(number=await issue(order, cents))


@workflow(name="mail.later", version=3, end="SENT", ceiling="1h", slot_while_waiting=False, when_empty="ask_person")
async def later(ctx: Context[Any]) -> None: ...


def test_a_function_becomes_a_workflow_of_one_node() -> None:
    assert isinstance(refund, Workflow)
    assert (refund.name, refund.version, refund.lane, list(refund.nodes)) == ("refund", 1, "refund@1", ["refund"])
    assert refund.validate().start.exits.ends and refund.start.exits.targets == ()
    assert refund.where.startswith("tests/flow/test_function_workflow.py:")
    assert refund.where == refund.start.where, "a mistake in it is found at the function"
    assert (refund.__doc__, refund.__name__) == ("Pay an order back.", "refund")
    assert str(inspect.signature(refund)).startswith("(ctx: outlast.flow.context.Context")
    assert (later.lane, later.ceiling, later.when_empty) == ("mail.later@3", timedelta(hours=1), "ask_person")
    assert (later.start.end, refund.start.end) == ("SENT", None)
    assert list(later.nodes) == ["mail.later"], "the name in the store does not depend on that of the function"


def test_it_is_found_by_its_module_and_its_activities_by_its_code() -> None:
    module = ModuleType("flows")
    vars(module).update(refund=refund, later=later, workflow=workflow)
    assert workflows_of(module) == [refund, later]
    assert list(refund.activities) == ["issue"]
    assert topology_of(refund)["nodes"]["refund"]["activities"] == ["issue"]


def test_the_input_is_the_parameters() -> None:
    assert set(refund.input_schema()["properties"]) == {"order", "cents", "why"}
    assert refund.input_schema()["required"] == ["order"]
    state = refund.first_state(b'{"order": "A-1", "why": ["late"]}')
    assert state.model_dump() == {"order": "A-1", "cents": 5, "why": ["late"]}
    assert refund.state_codec.load(refund.state_codec.dump(state)) == state
    assert later.first_state({}).model_dump() == {}
    with pytest.raises(InvalidInput) as error:
        refund.first_state({"cents": "many", "centz": 1})
    assert dict(error.value.problems).keys() == {"order", "cents", "centz"}
    assert error.value.fix == "it takes order and optionally cents, why"


def test_arguments_are_given_as_the_function_takes_them() -> None:
    assert refund.encode_input(refund.arguments("A-1", cents=7)) == b'{"order":"A-1","cents":7}'
    assert refund.encode_input(refund.arguments(order="A-1", why=["late"])) == b'{"order":"A-1","why":["late"]}'
    assert later.encode_input(later.arguments()) == b"{}"
    loose = cast(Any, refund)
    with pytest.raises(InvalidInput, match="order: Field required"):
        loose.arguments(cents=1)
    with pytest.raises(InvalidInput, match="unexpected keyword argument 'centz'"):
        loose.arguments("A-1", centz=1)
    with pytest.raises(InvalidInput, match="too many positional arguments"):
        loose.arguments("A-1", 1, ["late"])
    with pytest.raises(InvalidInput, match="cents: Input should be a valid integer"):
        loose.arguments("A-1", "many")


def test_a_default_is_not_shared_between_runs() -> None:
    refund.first_state({"order": "A-1"}).why.append("late")
    assert refund.first_state({"order": "A-1"}).why == []


def test_the_outcome_is_the_returned_value() -> None:
    state = refund.first_state({"order": "A-1"})
    state._returned = Receipt(number="r", at=date(2026, 1, 2))
    assert refund.outcome_of(state) == b'{"number":"r","at":"2026-01-02"}'
    assert refund.decode_outcome(json.loads(refund.outcome_of(state))) == Receipt(number="r", at=date(2026, 1, 2))
    assert b"number" not in refund.state_codec.dump(state)
    state._returned = "a text"
    with pytest.raises(NotStorable, match='the outcome of workflow "refund" cannot be stored'):
        refund.outcome_of(state)
    assert later.outcome_of(later.first_state({})) == b"null"
    assert cast(Any, later).decode_outcome(None) is None


def test_the_function_can_be_called_in_tests() -> None:
    ctx: Context = Context()
    assert asyncio.run(refund(ctx, "A-1", 42)) == Receipt(number="A-1-42")


# --- mistakes --------------------------------------------------------------------------------
def not_async(ctx: Context, order: str) -> None: ...


async def no_parameter() -> None: ...


async def only_named(*, ctx: Context) -> None: ...


async def untyped_context(ctx, order: str) -> None: ...  # type: ignore[no-untyped-def]


async def other_first(order: str, cents: int) -> None: ...


async def other_state(ctx: Context[Receipt], order: str) -> None: ...


async def untyped(ctx: Context, order) -> None: ...  # type: ignore[no-untyped-def]


async def many(ctx: Context, *orders: str) -> None: ...


async def any_named(ctx: Context, **orders: str) -> None: ...


async def no_return(ctx: Context, order: str):  # type: ignore[no-untyped-def]
    ...


async def reserved(ctx: Context, model_dump: str) -> None: ...


async def hidden(ctx: Context, _order: str) -> None: ...


async def own_name(ctx: Context, _returned: str) -> None: ...


async def wrong_default(ctx: Context, cents: int = "many") -> None: ...  # type: ignore[assignment]


async def unstorable(ctx: Context, order: str, of: Workflow[Any]) -> None: ...


async def unstorable_outcome(ctx: Context) -> Workflow[Any]:
    raise NotImplementedError


async def unknown_type(ctx: Context, order: "Nowhere") -> None: ...  # type: ignore[name-defined] # noqa: F821


@pytest.mark.parametrize(
    ("fn", "what", "fix"),
    [
        (not_async, "is not async", "write async def not_async(…)"),
        (no_parameter, "takes no context", "write async def name(ctx: Context, …) -> …"),
        (only_named, "takes no context", "write async def name(ctx: Context, …) -> …"),
        (untyped_context, "has no type for ctx", "annotate it: ctx: Context"),
        (other_first, "takes <class 'str'> first", "annotate it: order: Context"),
        (other_state, "takes outlast.flow.context.Context[", "annotate it: ctx: Context"),
        (untyped, "has no type for order", "annotate it, e.g. order: str"),
        (many, "takes *orders", "name each parameter, or take one list or dict"),
        (any_named, "takes **orders", "name each parameter, or take one list or dict"),
        (no_return, "has no return annotation", "annotate it: -> None, -> str, or -> a pydantic model"),
        (reserved, "has a parameter named model_dump", "rename the parameter"),
        (hidden, "has a parameter named _order", "rename the parameter"),
        (own_name, "has a parameter named _returned", "rename the parameter"),
        (wrong_default, "has a default for cents that does not fit its type", "correct one of the two"),
        (unknown_type, "has an annotation that cannot be read", "define or import the type above the function"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_mistake_is_refused_with_its_place_and_its_remedy(fn: Any, what: str, fix: str) -> None:
    with pytest.raises(DefinitionError) as error:
        workflow(fn)
    place = f"tests/flow/test_function_workflow.py:{fn.__code__.co_firstlineno}"
    assert error.value.what.startswith(f'workflow "{fn.__name__}" ({place}) {what}')
    assert error.value.fix == fix
    assert error.value.why and error.value.where == place


def test_types_that_cannot_be_stored_are_refused() -> None:
    with pytest.raises(DefinitionError, match='of of workflow "unstorable" cannot be stored'):
        workflow(unstorable)
    with pytest.raises(DefinitionError, match='the outcome of workflow "unstorable_outcome" cannot be stored'):
        workflow(unstorable_outcome)


def test_what_is_no_function_is_refused() -> None:
    for other in ("refund", refund, object()):
        with pytest.raises(DefinitionError, match="@workflow was put on"):
            workflow(cast(Any, other))
    with pytest.raises(DefinitionError, match="@workflow was put on 'refund'"):
        cast(Any, workflow)(name="x")("refund")


def test_the_start_key_comes_from_the_parameters() -> None:
    @workflow(key="refund/{order}")
    async def keyed(ctx: Context, order: str, cents: int = 5) -> None: ...

    assert keyed.begin({"order": "A-1"}).key == "refund/A-1"
    with pytest.raises(DefinitionError, match="nowhere"):
        workflow(key="refund/{nowhere}")(keyed.fn)


def test_the_options_are_checked_as_for_any_workflow() -> None:
    with pytest.raises(DefinitionError, match="has an unusable name"):
        workflow(name="a b")(later.fn)
    with pytest.raises(DefinitionError, match="has version 0"):
        workflow(version=0)(later.fn)


def test_a_second_node_is_refused() -> None:
    @workflow
    async def alone(ctx: Context) -> None: ...

    with pytest.raises(DefinitionError, match="has a second node") as error:

        @alone.node
        async def second(ctx: Context[Any]) -> None: ...

    assert "declare Workflow" in error.value.fix
    assert isinstance(alone, FunctionWorkflow)


def test_types_of_the_calling_function_are_read() -> None:
    class Local(BaseModel):
        n: int

    @workflow
    async def local(ctx: Context, given: "Local") -> "Local":
        return given

    state = local.first_state({"given": {"n": 1}})
    assert state.given == Local(n=1)
    assert local.decode_outcome({"n": 1}) == Local(n=1)
