"""Input and outcome of workflows, approval rules, and the names that `outlast` exports."""

import asyncio
import json
import subprocess
import sys
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from types import ModuleType
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AliasChoices, AliasPath, BaseModel, Field, computed_field

import outlast
from outlast import Context, Decision, Workflow, activity, role
from outlast.core.approvals import EVERY_ROLE
from outlast.core.limits import OBJECTIVE_CHARS_MAX
from outlast.errors import DefinitionError, InvalidInput, LimitExceeded, NotStorable
from outlast.flow import Rule, workflows_of
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


def test_without_a_model_the_input_is_the_fields_of_the_state() -> None:
    made = make()
    assert made.first_state({"category": "x", "cents": 1}) == State(category="x", cents=1)
    assert made.first_state(b'{"category": "x", "cents": 1, "rounds": 7}') == State(category="x", cents=1, rounds=7)
    assert set(made.input_schema()["properties"]) == {"category", "cents", "rounds"}
    assert made.input_schema()["required"] == ["category", "cents"]


def test_bad_input_is_refused_with_every_problem_at_once() -> None:
    with pytest.raises(InvalidInput) as error:
        make().first_state({"rounds": "x", "centz": 1, "cents": "x"})
    assert dict(error.value.problems).keys() == {"rounds", "centz", "category", "cents"}
    assert error.value.fix == "it takes category, cents and optionally rounds"
    with pytest.raises(InvalidInput, match="Invalid JSON"):
        make().first_state(b"{")
    with pytest.raises(InvalidInput):
        make().first_state(b"[1]")


class Aliased(BaseModel):
    plain: int = 0
    by_alias: int = Field(default=0, alias="byAlias")
    by_choice: int = Field(default=0, validation_alias=AliasChoices("one", AliasPath("two", "deep")))


def test_a_field_is_given_under_its_alias_alone_unless_the_model_takes_its_name_too() -> None:
    made = Workflow("aliased", state=Aliased)
    assert made.first_state({"plain": 1, "byAlias": 2, "two": {"deep": 3}}).model_dump() == {
        "plain": 1,
        "by_alias": 2,
        "by_choice": 3,
    }
    with pytest.raises(InvalidInput) as error:
        made.first_state({"by_alias": 2, "by_choice": 3})
    assert [name for name, _ in error.value.problems] == ["by_alias", "by_choice"]
    named = Workflow("named", state=type("Named", (Aliased,), {"model_config": {"populate_by_name": True}}))
    assert named.first_state({"by_alias": 2, "one": 3}).model_dump() == {"plain": 0, "by_alias": 2, "by_choice": 3}


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


class Wanted(BaseModel):
    category: str
    items: list[str] = []
    ratio: float = 1


class Progress(Wanted):
    rounds: int = 0


def keyed(key: Any, **options: Any) -> Workflow[Progress]:
    return Workflow("w", state=Progress, key=key, **options)


@pytest.mark.req("RUN-4")
@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("rfq/{category}", "rfq/a%20b"),
        (lambda given: f"{given.category}/{len(given.items)}", "a%20b/2"),
        (lambda given: "100%\n\ud800ä", "100%25%0A\\ud800%C3%A4"),
        (None, ""),
    ],
    ids=["template", "function", "any text", "none"],
)
def test_the_start_key_is_derived_from_the_validated_input(key: Any, expected: str) -> None:
    assert keyed(key, input=Wanted).begin({"category": "a b", "items": ["x", "y"]}).key == expected


@pytest.mark.req("RUN-4")
@pytest.mark.parametrize(
    ("key", "options", "message", "fix"),
    [
        ("rfq/{deadline}", {"input": Wanted}, "names {deadline}, which is no field", "its fields: category, items"),
        ("rfq/{ratio}", {"input": Wanted}, "neither text, a whole number", "a field of type str"),
        ("rfq/{rounds}", {"input": Wanted}, "names {rounds}, which is no field", "its fields: category"),
        ("rfq/{category.name}", {}, "looks into {category.name}", "as a field"),
        ("", {}, "is empty", "business identity"),
        (5, {}, "is 5", "template of fields"),
    ],
)
def test_a_start_key_that_cannot_work_is_refused(key: Any, options: Any, message: str, fix: str) -> None:
    with pytest.raises(DefinitionError) as error:
        keyed(key, **options)
    assert message in error.value.what and 'of workflow "w"' in error.value.what
    assert fix in error.value.fix and error.value.where.startswith("tests/flow/test_workflow.py:")


class Level(StrEnum):
    HIGH = "high"


class Incident(BaseModel):
    incident: str
    level: Level = Level.HIGH
    tickets: list[int] = []


def purpose(objective: Any, **given: Any) -> str:
    return Workflow("w", state=Incident, objective=objective).begin({"incident": "INC-42", **given}).objective


@pytest.mark.req("OBS-4")
def test_the_objective_is_rendered_from_the_input_on_one_line() -> None:
    assert purpose("Work incident {incident} ({level}, {tickets}, {{x}})", tickets=[1]) == (
        "Work incident INC-42 (high, [1], {x})"
    )
    assert purpose(lambda given: given.incident.lower()) == "inc-42"
    assert purpose("") == purpose(lambda given: "") == ""
    assert purpose("{incident}", incident=" a\n\n b\tc\0\u202e") == "a b c[U+0000][U+202E]"
    assert purpose(lambda given: "\ud800") == "[U+D800]"
    assert purpose("{incident}", incident="x" * OBJECTIVE_CHARS_MAX) == "x" * OBJECTIVE_CHARS_MAX
    cut = purpose("{incident}", incident="x" * (OBJECTIVE_CHARS_MAX + 1))
    assert (len(cut), cut[-2:]) == (OBJECTIVE_CHARS_MAX, "x…")


@pytest.mark.req("OBS-4")
@pytest.mark.parametrize(
    ("objective", "message"),
    [
        ("Work {ticket}", "has {ticket}"),
        ("Work {incident.name}", "has {incident.name}"),
        ("Work {incident!r}", "has {incident}"),
        ("Work {}", "has {}"),
        ("Work {incident", "cannot be read"),
        (5, "is 5"),
        (lambda given: given.nothing, "raised AttributeError"),
        (lambda given: 5, "returned 5"),
    ],
)
def test_an_objective_that_cannot_be_rendered_is_refused(objective: Any, message: str) -> None:
    with pytest.raises(DefinitionError) as error:
        purpose(objective)
    assert error.value.what.startswith(f'objective= of workflow "w" {message}')


@pytest.mark.req("RUN-4")
def test_a_function_that_gives_no_usable_start_key_is_refused() -> None:
    count = iter(range(9))
    for key, message in (
        (lambda given: given.nothing, "raised AttributeError"),
        (lambda given: 7, "returned 7"),
        (lambda given: "", "returned ''"),
        (lambda given: f"{next(count)}", "returned '0' and '1' for one input"),
    ):
        with pytest.raises(DefinitionError, match=message):
            keyed(key).begin({"category": "x"})
    with pytest.raises(LimitExceeded, match="501 bytes"):
        keyed(lambda given: "x" * 501).begin({"category": "x"})


def test_the_outcome_is_the_last_state_or_the_result_of_a_function() -> None:
    state = State(category="x", cents=1)
    assert make().outcome_of(state) == b'{"category":"x","cents":1,"rounds":0}'
    assert make(outcome=lambda s: {"paid": s.cents}).outcome_of(state) == b'{"paid":1}'


# --- for clients ---------------------------------------------------------------------------
class Basket(BaseModel):
    owner: str
    items: list[str] = []
    note: str = Field(default="", alias="remark")
    at: datetime | None = None
    price: Any = 0

    @computed_field
    def size(self) -> int:
        return len(self.items)


BASKETS = Workflow("basket", state=Basket)


def test_an_input_is_encoded_by_alias_and_without_the_defaults() -> None:
    noon = datetime(2026, 1, 2, 12, tzinfo=UTC)
    assert BASKETS.encode_input(Basket(owner="ana")) == b'{"owner":"ana"}'
    assert BASKETS.encode_input(Basket(owner="ana", remark="")) == b'{"owner":"ana","remark":""}', "it was set"
    full = Basket(owner="ana", remark="x", at=noon, items=["a"])
    assert BASKETS.first_state(BASKETS.encode_input(full)) == full
    assert BASKETS.encode_input({"owner": 1, "other": [None]}) == b'{"owner":1,"other":[null]}', "checked at the start"


def test_a_default_that_was_changed_in_place_is_not_lost() -> None:
    given = Basket(owner="ana")
    given.items.append("a")
    assert BASKETS.encode_input(given) == b'{"owner":"ana","items":["a"]}'


def test_an_input_without_a_json_form_or_of_another_model_is_refused() -> None:
    with pytest.raises(NotStorable, match=r"(?s)the input of .* cannot be stored.*price is a object"):
        BASKETS.encode_input(Basket(owner="ana", price=object()))
    with pytest.raises(NotStorable, match="price is nan"):
        BASKETS.encode_input(Basket(owner="ana", price=float("nan")))
    with pytest.raises(NotStorable, match="owner is a object"):
        BASKETS.encode_input({"owner": object()})
    with pytest.raises(InvalidInput, match=r"(?s)a Start, not a Basket.*it takes owner and optionally items"):
        BASKETS.encode_input(cast(Any, Start(category="x")))
    wanted = make(input=Start)
    assert wanted.encode_input(Start(category="x")) == b'{"category":"x"}'
    with pytest.raises(InvalidInput, match="a State, not a Start"):
        wanted.encode_input(cast(Any, State(category="x", cents=1)))


def outcome_of_state(state: State) -> "list[Start]":
    return [Start(category=state.category)]


def test_an_outcome_is_read_back_by_its_type() -> None:
    state = State(category="x", cents=1)

    def read(made: Workflow[Any, Any, Any]) -> Any:
        return made.decode_outcome(json.loads(made.outcome_of(state)))

    assert read(make()) == state
    assert read(make(outcome=outcome_of_state)) == [Start(category="x")]
    assert read(make(outcome=lambda s: {"paid": s.cents})) == {"paid": 1}, "without an annotation: plain JSON"
    assert read(make(outcome=partial(outcome_of_state))) == [{"category": "x", "cents": 5}]

    class Local(BaseModel):
        cents: int

    def local(state: State) -> "Local | None":
        return Local(cents=state.cents)

    assert read(Workflow("local", state=State, outcome=local)) == Local(cents=1)
    basket = Basket(owner="ana", remark="x", items=["a"])
    assert BASKETS.decode_outcome(json.loads(BASKETS.outcome_of(basket))) == basket, "also with an alias"


def test_an_outcome_that_does_not_fit_its_type_is_refused() -> None:
    with pytest.raises(NotStorable, match=r"the outcome of workflow .* does not fit"):
        make().decode_outcome({"category": "x"})

    def unreadable(state: State) -> "Nowhere":  # type: ignore[name-defined] # noqa: F821
        raise NotImplementedError

    with pytest.raises(DefinitionError, match="annotation that cannot be read"):
        make(outcome=unreadable).decode_outcome(1)


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
    assert rule.allows({"finance"}, "")
    assert rule.allows(["lead", "buyer", "x"], "")
    assert not rule.allows({"lead"}, "")
    assert not rule.allows((), "")
    assert rule.allows(EVERY_ROLE, "")
    assert str(rule) == "buyer & lead | finance"


@given(RULES, st.sets(NAMES))
def test_a_rule_is_read_back_from_its_text(rule: Rule, roles: set[str]) -> None:
    again = Rule.parse(str(rule))
    assert again == rule
    assert again.allows(roles, "") == rule.allows(roles, "")


@given(RULES, RULES, st.sets(NAMES))
def test_rules_combine(left: Rule, right: Rule, roles: set[str]) -> None:
    assert (left | right).allows(roles, "") == (left.allows(roles, "") or right.allows(roles, ""))
    assert (left & right).allows(roles, "") == (left.allows(roles, "") and right.allows(roles, ""))


@pytest.mark.parametrize("text", ["", "a |", "a & & b", "(a | b) & c", "a b"])
def test_text_that_is_no_rule_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="cannot name a role"):
        Rule.parse(text)


def test_only_an_approved_decision_has_a_plan() -> None:
    assert not Decision[Any]("rejected", "no", "ana", None).approved


# --- the exports of `outlast` ---------------------------------------------------------------
EXPORTS = """Allow Amount Budget Cancel ChildFailed ChildHandle Client Context Decision Deny DidNotHappen Fail FailedRun
    Failures FanOut Happened NeedsApproval ParentHandle Plan RateLimit Refusal Refused Retry RetryLater RunHandle
    StatusLabels SyncClient Unknown Workflow activity business_days connect connect_sync lookup person resend role
    this_call workflow"""


@pytest.mark.whole
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


@activity(key="listed/{what}", no_undo="a test")
async def listed(what: str) -> None:
    pass


TOOLS = [listed]


async def uses_a_list(ctx: Context[State]) -> None:
    await ctx.allowed(TOOLS)


def test_a_node_mentions_the_activities_in_a_list() -> None:
    assert reach_of(uses_a_list).activities == ("listed",)
