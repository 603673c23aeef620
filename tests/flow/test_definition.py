"""Every mistake of definition is found before a run exists, and its message names file, node or activity, and fix."""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from outlast import Context, DidNotHappen, Happened, Retry, Workflow, activity, lookup, resend, role
from outlast.errors import DefinitionError
from outlast.flow import Activity
from outlast.flow.topology import topology_of

from . import late_annotations


class State(BaseModel):
    n: int = 0


class Other(BaseModel):
    n: int = 0


class Incomplete(BaseModel):
    part: "Nowhere"  # type: ignore[name-defined]  # noqa: F821


class Socket: ...


def refused(declare: Callable[[], object], *, what: str, fix: str, named: str = "") -> DefinitionError:
    """Run `declare` and assert its three-line error: problem (with file and line), reason and fix."""
    with pytest.raises(DefinitionError) as error:
        declare()
    text = str(error.value)
    assert what in error.value.what, text
    assert fix in error.value.fix, text
    assert named in text, text
    assert re.search(r"test_definition\.py:\d+", text), text
    assert re.search(r"test_definition\.py:\d+$", error.value.where), text
    assert text.splitlines()[-1].endswith("https://outlast.dev/e/OUT-101")
    return error.value


def make() -> Workflow[State]:
    return Workflow("shop", state=State)


# --- nodes, when decorated -----------------------------------------------------------------
def sync_node() -> None:
    @make().node  # type: ignore[arg-type]
    def pay(ctx: Context[State]) -> None: ...


def no_parameter() -> None:
    @make().node  # type: ignore[arg-type]
    async def pay() -> None: ...


def two_parameters() -> None:
    @make().node  # type: ignore[arg-type]
    async def pay(ctx: Context[State], more: int) -> None: ...


def unannotated_parameter() -> None:
    @make().node
    async def pay(ctx) -> None: ...  # type: ignore[no-untyped-def]


def state_of_another() -> None:
    @make().node  # type: ignore[arg-type]
    async def pay(ctx: Context[Other]) -> None: ...


def bare_context() -> None:
    @make().node
    async def pay(ctx: Context) -> None: ...  # type: ignore[type-arg]


def no_annotation() -> None:
    @make().node
    async def pay(ctx: Context[State]): ...  # type: ignore[no-untyped-def]


def leads_to_text() -> None:
    @make().node
    async def pay(ctx: Context[State]) -> str:
        return "x"


def leads_to_number() -> None:
    @make().node  # type: ignore[type-var]
    async def pay(ctx: Context[State]) -> Literal[1]:
        return 1


def twice() -> None:
    shop = make()

    @shop.node(start=True)
    async def pay(ctx: Context[State]) -> None: ...

    first = pay

    @shop.node
    async def pay(ctx: Context[State]) -> None: ...

    assert first


def two_starts() -> None:
    shop = make()

    @shop.node(start=True)
    async def first(ctx: Context[State]) -> None: ...

    @shop.node(start=True)
    async def pay(ctx: Context[State]) -> None: ...


def node_with(**options: Any) -> Callable[[], None]:
    def declare() -> None:
        @make().node(**options)
        async def pay(ctx: Context[State]) -> None: ...

    return declare


@pytest.mark.req("RUN-1")
def ends_nowhere() -> None:
    @make().node(start=True, end="PAID")
    async def pay(ctx: Context[State]) -> Literal["pay"]:
        return "pay"


@pytest.mark.parametrize(
    ("declare", "what", "fix"),
    [
        (sync_node, "is not async", "async def pay"),
        (no_parameter, "exactly one annotated parameter", "async def pay(ctx: Context[State])"),
        (two_parameters, "exactly one annotated parameter", "into the state"),
        (unannotated_parameter, "exactly one annotated parameter", "Context[State]"),
        (state_of_another, "takes Context[Other]", "ctx: Context[State]"),
        (bare_context, "takes Context", "ctx: Context[State]"),
        (no_annotation, "has no return annotation", 'Literal["next_node"]'),
        (leads_to_text, "returns <class 'str'>", 'Literal["next_node"]'),
        (leads_to_number, "returns typing.Literal[1]", 'Literal["next_node"]'),
        (twice, "is declared twice", "another name"),
        (two_starts, "is a second start node", "start=True on one"),
        (node_with(max_visits=0), "has max_visits=0", "max_visits=5"),
        (node_with(max_visits=True), "has max_visits=True", "max_visits=5"),
        (node_with(status="not a name"), "has status 'not a name'", "EVALUATING"),
        (node_with(end="not a name"), "has end 'not a name'", "AWARDED"),
        (node_with(end="FAILED"), "has end 'FAILED'", "AWARDED"),
        (ends_nowhere, "has end='PAID', but no run ends in it", "-> Literal[…] | None"),
        (node_with(within=timedelta()), "within of node", "timedelta"),
        (node_with(ceiling=96), "ceiling of node", "timedelta"),
    ],
)
def test_a_wrong_node_is_refused_when_decorated(declare: Callable[[], object], what: str, fix: str) -> None:
    refused(declare, what=what, fix=fix, named='node "pay"')


# --- the graph, when loaded ----------------------------------------------------------------
def empty() -> Workflow[State]:
    return make()


def no_start() -> Workflow[State]:
    shop = make()

    @shop.node
    async def pay(ctx: Context[State]) -> None: ...

    return shop


def unknown_target() -> Workflow[State]:
    shop = make()

    @shop.node(start=True)
    async def pay(ctx: Context[State]) -> Literal["shipp"] | None:
        return None

    @shop.node(max_visits=1)
    async def ship(ctx: Context[State]) -> Literal["pay"]:
        return "pay"

    return shop


def unreachable() -> Workflow[State]:
    shop = make()

    @shop.node(start=True)
    async def first(ctx: Context[State]) -> None: ...

    @shop.node
    async def pay(ctx: Context[State]) -> None: ...

    return shop


def endless_pair() -> Workflow[State]:
    shop = make()

    @shop.node(start=True)
    async def first(ctx: Context[State]) -> Literal["pay"]:
        return "pay"

    @shop.node
    async def pay(ctx: Context[State]) -> Literal["ship"] | None:
        return None

    @shop.node
    async def ship(ctx: Context[State]) -> Literal["pay"]:
        return "pay"

    return shop


def endless_self() -> Workflow[State]:
    shop = make()

    @shop.node(start=True)
    async def pay(ctx: Context[State]) -> Literal["pay"] | None:
        return None

    return shop


def no_end() -> Workflow[State]:
    shop = make()

    @shop.node(start=True, max_visits=3)
    async def pay(ctx: Context[State]) -> Literal["pay"]:
        return "pay"

    return shop


@pytest.mark.req("RUN-1")
@pytest.mark.parametrize(
    ("declare", "what", "why", "fix"),
    [
        (empty, 'workflow "shop" has no node', "", "start=True"),
        (no_start, "has no start node", '"pay"', "start=True"),
        (unreachable, 'node "pay" of workflow "shop"', "start node", 'Literal["pay"]'),
        (endless_pair, 'node "pay" of workflow "shop"', "pay → ship → pay", "max_visits=5"),
        (endless_self, 'node "pay" of workflow "shop"', "pay → pay", "max_visits=5"),
        (no_end, 'node "pay" of workflow "shop"', "never complete", "return None"),
    ],
)
def test_a_wrong_graph_is_refused_when_loaded(
    declare: Callable[[], Workflow[State]], what: str, why: str, fix: str
) -> None:
    assert why in refused(declare().validate, what=what, fix=fix).why


@pytest.mark.req("RUN-1")
def test_an_undeclared_target_is_refused_and_all_mistakes_are_reported_at_once() -> None:
    error = refused(unknown_target().validate, what='workflow "shop" has 2 mistakes', fix="in this order")
    assert 'leads to "shipp", which is not a node' in error.why
    assert 'there are "pay", "ship"' in error.why
    assert 'node "ship" of workflow "shop"' in error.why
    assert "can never be reached" in error.why


def test_every_loop_needs_a_maximum_on_it_and_one_is_enough() -> None:
    shop = make()

    @shop.node(start=True)
    async def plan(ctx: Context[State]) -> Literal["act", "check"] | None:
        return None

    @shop.node(max_visits=50)
    async def act(ctx: Context[State]) -> Literal["plan"]:
        return "plan"

    @shop.node
    async def check(ctx: Context[State]) -> Literal["plan"]:
        return "plan"

    refused(shop.validate, what="is in a loop without a maximum", fix="max_visits")


def test_a_right_graph_is_read_from_its_annotations() -> None:
    shop = make()

    @shop.node(start=True, status="PLANNING", max_visits=2, within=timedelta(hours=1))
    async def plan(ctx: Context[State]) -> Literal["act", "plan"] | None:
        return None

    @shop.node
    async def act(ctx: Context[State]) -> None: ...

    assert shop.validate() is shop
    assert shop.start.name == "plan"
    assert shop.nodes["plan"].exits == (("act", "plan"), True)
    assert shop.nodes["act"].exits == ((), True)
    drawn = topology_of(shop)["nodes"]["plan"]
    assert (drawn["to"], drawn["ends"], drawn["start"]) == (["act", "plan"], True, True)


@pytest.mark.req("RUN-1")
def test_annotations_kept_as_text_are_resolved_when_decorated_or_loaded() -> None:
    assert late_annotations.shop.validate().nodes["first"].exits.targets == ("second",)
    local = late_annotations.declared_in_a_function()
    assert local.validate().nodes["only"].exits.ends
    with pytest.raises(DefinitionError, match=r'node "only" .*late_annotations.py:\d+.* cannot be read') as error:
        late_annotations.unreadable().validate()
    assert "Nowhere" in error.value.why


# --- workflows -----------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("options", "what", "fix"),
    [
        ({"name": "a shop"}, "has an unusable name", "letters"),
        ({"version": 0}, "has version 0", "from 1"),
        ({"version": True}, "has version True", "from 1"),
        ({"state": dict}, "has state=<class 'dict'>", "pydantic.BaseModel"),
        ({"input": int}, "has input=<class 'int'>", "pydantic.BaseModel"),
        ({"ceiling": timedelta(0)}, "ceiling of workflow", "timedelta"),
        ({"state": Incomplete}, "the state of workflow", "complete at this line"),
    ],
)
def test_a_wrong_workflow_is_refused(options: dict[str, Any], what: str, fix: str) -> None:
    given = {"name": "shop", "state": State} | options
    refused(lambda: Workflow(given.pop("name"), **given), what=what, fix=fix)


# --- activities, when decorated ------------------------------------------------------------
def write(fn: Any, **options: Any) -> Callable[[], object]:
    return lambda: activity(**({"key": "k/{a}", "no_undo": "no"} | options))(fn)


async def unannotated(a) -> None: ...  # type: ignore[no-untyped-def]


async def answerless(a: str): ...  # type: ignore[no-untyped-def]


async def variadic(*a: str) -> None: ...


async def streaming(a: str) -> Any:
    yield a


async def mail(a: str) -> None: ...


async def unstorable(a: str, b: Socket) -> None: ...


async def unstorable_answer(a: str) -> Socket:
    return Socket()


async def weighed(a: float) -> None: ...


@pytest.mark.parametrize(
    ("declare", "what", "fix"),
    [
        (write(unannotated), "has no type for a", "a: str"),
        (write(answerless), "has no return annotation", "-> None"),
        (write(variadic), "takes *a", "one list"),
        (write(mail, key="k/{b}"), "names {b}, which is no parameter", "its parameters: a"),
        (write(mail, key=""), "is empty", "business identity"),
        (write(weighed), "neither text", "type str"),
        (write(unstorable), "the arguments of activity", "pydantic model"),
        (write(unstorable_answer), "the answer of activity", "pydantic model"),
        (write(mail, once_per="node"), "has once_per='node'", "leave it out"),
        (write(mail, keep=timedelta(days=1)), "has keep=", 'once_per="tenant"'),
        (write(mail, once_per="tenant", keep=timedelta(0)), "keep of activity", "timedelta"),
        (write(mail, provider="the erp"), "has provider 'the erp'", "erp"),
        (write(mail, if_uncertain="retry"), "has if_uncertain='retry'", "resend(remembered_for="),
        (write(mail, no_undo=" "), "has no_undo=' '", "why nothing can be undone"),
        (write(mail, no_undo=1), "has no_undo=1", "why nothing can be undone"),
        (write(mail, timeout=timedelta(0)), "timeout of activity", "timedelta"),
        (write(mail, name="a b"), "has an unusable name", "name="),
        (lambda: lookup(once_per="tenant")(mail), "has once_per='tenant'", 'once_per="run"'),
    ],
)
def test_a_wrong_activity_is_refused_when_decorated(declare: Callable[[], object], what: str, fix: str) -> None:
    refused(declare, what=what, fix=fix)


def test_only_functions_can_be_activities() -> None:
    for what in (print, streaming, State):
        with pytest.raises(DefinitionError, match="@activity was put on"):
            write(what)()


@pytest.mark.parametrize(
    ("declare", "what"),
    [
        (lambda: resend(remembered_for=timedelta(0)), "remembered_for of resend()"),
        (lambda: Retry(attempts=0), "Retry(attempts=0)"),
        (lambda: Retry(factor=0.5), "Retry(factor=0.5)"),
        (lambda: Retry(total_wait=timedelta(0)), "total_wait of Retry()"),
        (lambda: Retry(first=timedelta(-1)), "first of Retry()"),
        (lambda: role("a b"), "cannot name a role"),
    ],
)
def test_wrong_declarations_are_refused_at_once(declare: Callable[[], object], what: str) -> None:
    with pytest.raises(DefinitionError) as error:
        declare()
    assert what in error.value.what
    assert error.value.fix


# --- undo and reconcile --------------------------------------------------------------------
def with_activity(one: Activity[..., Any]) -> Workflow[State]:
    shop = make()

    @shop.node(start=True)
    async def pay(ctx: Context[State]) -> None:
        await ctx.do(one, "x")

    return shop


def test_an_option_that_no_workflow_has_is_refused() -> None:
    """The options are declared once, as a TypedDict, which Python does not compare with the call."""
    with pytest.raises(TypeError, match=r"Workflow\(\) got an unexpected keyword argument 'versions'"):
        Workflow("mistyped", state=State, versions=2)  # type: ignore[call-overload]


@pytest.mark.req("EFF-6")
def test_a_workflow_with_a_write_without_undo_does_not_load() -> None:
    @activity(key="k/{a}")
    async def pay(a: str) -> int:
        return 1

    shop = with_activity(pay)
    refused(shop.validate, what='activity "pay"', fix='no_undo="why', named="does not say how it is undone")
    refused(lambda: pay.plan("x"), what='activity "pay"', fix="@pay.undo")

    @pay.undo
    async def unpay(done: int, a: str) -> None: ...

    assert shop.validate().activities["pay"] is pay
    assert pay.undo_declared
    assert pay.undo_fn is unpay
    assert pay.plan("x").key == "k/x"


@pytest.mark.req("EFF-6")
def test_undo_and_no_undo_contradict_each_other() -> None:
    @activity(key="k/{a}", no_undo="a mail")
    async def send(a: str) -> int:
        return 1

    async def unsend(done: int, a: str) -> None: ...

    refused(lambda: send.undo(unsend), what="contradicts no_undo", fix="keep one")


def test_reconcile_and_undo_take_the_parameters_of_their_activity() -> None:
    @activity(key="k/{a}")
    async def pay(a: str, b: int) -> int:
        return 1

    async def other_names(a: str, c: int) -> DidNotHappen:
        return DidNotHappen()

    def not_async(a: str, b: int) -> DidNotHappen:
        return DidNotHappen()

    async def right(a: str, b: int) -> Happened[int] | DidNotHappen:
        return Happened(1)

    async def without_response(a: str, b: int) -> None: ...

    untyped: Any = pay
    refused(lambda: untyped.reconcile(other_names), what="takes other parameters", fix="(a, b)")
    refused(lambda: untyped.reconcile(not_async), what="is not async def", fix="async def not_async(a, b)")
    refused(lambda: untyped.undo(without_response), what="takes other parameters", fix="(response, a, b)")
    refused(lambda: untyped.reconcile(settle_time=timedelta(0)), what="settle_time of the reconcile", fix="timedelta")
    assert pay.mode == "ask_person"
    assert pay.reconcile(settle_time=timedelta(minutes=5))(right) is right
    assert (pay.mode, pay.settle_time) == ("reconcile", timedelta(minutes=5))

    async def another(a: str, b: int) -> DidNotHappen:
        return DidNotHappen()

    refused(lambda: pay.reconcile(another), what="is declared twice", fix="keep one")


def test_a_declared_reconcile_takes_precedence_over_if_uncertain() -> None:
    @activity(key="k/{a}", if_uncertain=resend(remembered_for=timedelta(hours=1)), no_undo="no")
    async def pay(a: str) -> int:
        return 1

    assert pay.mode == "resend"

    @pay.reconcile
    async def find(a: str) -> Happened[int]:
        return Happened(1)

    assert pay.mode == "reconcile"
    assert pay.if_uncertain == resend(remembered_for=timedelta(hours=1))


@pytest.mark.req("EFF-3")
def test_if_uncertain_reconcile_needs_a_function_that_asks_the_receiver() -> None:
    @activity(key="k/{a}", if_uncertain="reconcile", no_undo="a test")
    async def pay(a: str) -> int:
        return 1

    refused(pay.check, what='has if_uncertain="reconcile"', fix="@pay.reconcile")

    @pay.reconcile
    async def find(a: str) -> Happened[int] | DidNotHappen:
        return DidNotHappen()

    pay.check()
    assert pay.mode == "reconcile"

    @activity(key="k/{a}")
    async def book(a: str) -> int:
        return 1

    async def unbook(done: int, a: str) -> None: ...

    refused(lambda: book.undo(if_uncertain="reconcile")(unbook), what='has if_uncertain="reconcile"', fix="reconcile=")


def test_a_lookup_needs_no_parentheses() -> None:
    @lookup
    async def price(sku: str) -> int:
        return len(sku)

    @lookup
    def weight(sku: str) -> int:
        return len(sku)

    @lookup(durable=True)
    async def model(text: str) -> str:
        return text

    assert [(each.kind, each.is_async, each.durable) for each in (price, weight, model)] == [
        ("lookup", True, False), ("lookup", False, False), ("lookup", True, True)
    ]  # fmt: skip
    assert price.where.startswith("tests/flow/test_definition.py:")
