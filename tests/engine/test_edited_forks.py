"""Edited states of forks: the model of the workflow checks each, the difference is shown, a bad one writes nothing."""

import copy
import json
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import Any, Final, Literal, NamedTuple

import pytest
from pydantic import BaseModel, ConfigDict, Field, model_validator

from outlast import Context, Workflow, activity
from outlast.core.commit import Commit
from outlast.core.rows.run_rows import RUN
from outlast.engine import fork_start
from outlast.errors import InvalidInput, NotFound
from outlast.testing.virtual_runtime import App

pytestmark = pytest.mark.req("RUN-10")
SENT: list[str] = []
"""Requests that a carrier got."""


class Place(BaseModel):
    """Address of a customer."""

    model_config = ConfigDict(extra="forbid")
    street: str = Field(min_length=1)
    country: Literal["DE", "FR"]


class Line(BaseModel):
    """Position of an order."""

    sku: str = Field(pattern=r"^[a-z]+-\d+$")
    count: int = Field(ge=1, le=99)
    price: Decimal = Field(ge=0, decimal_places=2)


class Parcel(BaseModel):
    """State of a parcel."""

    model_config = ConfigDict(extra="forbid")
    to: Place
    lines: list[Line] = Field(min_length=1, max_length=3)
    paid: Decimal = Decimal(0)
    due: date | None = None
    urgent: bool = False
    tags: dict[str, int] = {}
    note: str = ""

    @model_validator(mode="after")
    def _is_not_overpaid(self) -> "Parcel":
        if self.paid > sum(line.price * line.count for line in self.lines):
            raise ValueError("more was paid than it costs")
        return self


parcels = Workflow("edited-parcels", state=Parcel)


@activity(key="send/{country}/{street}", no_undo="it is gone")
async def send(country: str, street: str) -> str:
    """Send a parcel."""
    SENT.append(f"{country} {street}")
    return "sent"


@parcels.node(start=True)
async def weigh(ctx: Context[Parcel]) -> Literal["post"]:
    """Note the weight."""
    ctx.state.tags["grams"] = 700
    return "post"


@parcels.node
async def post(ctx: Context[Parcel]) -> None:
    """Send it."""
    await ctx.do(send, ctx.state.to.country, ctx.state.to.street)


GIVEN: Final[dict[str, Any]] = {
    "to": {"street": "Am Hof 1", "country": "DE"},
    "lines": [{"sku": "pen-1", "count": 2, "price": "1.50"}, {"sku": "ink-7", "count": 1, "price": "4.00"}],
    "paid": "7.00",
}
GONE: Final = object()


class Edit(NamedTuple):
    """Values by path that an operator writes into the state of the checkpoint, and what the start says about them."""

    values: dict[str, Any]
    shown: tuple[str, ...]
    """Paths of the difference of a good state, or words of the problems of a bad one."""


GOOD: Final[dict[str, Edit]] = {
    "nothing": Edit({}, ()),
    "a text": Edit({"note": "fragile"}, ("note",)),
    "a member": Edit({"to.street": "Am Hof 2"}, ("to.street",)),
    "a choice": Edit({"to.country": "FR"}, ("to.country",)),
    "a whole object": Edit({"to": {"street": "Rue 3", "country": "FR"}}, ("to.street", "to.country")),
    "a number": Edit({"lines.0.count": 3}, ("lines.0.count",)),
    "a decimal": Edit({"paid": "6.99"}, ("paid",)),
    "a date": Edit({"due": "2026-12-24"}, ("due",)),
    "a truth": Edit({"urgent": True}, ("urgent",)),
    "one more line": Edit({"lines.2": {"sku": "cap-1", "count": 1, "price": "0"}}, ("lines.2",)),
    "one line less": Edit({"lines.1": GONE, "paid": "3.00"}, ("lines.1", "paid")),
    "a new name": Edit({"tags.late": 1}, ("tags.late",)),
    "no name": Edit({"tags": {}}, ("tags.grams",)),
    "a default": Edit({"tags": GONE, "note": GONE}, ("tags.grams",)),
    "letters": Edit({"to.street": "Straße 東京 🖋"}, ("to.street",)),
}
BAD: Final[dict[str, Edit]] = {
    "a text for a number": Edit({"lines.0.count": "many"}, ("lines.0.count",)),
    "too small": Edit({"lines.0.count": 0}, ("lines.0.count",)),
    "too large": Edit({"lines.1.count": 100}, ("lines.1.count",)),
    "a fraction for a number": Edit({"lines.0.count": 1.5}, ("lines.0.count",)),
    "no such choice": Edit({"to.country": "XX"}, ("to.country",)),
    "an empty text": Edit({"to.street": ""}, ("to.street",)),
    "another pattern": Edit({"lines.0.sku": "PEN"}, ("lines.0.sku",)),
    "too precise": Edit({"lines.0.price": "1.505"}, ("lines.0.price",)),
    "no such day": Edit({"due": "2026-02-30"}, ("due",)),
    "no lines": Edit({"lines": []}, ("lines",)),
    "too many lines": Edit({f"lines.{n}": GIVEN["lines"][0] for n in (2, 3)}, ("lines",)),
    "a missing field": Edit({"to": GONE}, ("to",)),
    "an unknown field": Edit({"to.floor": 3}, ("to.floor",)),
    "nothing for an object": Edit({"to": None}, ("to",)),
    "a broken rule": Edit({"paid": "7.01"}, ("more was paid than it costs",)),
    "two at once": Edit({"urgent": "maybe", "tags.grams": "x"}, ("urgent", "tags.grams")),
}


def edited(state: Any, values: dict[str, Any]) -> Any:
    """Return a state with these values."""
    state = copy.deepcopy(state)
    for path, value in values.items():
        *names, last = (int(name) if name.isdigit() else name for name in path.split("."))
        at = state
        for name in names:
            at = at[name]
        if value is GONE:
            del at[last]
        elif isinstance(last, int) and last == len(at):
            at.append(value)
        else:
            at[last] = value
    return state


@pytest.fixture(autouse=True)
def sent() -> list[str]:
    """Return an empty record."""
    SENT.clear()
    return SENT


@pytest.fixture(params=["memory", "sqlite"])
def app(request: pytest.FixtureRequest, outlast_app: Callable[..., App]) -> App:
    """Return an app with a parcel that was sent."""
    app = outlast_app(parcels, store=request.param)
    assert app.start(parcels, GIVEN).status == "completed"
    return app


@pytest.fixture
def of(app: App) -> tuple[str, dict[str, Any]]:
    """Return the parcel, and the state of its checkpoint as an operator sees it."""
    (run,) = app.do(app.runtime.operations.runs()).runs
    return run.run, app.do(app.runtime.operations.fork_preview(run.run, "post", approvers="lead")).state


def test_thirty_states_are_edited() -> None:
    assert len(GOOD) + len(BAD) >= 30


@pytest.mark.parametrize("name", GOOD)
def test_a_good_state_is_that_of_the_fork_and_its_difference_is_shown(
    app: App, of: tuple[str, dict[str, Any]], sent: list[str], name: str
) -> None:
    run, before = of
    state, operations = edited(before, GOOD[name].values), app.runtime.operations
    preview = app.do(operations.fork_preview(run, "post", state=state, approvers="lead"))
    assert (preview.refused, [change.path for change in preview.changes]) == ([], [*GOOD[name].shown])
    fork = app.do(operations.fork_run(run, "post", state=state, approvers="lead", fork_id="edited"))
    app.settle()
    assert fork.changed == sorted({path.partition(".")[0] for path in GOOD[name].shown})
    began = app.state(app.rows("edited"))
    assert began == Parcel.model_validate(state).model_dump(mode="json")
    terms = next(memo for memo in app.rows("edited").memos if memo.key == "fork?terms")
    assert json.loads(terms.response or b"")["edited"] == bool(GOOD[name].shown)
    (waiting,) = app.do(operations.run("edited")).waiting_for
    assert waiting.kind == "approval" and len(sent) == 1, "that of the ancestor"
    (approval,) = app.rows("edited").approvals
    assert approval.plans[0].key == send.plan(began["to"]["country"], began["to"]["street"]).key


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("effects", ["ask", "recorded"])
def test_a_bad_state_is_refused_with_its_places_and_nothing_is_written(
    app: App, of: tuple[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch, name: str, effects: Any
) -> None:
    run, before = of
    state, operations = edited(before, BAD[name].values), app.runtime.operations
    landed: list[Commit] = []
    commit = app.store.commit

    async def noted(given: Commit) -> Any:
        landed.append(given)
        return await commit(given)

    monkeypatch.setattr(app.store, "commit", noted)
    given: dict[str, Any] = {"state": state, "approvers": "lead", "effects": effects}
    for asks in (
        lambda: operations.fork_preview(run, "post", **given),
        lambda: operations.fork_run(run, "post", **given, fork_id="edited"),
    ):
        with pytest.raises(InvalidInput) as refused:
            app.do(asks())
        places = [place for place, _ in refused.value.problems or ()]
        for shown in BAD[name].shown:
            assert shown in places or shown in str(refused.value), (places, str(refused.value))
    assert landed == []
    assert app.do(app.store.load(RUN, (operations.tenant, "edited"))) is None
    with pytest.raises(NotFound):
        app.do(operations.run("edited"))


def test_without_the_check_a_bad_state_begins(
    app: App, of: tuple[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cases above would not notice a start that takes every state, if it wrote nothing."""

    async def taken(workflow: Any, point: Any, asked: Any, before: bytes) -> bytes:
        return before if asked.state is None else json.dumps(asked.state).encode()

    monkeypatch.setattr(fork_start, "_state", taken)
    with pytest.raises(pytest.fail.Exception):
        test_a_bad_state_is_refused_with_its_places_and_nothing_is_written(app, of, monkeypatch, "too small", "ask")
