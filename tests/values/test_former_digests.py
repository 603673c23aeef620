"""A store from before sets were written in order: no contradiction, no second question, no conflict (CKP-8)."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pydantic import BaseModel

from outlast import Context, NeedsApproval, Workflow, activity, lookup, role, workflow
from outlast.core import codec
from outlast.engine import former_digests
from outlast.errors import Conflict
from outlast.testing import App
from tests.mutants import remove
from tests.values.cases import WORDS, Tagged

pytestmark = pytest.mark.req("CKP-8")
NAMES = set(WORDS)
CALLS: list[Any] = []


@contextmanager
def before(patch: pytest.MonkeyPatch) -> Iterator[None]:
    """Write sets as a process did that iterated them in the opposite order."""

    def iterated(given: Any, plain: Any, key: Any) -> Any:
        ordered = IN_ORDER(given, plain, key)
        return _reversed(ordered)

    with patch.context() as within:
        within.setattr(codec, "in_order", iterated)
        within.setattr(sys.modules["outlast.flow.activity"], "IN_ORDER", "")
        yield


IN_ORDER = codec.in_order


def _reversed(plain: Any) -> Any:
    if isinstance(plain, list):
        return [_reversed(each) for each in reversed(plain)]
    return {name: _reversed(each) for name, each in plain.items()} if isinstance(plain, dict) else plain


class Go(BaseModel):
    n: int = 0


@activity(key="label/{order}", once_per="run", no_undo="sent")
async def label(order: str, what: Tagged, also: set[str]) -> int:
    CALLS.append(("label", order, what, also))
    return 1


@activity(key="stamp/{order}", once_per="tenant", no_undo="sent")
async def stamp(order: str, names: frozenset[str]) -> int:
    CALLS.append(("stamp", order))
    return 2


@lookup(key="price/{order}")
async def price(order: str, of: set[str]) -> int:
    CALLS.append(("price", order))
    return 3


WHAT = Tagged(tags=NAMES, items=[NAMES])


@workflow
async def waits(ctx: Context, order: str) -> list[int]:
    """It has made its calls, and waits."""
    found = [await ctx.do(label, order, WHAT, NAMES), await ctx.do(stamp, "s", frozenset(NAMES))]
    found.append(await ctx.do(price, order, NAMES))
    await ctx.receive("go", Go)
    assert [each.same for each in await ctx.recorded(label.plan(order, WHAT, NAMES))] == [True]
    return [*found, await ctx.do(label, order, WHAT, NAMES)]


@workflow
async def asks(ctx: Context, order: str) -> int:
    plan = label.plan(order, WHAT, NAMES)
    decision = await ctx.approval(plan, summary="label?", by=role("lead"), within="96h", editable=["also"])
    await ctx.receive("go", Go)
    return await ctx.do(decision.chosen)


@workflow(policy=lambda call: NeedsApproval("four-eyes", by=role("lead"), within="96h"))
async def judged(ctx: Context, order: str) -> int:
    return await ctx.do(label, order, WHAT, NAMES)


@workflow(key="begins/{order}")
async def begins(ctx: Context, order: str, to: set[str]) -> None:
    await ctx.receive("go", Go)


class Wanted(BaseModel):
    order: str
    to: frozenset[str]


class Held(Wanted):
    n: int = 0


held = Workflow("held", state=Held, input=Wanted, outcome=lambda state: state.n, key="held/{order}")


@held.node(start=True)
async def hold(ctx: Context[Held]) -> None:
    ctx.state.n += 1


@pytest.fixture
def app(request: pytest.FixtureRequest) -> Iterator[App]:
    CALLS.clear()
    given = App((waits, asks, judged, begins, held))
    yield given
    given.close()


GUARDED = pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "removed"])


def _without(patch: pytest.MonkeyPatch, guarded: bool) -> None:
    if not guarded:
        remove("former_digests_not_decoded", patch)


@GUARDED
def test_a_waiting_run_goes_on(app: App, monkeypatch: pytest.MonkeyPatch, guarded: bool) -> None:
    with before(monkeypatch):
        run = app.start(waits, {"order": "o1"})
    assert run.waiting_for and len(CALLS) == 3
    _without(monkeypatch, guarded)
    run.signal("go", Go())
    assert (run.status == "completed") is guarded and len(CALLS) == 3
    assert guarded or run.attention == ["contradiction"]
    if guarded:
        assert run.outcome == [1, 2, 3, 1]


@GUARDED
@pytest.mark.parametrize("approved", [True, False])
def test_an_approval_is_not_asked_for_again(
    app: App, monkeypatch: pytest.MonkeyPatch, guarded: bool, approved: bool
) -> None:
    with before(monkeypatch):
        run = app.start(asks, {"order": "o1"})
        if approved:
            run.approve()
    asked = [each.id for each in app.rows(run.id).approvals]
    _without(monkeypatch, guarded)
    if not approved:
        run.approve()
    run.signal("go", Go())
    again = [each.id for each in app.rows(run.id).approvals]
    assert (run.status == "completed" and again == asked and len(asked) == 1) is guarded
    assert len(CALLS) == (1 if guarded else 0)
    if guarded:
        assert CALLS[0][2:] == (WHAT, NAMES)


def test_a_call_that_a_policy_has_had_approved_is_made(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    with before(monkeypatch):
        run = app.start(judged, {"order": "o1"})
        assert len(app.rows(run.id).approvals) == 1
    run.approve()
    assert run.status == "completed" and len(CALLS) == 1
    assert len(app.rows(run.id).approvals) == 1


def test_arguments_that_an_approver_changed_are_made(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    with before(monkeypatch):
        run = app.start(asks, {"order": "o1"})
        person, approval = run._person("ana")
        run._act(person.approve(approval, changes={"also": ["z", "y"]}))
    run.signal("go", Go())
    assert run.status == "completed" and CALLS[0][2:] == (WHAT, {"y", "z"})


@pytest.mark.parametrize("flow", [begins, held], ids=lambda flow: flow.name)
@GUARDED
def test_a_derived_key_finds_its_run(app: App, monkeypatch: pytest.MonkeyPatch, flow: Any, guarded: bool) -> None:
    client, given = app.runtime.client, {"order": "o1", "to": sorted(NAMES)}
    with before(monkeypatch):
        first = app.do(client.start(flow, given))
    if not guarded:
        remove("former_inputs_not_decoded", monkeypatch)
        with pytest.raises(Conflict, match="with another input"):
            app.do(client.start(flow, given))
        return
    again = app.do(client.start(flow, given))
    assert again.id == first.id and not again.created
    with pytest.raises(Conflict, match="with another input"):
        app.do(client.start(flow, {**given, "to": ["zoe"]}))


def test_what_is_written_now_has_one_form(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = label.plan("o1", WHAT, NAMES)
    with before(monkeypatch):
        other = label.plan("o1", WHAT, NAMES)
    assert plan != other and label.plan("o1", WHAT, set(WORDS)) == plan
    assert former_digests.are_alike_but_for_order(plan.arguments, other.arguments)
    assert not former_digests.are_alike_but_for_order(plan.arguments, label.plan("o1", WHAT, {"x"}).arguments)
