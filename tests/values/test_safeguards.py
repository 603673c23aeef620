"""Safeguards of values, each removed once: a value is lost, stored otherwise, or ends a run (CKP-8)."""

from collections.abc import Callable
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field

from outlast import Context, Workflow, activity, workflow
from outlast.core.codec import Codec
from outlast.errors import DefinitionError
from outlast.testing import App
from tests.mutants import remove
from tests.values.cases import Discounted, Hidden, Offer, Quote, Stock

pytestmark = [
    pytest.mark.req("CKP-8"),
    pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "removed"]),
]


@pytest.fixture
def without(guarded: bool, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return a function that removes a safeguard unless the test is guarded."""
    return lambda name: None if guarded else remove(name, monkeypatch)


class Deal(BaseModel):
    best: Offer | None = None
    stock: Stock | None = None
    any: Any = None
    hidden: Hidden | None = None


def _after(value: dict[str, Any]) -> tuple[str, list[str], Any]:
    """Return status, attention and the state that a second node gets of a first one's."""
    flow = Workflow("deal", state=Deal, outcome=lambda state: 0)
    seen: list[Deal] = []

    @flow.node(start=True)
    async def first(ctx: Context[Deal]) -> Literal["second"]:
        for name, part in value.items():
            setattr(ctx.state, name, part)
        return "second"

    @flow.node
    async def second(ctx: Context[Deal]) -> None:
        seen.append(ctx.state)

    app = App((flow,))
    try:
        run = app.start(flow, {})
        return run.status, [each.detail for each in run.now.attention], seen[0] if seen else None
    finally:
        app.close()


def test_what_a_type_does_not_prove_is_compared(without: Any, guarded: bool) -> None:
    without("values_not_compared")
    status, attention, state = _after({"hidden": Hidden(hidden=5), "any": (1, 2)})
    if guarded:
        assert status != "completed" and "state.any: expected list, found tuple" in attention[0]
    else:
        assert state == Deal(hidden=Hidden(hidden=2), any=[1, 2]), "both are lost"


@pytest.mark.parametrize("value", [Quote(price=4200), Discounted(discount=3)])
def test_a_model_of_another_class_is_not_stored_without_its_fields(without: Any, guarded: bool, value: Any) -> None:
    without("classes_not_checked")

    @activity(key="ask/{n}", no_undo="sent")
    async def ask(n: int) -> list[Offer]:
        return [value]

    @workflow
    async def asks(ctx: Context) -> list[Offer]:
        return await ctx.do(ask, 1)

    app = App((asks,))
    try:
        run = app.start(asks, {})
        assert (run.status != "completed") is guarded
        if guarded:
            assert f"expected Offer, found {type(value).__name__}" in run.now.attention[0].detail
        else:
            assert run.outcome == [{"cents": 0, "by": ""}], "the data is gone"
    finally:
        app.close()


def test_a_state_is_loaded_before_its_checkpoint(without: Any, guarded: bool) -> None:
    without("states_not_loaded")
    below = Stock()
    below.pieces -= 7
    status, attention, state = _after({"stock": below})
    assert status != "completed" or not guarded
    if guarded:
        assert "it is not read back as it was written: stock.pieces" in attention[0] and state is None
    else:
        assert state.stock.pieces == -2, "a node of this process got what no other can load"


def test_sets_do_not_have_the_order_of_a_process(without: Any, guarded: bool) -> None:
    without("sets_as_iterated")
    numbers = {3, 20, 100}  # their hashes are the same in each process, and not in the order of the texts
    assert (Codec(set[int]).canonical(numbers) == b"[100,20,3]") is guarded


def test_a_default_is_a_value_of_its_type(without: Any, guarded: bool) -> None:
    without("defaults_not_checked")

    async def pay(ctx: Context, cents: int = None) -> None: ...  # type: ignore[assignment]  # noqa: RUF013

    async def send(cents: int = "5") -> None: ...  # type: ignore[assignment]

    async def field(cents: int = Field(5)) -> None: ...

    for declare in (lambda: workflow(pay), lambda: activity(key="send/{cents}", no_undo="sent")(send)):
        if guarded:
            with pytest.raises(DefinitionError, match="has a default for cents that does not fit its type"):
                declare()
        else:
            declare()
    with pytest.raises(DefinitionError, match="write cents: Annotated"):
        activity(key="field/{cents}", no_undo="sent")(field)
