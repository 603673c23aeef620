"""Input and outcome of workflows, approval rules, and the names that `outlast` exports."""

import asyncio
import subprocess
import sys
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

import outlast
from outlast import Context, Decision, Workflow, role
from outlast.errors import DefinitionError, InvalidInput
from outlast.flow import Rule, workflows_of
from outlast.flow.approval_rule import EVERY_ROLE
from outlast.flow.reach import reach_of


class State(BaseModel):
    category: str
    cents: int
    rounds: int = 0


class Start(BaseModel):
    category: str
    cents: int = 5


class Unfit(BaseModel):
    category: str


SERVING_PACKAGES = ("cli", "engine", "runtime", "store", "testing")


def make(name: str = "w", **options: Any) -> Workflow[State]:
    made = Workflow(name, state=State, **options)

    @made.node(start=True)
    async def only(ctx: Context[State]) -> None: ...

    return made


def test_without_a_model_the_input_is_the_required_fields_of_the_state() -> None:
    made = make()
    assert made.first_state({"category": "x", "cents": 1}) == State(category="x", cents=1)
    assert made.first_state(b'{"category": "x", "cents": 1}') == State(category="x", cents=1)
    assert set(made.input_schema()["properties"]) == {"category", "cents"}


def test_bad_input_is_refused_with_every_problem_at_once() -> None:
    with pytest.raises(InvalidInput) as error:
        make().first_state({"rounds": 7, "centz": 1, "cents": "x"})
    assert dict(error.value.problems).keys() == {"rounds", "centz", "category", "cents"}
    assert error.value.fix == "give only category, cents"
    with pytest.raises(InvalidInput, match="Invalid JSON"):
        make().first_state(b"{")
    with pytest.raises(InvalidInput):
        make().first_state(b"[1]")


@pytest.mark.parametrize("options", [{}, {"input": Start}], ids=["state", "input"])
@pytest.mark.parametrize("found", [{"cents": 1}, {"category": "x", "cents": "many"}, b"{}", {"extra": 1}], ids=str)
def test_problems_of_an_input_name_the_input(options: dict[str, Any], found: Any) -> None:
    with pytest.raises(InvalidInput, match='the input of workflow "w" is not valid') as error:
        make(**options).first_state(found)
    assert "state" not in str(error.value)
    assert "category" in error.value.fix, "what it takes is said"


def test_a_model_for_the_input_becomes_the_state() -> None:
    assert make(input=Start).first_state({"category": "x"}) == State(category="x", cents=5)
    with pytest.raises(InvalidInput, match="category: Field required"):
        make(input=Start).first_state({})
    with pytest.raises(DefinitionError, match="does not make a state"):
        make(input=Unfit).first_state({"category": "x"})


def test_the_outcome_is_the_last_state_or_the_result_of_a_function() -> None:
    state = State(category="x", cents=1)
    assert make().outcome_of(state) == b'{"category":"x","cents":1,"rounds":0}'
    assert make(outcome=lambda s: {"paid": s.cents}).outcome_of(state) == b'{"paid":1}'


def test_the_workflows_of_a_module_are_found_and_checked() -> None:
    module = ModuleType("flows")
    one, two, other = make("one"), make("one", version=2), make("one")
    vars(module).update(one=one, again=one, two=two, text="x")
    assert workflows_of(module) == [one, two]
    assert (one.lane, two.lane) == ("one@1", "one@2")
    vars(module)["other"] = other
    with pytest.raises(DefinitionError, match='workflow "one" is declared more than once'):
        workflows_of(module)
    vars(module)["other"] = Workflow("empty", state=State)
    with pytest.raises(DefinitionError, match="has no node"):
        workflows_of(module)


# --- people --------------------------------------------------------------------------------
NAMES = st.sampled_from(["a", "b", "c", "d"])
RULES = st.recursive(
    NAMES.map(role),
    lambda inner: st.tuples(inner, inner, st.booleans()).map(lambda t: t[0] | t[1] if t[2] else t[0] & t[1]),
    max_leaves=5,
)


@pytest.mark.req("GATE-2")
def test_roles_and_names_that_may_decide() -> None:
    rule = role("finance") | role("lead") & role("buyer")
    assert rule.allows({"finance"})
    assert rule.allows(["lead", "buyer", "x"])
    assert not rule.allows({"lead"})
    assert not rule.allows(())
    assert rule.allows(EVERY_ROLE)
    assert str(rule) == "buyer & lead | finance"


@given(RULES, st.sets(NAMES))
def test_a_rule_is_read_back_from_its_text(rule: Rule, roles: set[str]) -> None:
    again = Rule.parse(str(rule))
    assert again == rule
    assert again.allows(roles) == rule.allows(roles)


@given(RULES, RULES, st.sets(NAMES))
def test_rules_combine(left: Rule, right: Rule, roles: set[str]) -> None:
    assert (left | right).allows(roles) == (left.allows(roles) or right.allows(roles))
    assert (left & right).allows(roles) == (left.allows(roles) and right.allows(roles))


@pytest.mark.parametrize("text", ["", "a |", "a & & b", "(a | b) & c", "a b"])
def test_text_that_is_no_rule_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="cannot name a role"):
        Rule.parse(text)


def test_only_an_approved_decision_has_a_plan() -> None:
    assert not Decision[Any]("rejected", "no", "ana", None).approved


# --- the exports of `outlast` ---------------------------------------------------------------
EXPORTS = """Allow Cancel Context Decision Deny DidNotHappen Fail Happened NeedsApproval Plan RateLimit
    Refusal Refused Retry RetryLater Unknown Workflow activity lookup resend role this_call"""


def test_outlast_exports_these_names_and_no_others() -> None:
    pinned = set(EXPORTS.split())
    assert pinned <= set(outlast.__all__)
    assert set(outlast.__all__) - pinned <= {"Operations", "asgi", "open"}
    for name in pinned:
        assert getattr(outlast, name).__doc__


def test_importing_an_export_loads_no_package_that_serves() -> None:
    late = ("click", "httpx2", "rich", "sqlite3", "starlette", "uvicorn", *(f"outlast.{n}" for n in SERVING_PACKAGES))
    code = (
        "import sys; from outlast import Workflow, activity, Context; "
        f"print([name for name in {late!r} if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


# --- the waits that a node mentions ---------------------------------------------------------
async def sleepy(ctx: Context[State]) -> None:
    await asyncio.sleep(0)
    await ctx.sleep("12h")
    await ctx.sleep(until=ctx.now(), name="noon")
    await ctx.collect("bids", State, timeout="1h")


async def named_at_run_time(ctx: Context[State]) -> None:
    await ctx.sleep("12h", name=f"{ctx.visit}")


def test_a_node_mentions_its_waits_and_not_the_sleeps_of_asyncio() -> None:
    reach = reach_of(sleepy)
    assert reach.waits == {"sleep": "sleep", "noon": "sleep", "bids": "collect"} and not reach.open
    assert reach_of(named_at_run_time).open
