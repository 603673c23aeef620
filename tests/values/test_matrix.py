"""Types × places: a run gets the value that was given, in this process and in others, or its write is refused (CKP-8).

`TEST_SEED=all scripts/test tests/values` gives each type to each place; a session draws some of them. The processes
have different hash seeds, so that a set is iterated in another order in each.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest
from pydantic import BaseModel, create_model

from outlast import Context, Workflow, activity, lookup, role, workflow
from outlast.errors import InvalidInput, NotStorable, OutlastError
from outlast.testing import App
from tests.core.test_round_trip import classes
from tests.slices import ALL, params, seed
from tests.values.cases import REFUSED, SAME, Case
from tests.values.process import GIVEN, wanted

pytestmark = pytest.mark.req("CKP-8")
ROOT = Path(__file__).parents[2]
SEEDS = ("1", "2", "3") if seed() != ALL else tuple("123456789")


class Seen(NamedTuple):
    """Result of a run in one place: the value that it was given back, or the text of the refusal."""

    value: Any
    refused: str = ""


def _in_app(flow: Workflow[Any, Any, Any], seen: list[Any], *, approve: bool = False) -> Seen:
    """Run a workflow and return what it has met."""
    app = App((flow,))
    try:
        run = app.start(flow, {})
        if approve and not run.now.attention:
            run.approve()
        found = run.now
        if found.attention:
            assert [each.reason for each in found.attention] == ["exception"]
            return Seen(None, found.attention[0].detail)
        assert run.status == "completed", found
        return Seen(seen[0])
    finally:
        app.close()


def _model(case: Case) -> type[BaseModel]:
    return create_model("It", it=(Any if case.type is Any else case.type | None, None))


def in_state(case: Case) -> Seen:
    seen: list[Any] = []
    model = _model(case)
    flow = Workflow("state", state=model, outcome=lambda state: None)

    async def first(ctx: Any) -> Literal["second"]:
        ctx.state.it = case.value
        return "second"

    async def second(ctx: Any) -> None:
        seen.append(ctx.state.it)

    for start, node in ((True, first), (False, second)):
        node.__annotations__["ctx"] = Context[model]
        flow.node(start=start)(node)
    return _in_app(flow, seen)


def in_answer(case: Case) -> Seen:
    async def buy(n: int) -> Any:
        return case.value

    buy.__annotations__["return"] = case.type
    return _in_call(activity(key="buy/{n}", no_undo="sent")(buy))


def in_answer_of_lookup(case: Case) -> Seen:
    async def read(n: int) -> Any:
        return case.value

    read.__annotations__["return"] = case.type
    return _in_call(lookup(read))


def _in_call(call: Any) -> Seen:
    seen: list[Any] = []

    @workflow
    async def answers(ctx: Context) -> None:
        seen.append(await ctx.do(call, 1))

    return _in_app(answers, seen)


def _taking(case: Case, seen: list[Any]) -> Any:
    async def take(n: int, it: Any) -> None:
        seen.append(it)

    take.__annotations__["it"] = case.type
    return activity(key="take/{n}", no_undo="sent")(take)


def in_arguments(case: Case) -> Seen:
    seen: list[Any] = []
    take = _taking(case, seen)

    @workflow
    async def calls(ctx: Context) -> None:
        await ctx.do(take, 1, case.value)

    return _in_app(calls, seen)


def in_an_approved_plan(case: Case) -> Seen:
    seen: list[Any] = []
    take = _taking(case, seen)

    @workflow
    async def asks(ctx: Context) -> None:
        decision = await ctx.approval(take.plan(1, case.value), summary="take?", by=role("lead"), within="1h")
        await ctx.do(decision.chosen)

    return _in_app(asks, seen, approve=True)


def in_outcome(case: Case) -> Seen:
    async def ends(ctx: Context) -> Any:
        return case.value

    ends.__annotations__["return"] = case.type
    flow: Any = workflow(ends)
    app = App((flow,))
    try:
        run = app.start(flow, {})
        if run.now.attention:
            return Seen(None, run.now.attention[0].detail)
        return Seen(app.do(app.runtime.client.get(flow, run.id).result(timeout="2s")))
    finally:
        app.close()


def in_input(case: Case) -> Seen:
    seen: list[Any] = []

    async def begins(ctx: Context, it: Any) -> None:
        seen.append(it)

    begins.__annotations__["it"] = case.type
    flow: Any = workflow(begins)
    app = App((flow,))
    try:
        app.do(app.runtime.client.start(flow, it=case.value))
        app.settle()
        return Seen(seen[0])
    except (NotStorable, InvalidInput) as error:
        return Seen(None, f"{error.what} {error.why}")
    finally:
        app.close()


def in_a_signal(case: Case) -> Seen:
    seen: list[Any] = []
    model = _model(case)

    @workflow
    async def waits(ctx: Context) -> None:
        seen.append((await ctx.receive("go", model)).it)  # type: ignore[attr-defined]

    app = App((waits,))
    try:
        run = app.start(waits, {})
        given = model()
        given.it = case.value  # type: ignore[attr-defined]
        app.do(app.runtime.client.get(waits, run.id).signal("go", given))
        app.settle()
        return Seen(seen[0])
    except OutlastError as error:
        return Seen(None, f"{error.what} {error.why}")
    finally:
        app.close()


PLACES: tuple[Callable[[Case], Seen], ...] = (
    in_state, in_answer, in_answer_of_lookup, in_arguments, in_an_approved_plan, in_outcome, in_input, in_a_signal,
)  # fmt: skip
BACK = [(place, case) for case in SAME for place in PLACES]
NOT = [(place, *given) for given in REFUSED for place in PLACES]
CONVERTED = (in_arguments, in_an_approved_plan, in_input)
"""Places where a value is converted to the declared type first, as pydantic does."""


def _name(given: object) -> str:
    return given.name if isinstance(given, Case) else getattr(given, "__name__", "")


@pytest.mark.parametrize(("place", "case"), params(BACK, 60, "values in places"), ids=_name)
def test_a_run_gets_the_value_that_was_given(place: Callable[[Case], Seen], case: Case) -> None:
    seen = place(case)
    assert not seen.refused
    assert classes(seen.value) == classes(case.value if case.back is None else case.back)


@pytest.mark.parametrize(("place", "case", "says"), params(NOT, 40, "refusals in places"), ids=_name)
def test_a_value_that_would_be_another_one_is_refused(place: Callable[[Case], Seen], case: Case, says: str) -> None:
    seen = place(case)
    if seen.refused:
        assert "any more" not in seen.refused, "nothing was changed"
    else:
        assert place in CONVERTED


# --- other processes ------------------------------------------------------------------------------
def _process(part: str, url: str, hash_seed: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.values.process", part, url],
        cwd=ROOT, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONHASHSEED": hash_seed},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_processes_with_other_hash_seeds_agree(tmp_path: Path) -> None:
    """Each process starts, calls, looks up and asks the same again: nothing is made, asked or started twice."""
    url = f"sqlite:{tmp_path}/s.db"
    found = [_process("go_on", url, one) for one in SEEDS]
    assert [each["started"] for each in found] == [len(GIVEN), *[0] * (len(found) - 1)]
    assert [each["called"] for each in found] == [len(GIVEN), *[0] * (len(found) - 1)]
    assert [each["looked_up"] for each in found] == [len(GIVEN), *[0] * (len(found) - 1)]
    assert len({json.dumps(each["approvals"]) for each in found}) == 1 and len(found[0]["approvals"]) == len(GIVEN)
    assert not any(each["attention"] for each in found)
    last = _process("approve", url, "77")
    assert last["ended"] == {str(n): wanted(n) for n in range(len(GIVEN))}
    assert last["looked_up"] == last["called"] == 0, "the node was executed again, and asked for the same"
