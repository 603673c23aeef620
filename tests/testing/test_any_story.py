"""Stories that Hypothesis makes up: planted faults are found and printed as a test, and healthy workflows pass."""

import subprocess
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal

import hypothesis
import pytest
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from outlast import Context, Workflow, activity, lookup
from outlast.core.machine import EffectStatus
from outlast.testing import Story, any_story, retell
from outlast.testing.story import Broken, Script, StoryOptions, check_engine, open_story
from outlast.testing.story_search import STEPS, StoryReport, sources_of, tell
from outlast.testing.story_signals import signals_of
from outlast.testing.story_values import fits, values_of
from outlast.testing.story_world import AnswerKind
from tests import forked
from tests.crash.refund import refund
from tests.mutants import remove
from tests.testing.planted.faults import PLANTED, Planted, module_of

pytest_plugins = ["pytester"]

SEEDS = {  # a seed that finds the fault in few stories, because the gate has little time
    "double refund after a late signal": 0,
    "lost bid": 0,
    "wrong total": 0,
    "undo skipped": 0,
    "approval used after its expiry": 0,
}


def stories_of(workflow: Workflow[Any], given: Any, *checks: Any, seed: int = 0, stories: int = 50) -> StoryReport:
    sources = sources_of(StoryOptions(workflow, checks), given, {}, STEPS)
    return tell(sources, stories=stories, seed=seed, shrinks=0)


@pytest.mark.parametrize("planted", PLANTED, ids=[each.name for each in PLANTED])
def test_a_planted_fault_is_found(planted: Planted, tmp_path: Path) -> None:
    """A slice of `python -m tests.testing.planted`."""
    workflow = vars(module_of(planted, tmp_path, broken=True))[planted.workflow]
    report = stories_of(workflow, planted.given, planted.holds, seed=SEEDS[planted.name], stories=500)
    assert isinstance(report.error, AssertionError) and not isinstance(report.error, Broken)


@pytest.mark.parametrize("planted", PLANTED, ids=[each.name for each in PLANTED])
def test_without_the_fault_nothing_is_reported(planted: Planted, tmp_path: Path) -> None:
    workflow = vars(module_of(planted, tmp_path, broken=False))[planted.workflow]
    report = stories_of(workflow, planted.given, planted.holds, stories=30)
    assert (report.error, report.lines) == (None, [])
    assert report.stories >= 30


@pytest.mark.parametrize(
    ("removal", "missed"),
    [
        ("stories_without_signals", "lost bid"),
        ("stories_without_refusals", "undo skipped"),
        ("stories_without_time", "approval used after its expiry"),
    ],
)
def test_without_a_part_of_the_machine_a_fault_is_missed(
    removal: str, missed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = next(each for each in PLANTED if each.name == missed)
    workflow = vars(module_of(planted, tmp_path, broken=True))[planted.workflow]
    remove(removal, monkeypatch)
    report = stories_of(workflow, planted.given, planted.holds, seed=SEEDS[missed], stories=300)
    assert (report.error, report.lines) == (None, [])


# --- the printed test ------------------------------------------------------------------------------
SHOP = """
from pydantic import BaseModel

from outlast import Context, Refused, Workflow, activity
from outlast.testing import Story, any_story


class Order(BaseModel):
    order: str
    total: int = 0


orders = Workflow("order", state=Order)


@activity(key="charge/{order}/{sku}", once_per="run", no_undo="by hand")
async def charge(order: str, sku: str, cents: int) -> str:
    return "charged"


@orders.node(start=True)
async def pay(ctx: Context[Order]) -> None:
    await ctx.do(charge, ctx.state.order, "desk", 70)
    await ctx.sleep("3d")
    try:
        await ctx.do(charge, ctx.state.order, "lamp", 7)
    except Refused:
        pass
    ctx.state.total = 77


@any_story(orders, {"order": "o-1"}, stories=400)
def test_the_total(story: Story) -> None:
    if story.status == "completed":
        charged = sum(call.arguments["cents"] for call in story.executed("charge"))
        assert story.outcome["total"] == charged
"""
PLAIN = ("-p", "no:cacheprovider", "-p", "no:schemathesis", "-p", "no:anyio")


def run(pytester: pytest.Pytester, *args: str) -> str:
    done = forked.run("pytest", *PLAIN, *args, cwd=pytester.path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return str(done.stdout.decode())


@pytest.mark.req("TEST-2")
def test_the_shortest_story_is_printed_as_a_test_that_fails_alone(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_shop=SHOP)
    output = run(pytester, "test_shop.py")
    printed = output.partition("as a test, for a file beside this one:\n")[2].partition("\n=====")[0]
    acts = [line.strip() for line in printed.splitlines() if line.strip().startswith("story.")]
    assert acts == [
        "story.start({'order': 'o-1'})",
        "story.answers('charge/o-1/lamp', 'refuses')",
        'story.wait("3d")',
    ], output
    pytester.makepyfile(test_alone=printed)
    alone = run(pytester, "test_alone.py")
    assert "1 failed" in alone and "assert story.outcome" in alone, alone
    pytester.makepyfile(test_shop=SHOP.replace("        pass\n", "        ctx.state.total = 70\n        return\n"))
    assert "1 passed" in run(pytester, "test_alone.py")


def test_options_of_pytest_choose_how_many_stories_and_which(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_shop=SHOP)
    assert "1 passed" in run(pytester, "test_shop.py", "--stories=1", "--story-seed=3")


# --- what a story found in the engine --------------------------------------------------------------
LATE_THEN_REFUSED: tuple[AnswerKind, ...] = ("late", "unknown", "refuses", "refuses")


def test_a_refusal_before_the_settle_time_is_not_the_outcome_of_a_late_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first request is late, its worker dies, and a repetition is refused before the first one is executed."""
    asked = StoryOptions(refund, (), {"price": 4_200})

    def played(point: int) -> tuple[list[str], list[str]]:
        """Return where the process died, and what the ledger says of the call in the end."""
        with open_story(asked, Script(asked)) as story:
            for kind in LATE_THEN_REFUSED:
                story.answers("tell/o-7", kind)
            story.crash(point)
            story.start({"order_id": "o-7"})
            story.wait("1h")
            return story._world.died_at, [each.status for each in story.effects if each.key == "tell/o-7"]

    point = next(point for point in range(1, 40) if played(point)[0] == ["call:flight run call tell/o-7"])
    assert played(point)[1] == ["done"]
    remove("early_refusals_count", monkeypatch)
    with pytest.raises(Broken, match="was refused, and a receiver has executed it"):
        played(point)


# --- what a story can do -----------------------------------------------------------------------------
class Claim(BaseModel):
    n: int = 0
    price: int = 0


class Word(BaseModel):
    text: str


WORD = "word"
claims = Workflow("story-claims", state=Claim)


@lookup(key="price/{n}")
async def price(n: int) -> int:
    raise AssertionError("no lookup is called")


@activity(name="pay_in", key="pay/{n}", once_per="run")
async def pay(n: int, cents: int) -> int:
    raise AssertionError("no activity is called")


@pay.undo
async def pay_back(done: int, n: int, cents: int) -> None:
    raise AssertionError("no undo is called")


@claims.node(start=True)
async def first(ctx: Context[Claim]) -> Literal["second"]:
    ctx.state.price = await ctx.do(price, ctx.state.n)
    await ctx.do(pay, ctx.state.n, ctx.state.price)
    return "second"


@claims.node
async def second(ctx: Context[Claim]) -> None:
    await ctx.receive(WORD, Word)


def by_hand(*checks: Any, answers: Any = None) -> Any:
    asked = StoryOptions(claims, checks, answers or {"price": 5, "pay_in": 1})
    return open_story(asked, Script(asked))


@pytest.mark.parametrize("point", range(1, 30))
def test_a_crash_at_any_point_repeats_no_call(point: int) -> None:
    with by_hand() as story:
        story.crash(point)
        story.start({"n": 1})
        story.wait("1h")
        for entry in story.flagged():
            story.resolve(entry.key)
        story.signal(WORD, {"text": "go"})
        story.wait("1h")
        assert story.status == "completed" and len(story.executed("pay_in")) == 1


def test_a_crash_kills_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    processes = {}
    for point in (0, 5):
        with by_hand() as story:
            if point:
                story.crash(point)
            story.start({"n": 1})
            processes[point] = story._world.processes
    assert processes == {0: 1, 5: 2}


@pytest.mark.parametrize(
    ("kind", "status", "executed"),
    [("lost", "uncertain", 1), ("unknown", "uncertain", 0), ("refuses", "refused", 0), ("late", "intended", 0)],
)
def test_answers_of_the_world(kind: Any, status: str, executed: int) -> None:
    with by_hand() as story:
        story.answers("pay/1", kind)
        story.start({"n": 1})
        (effect,) = story.effects
        assert (effect.status, len(story.executed("pay_in"))) == (status, executed)


def test_a_late_request_arrives_although_its_process_has_died() -> None:
    with by_hand() as story:
        story.answers("pay/1", "late")
        story.crash(11)
        story.start({"n": 1})
        assert story._world.died_at == ["call:flight run call pay/1"]
        assert not story.executed("pay_in")
        story.wait("1h")
        assert len(story.executed("pay_in")) == 1


def test_a_failing_lookup_is_asked_again() -> None:
    with by_hand() as story:
        story.answers("price/1", "fails")
        story.start({"n": 1})
        assert not story.executed()
        story.wait("1h")
        assert story.executed("pay_in")[0].arguments == {"n": 1, "cents": 5}


def test_a_cancelled_run_is_undone() -> None:
    with by_hand() as story:
        story.start({"n": 1})
        story.cancel()
        assert (story.status, story.ended, len(story.undone("pay_in"))) == ("cancelled", True, 1)


def test_facts_of_a_story() -> None:
    with by_hand() as story:
        story.start({"n": 1})
        before = story.now
        story.wait("36h")
        story.signal(WORD, Word(text="go"))
        assert story.now - before == timedelta(hours=36)
        assert (story.node, story.state, story.outcome) == ("second", Claim(n=1, price=5), {"n": 1, "price": 5})
        (signal,) = story.signals
        assert (signal.payload, signal.taken, story.reason, story.attention) == ({"text": "go"}, True, "", ())


def test_a_check_is_called_after_each_act() -> None:
    seen: list[str] = []
    with by_hand(lambda story: seen.append(story.status)) as story:
        story.start({"n": 1})
        story.wait("1h")
        story.signal(WORD, {"text": "go"})
    assert seen == ["waiting", "waiting", "completed"]


# --- the engine's own invariants ---------------------------------------------------------------------
def test_an_effect_that_happens_twice_is_reported() -> None:
    with by_hand() as story:
        story.start({"n": 1})
        story._world.executions.append(story._world.executions[0])
        with pytest.raises(Broken, match="pay/1 was executed twice"):
            story.wait("1h")


def test_an_ended_run_with_an_open_effect_is_reported() -> None:
    with by_hand() as story:
        story.start({"n": 1})
        story.cancel()
        world, (row,) = story._world, story._facts.effects
        assert world.run is not None
        with pytest.raises(Broken, match=r"ended cancelled, and pay/1 is uncertain"):
            check_engine(world, [row._replace(status=EffectStatus.UNCERTAIN)], world.run)


@pytest.mark.parametrize(
    ("status", "says"), [(EffectStatus.DONE, "no receiver has"), (EffectStatus.REFUSED, "a receiver has")]
)
def test_a_ledger_that_contradicts_the_record_is_reported(status: EffectStatus, says: str) -> None:
    with by_hand() as story:
        story.start({"n": 1})
        world, (row,) = story._world, story._facts.effects
        assert world.run is not None
        if status is EffectStatus.DONE:
            world.executions.clear()
        with pytest.raises(Broken, match=says):
            check_engine(world, [row._replace(status=status)], world.run)


random_keys = Workflow("story-random", state=Claim)
calls: list[int] = []


@random_keys.node(start=True)
async def differs(ctx: Context[Claim]) -> None:
    calls.append(1)
    await ctx.do(pay, len(calls), 1)
    await ctx.sleep("1h")


def test_a_node_that_differs_between_executions_is_reported() -> None:
    calls.clear()
    asked = StoryOptions(random_keys, (), {"pay_in": 1})
    with open_story(asked, Script(asked)) as story:
        story.start({"n": 1})
        with pytest.raises(Broken, match="node_diverged"):
            story.wait("1h")


def test_a_story_that_differs_when_it_is_played_again_is_called_so(pytester: pytest.Pytester) -> None:
    text = SHOP.replace(
        "    await ctx.sleep", "    CALLS.append(1)\n    assert len(CALLS) != 5\n    await ctx.sleep", 1
    )
    text = text.replace("@orders.node", "CALLS = []\n\n\n@orders.node").replace(
        '    if story.status == "completed":', '    assert "exception" not in story.attention\n    if not story:'
    )
    pytester.makepyfile(test_shop=text.replace("stories=400", "stories=20"))
    assert "one story ends differently when it is played again" in run(pytester, "test_shop.py")


# --- values and signals -------------------------------------------------------------------------------
def test_signals_are_read_from_the_source() -> None:
    assert signals_of(claims) == {"word": Word}


class Item(BaseModel):
    sku: Literal["desk", "lamp"]
    count: int = Field(gt=0, lt=4)
    price: Decimal | None = None
    tags: list[str] = []


HINTS: list[Any] = [
    int, str, bool, float, Decimal, None, int | None, list[int], dict[str, int], tuple[int, str], Literal["a", 3],
    Item, list[Item], timedelta, set[str], Annotated[int, Field(ge=5, le=6)], Annotated[int, Field(le=-3)],
    Annotated[str, Field(min_length=3, max_length=4)], Annotated[str, Field(pattern="^[a-f]{2}$")],
]  # fmt: skip


@pytest.mark.parametrize("hint", HINTS, ids=str)
def test_values_fit_their_type(hint: Any) -> None:
    @hypothesis.seed(0)
    @hypothesis.settings(max_examples=20, database=None, deadline=None)
    @hypothesis.given(values_of(hint))
    def each(value: Any) -> None:
        assert fits(hint, value)

    each()


def test_the_input_is_drawn_from_the_types() -> None:
    seen: set[int] = set()
    stories_of(claims, None, lambda story: seen.add(story.state.n), stories=30)
    assert len(seen) > 1


def test_a_strategy_draws_answers() -> None:
    seen: set[Any] = set()

    def check(story: Story) -> None:
        seen.update(call.response for call in story.executed("pay_in"))

    sources = sources_of(StoryOptions(claims, (check,), {"pay_in": st.sampled_from((70, 80))}), {"n": 1}, {}, STEPS)
    tell(sources, stories=40, seed=0)
    assert seen == {70, 80}


# --- mistakes of the author ---------------------------------------------------------------------------
def test_mistakes_are_named() -> None:
    async def later(story: Story) -> None: ...

    def nothing() -> None: ...

    with pytest.raises(TypeError, match="is async"):
        any_story(claims)(later)
    with pytest.raises(TypeError, match="takes no parameter"):
        any_story(claims)(nothing)
    with pytest.raises(TypeError, match="is not decorated"), retell(nothing):
        pass
    with pytest.raises(Exception, match="stories"):
        any_story(claims, stories=0)
