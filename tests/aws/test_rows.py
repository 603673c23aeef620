"""The rows of `rows.py`, played in virtual time: child contexts as child runs, and callbacks as signals."""

import ast
from collections import Counter
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from outlast import ChildFailed, Context, Fail, Refused, Retry, RetryLater, activity, workflow
from outlast.core.limits import OUTCOME_BYTES_MAX
from outlast.testing import AppFactory
from tests.aws.rows import COUNTS, DIFFER_MAX, GROUPS, ROWS, table

ROOT = Path(__file__).resolve().parents[2]


class Answer(BaseModel):
    """What an external system sends."""

    value: str = ""
    failed: str = ""


class Alive(BaseModel):
    """A sign of life."""


class Stamped(BaseModel):
    count: int
    status: str
    at: Literal["2026-01-01", "2026-01-02"] = "2026-01-01"


@activity(key="aws-step/{value}", name="aws-step", no_undo="it returns what it got")
async def step(value: str) -> str:
    return value


@activity(key="aws-submit/{name}", name="aws-submit", no_undo="it asks")
async def submit(name: str) -> None:
    """Tell the external system which run waits, and for which name."""


# --- the table -----------------------------------------------------------------------------------------
def test_each_row_has_a_test_and_at_most_a_quarter_differ() -> None:
    assert Counter(GROUPS[number.partition("-")[0]] for number in ROWS) == COUNTS
    for row in ROWS.values():
        file, _, function = row.test.partition("::")
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        assert function in {each.name for each in ast.walk(tree) if isinstance(each, ast.FunctionDef)}, row
    assert sum(bool(row.differs) for row in ROWS.values()) <= DIFFER_MAX * len(ROWS)


def test_the_page_has_each_difference() -> None:
    assert table() in (ROOT / "docs/comparison.md").read_text(encoding="utf-8"), table()


# --- child contexts ------------------------------------------------------------------------------------
@workflow(name="aws-child")
async def child(ctx: Context, value: str) -> str:
    return await ctx.do(step, value)


@workflow(name="aws-refused")
async def refused(ctx: Context) -> None:
    await ctx.do(no, "x")


@activity(key="aws-no/{value}", name="aws-no", no_undo="it does nothing")
async def no(value: str) -> None:
    raise Refused("no", "never")


TERMS: Any = {"no_undo": "a step is not undone"}


def test_a_child_returns_the_result_of_its_step(outlast_app: AppFactory) -> None:
    @workflow(name="aws-parent")
    async def parent(ctx: Context, value: str) -> str:
        return await ctx.run(child, child.arguments(value), **TERMS)

    run = outlast_app(parent, child).start(parent, {"value": "abc"})
    assert (run.status, run.outcome) == ("completed", "abc")


def test_a_child_has_a_key(outlast_app: AppFactory) -> None:
    @workflow(name="aws-named")
    async def parent(ctx: Context, name: str, value: str) -> str:
        handle = await ctx.start(child, child.arguments(value), key=name, **TERMS)
        assert handle.key == name
        return await handle.result()

    run = outlast_app(parent, child).start(parent, {"name": "n-1", "value": "abc"})
    assert (run.status, run.outcome) == ("completed", "abc")


def test_steps_of_a_child_follow_each_other(outlast_app: AppFactory) -> None:
    @workflow(name="aws-two-steps")
    async def two(ctx: Context, value: str) -> str:
        return await ctx.do(step, await ctx.do(step, value) + "!")

    @workflow(name="aws-of-two")
    async def parent(ctx: Context, value: str) -> str:
        return await ctx.run(two, two.arguments(value), **TERMS)

    assert outlast_app(parent, two).start(parent, {"value": "a"}).outcome == "a!"


def test_an_error_of_a_child_asks_a_person(outlast_app: AppFactory) -> None:
    @workflow(name="aws-uncaught")
    async def parent(ctx: Context) -> None:
        await ctx.run(failing, failing.arguments(), **TERMS)

    @workflow(name="aws-failing")
    async def failing(ctx: Context) -> None:
        try:
            await ctx.do(no, "x")
        except Refused as error:
            raise Fail(error.detail) from None

    run = outlast_app(parent, failing).start(parent, {})
    assert run.attention == ["child_failed"]
    run.answer("child_failed", "fail")
    assert run.status == "failed"


def test_an_error_of_a_child_is_caught(outlast_app: AppFactory) -> None:
    @workflow(name="aws-thrown")
    async def throws(ctx: Context) -> None:
        raise Fail("thrown")

    @workflow(name="aws-caught")
    async def parent(ctx: Context, value: str) -> str:
        try:
            await ctx.run(throws, throws.arguments(), **TERMS)
        except ChildFailed:
            return await ctx.do(step, value)
        return "not reached"

    run = outlast_app(parent, throws).start(parent, {"value": "abc"})
    assert (run.status, run.outcome) == ("completed", "abc")


def test_children_have_children(outlast_app: AppFactory) -> None:
    @workflow(name="aws-middle")
    async def middle(ctx: Context, value: str) -> str:
        await ctx.do(step, value)
        return await ctx.run(child, child.arguments(value), **TERMS)

    @workflow(name="aws-outer")
    async def parent(ctx: Context, value: str) -> str:
        return await ctx.run(middle, middle.arguments(value), **TERMS)

    assert outlast_app(parent, middle, child).start(parent, {"value": "abc"}).outcome == "abc"


def test_a_step_of_a_child_is_tried_again(outlast_app: AppFactory) -> None:
    seen: list[str] = []

    @activity(key="aws-busy/{value}", name="aws-busy", no_undo="it does nothing")
    async def busy(value: str) -> str:
        seen.append(value)
        if len(seen) == 1:
            raise RetryLater("busy", after="5s")
        return value

    @workflow(name="aws-retries")
    async def retries(ctx: Context, value: str) -> str:
        return await ctx.do(busy, value)

    @workflow(name="aws-of-retries")
    async def parent(ctx: Context, value: str) -> str:
        return await ctx.run(retries, retries.arguments(value), **TERMS)

    app = outlast_app(parent, retries)
    run = app.start(parent, {"value": "abc"})
    app.clock.advance("10s")
    assert (run.status, run.outcome, len(seen)) == ("completed", "abc", 2)


def test_used_up_attempts_ask_a_person(outlast_app: AppFactory) -> None:
    @activity(key="aws-never", name="aws-never", no_undo="it does nothing", retry=Retry(attempts=2))
    async def never() -> None:
        raise RetryLater("busy", after="1s")

    @workflow(name="aws-exhausted")
    async def exhausted(ctx: Context) -> str:
        await ctx.do(never)
        return (await ctx.receive("answer", Answer)).value

    @workflow(name="aws-of-exhausted")
    async def parent(ctx: Context) -> str:
        return await ctx.run(exhausted, exhausted.arguments(), key="e", **TERMS)

    app = outlast_app(parent, exhausted)
    alone, above = app.start(exhausted, {}), app.start(parent, {})
    app.clock.advance("1m")
    assert alone.attention == ["retries_exhausted"]
    assert (above.status, above.attention, above.waiting_for) == ("waiting", [], ["child aws-exhausted e"])


def test_a_child_that_has_ended_is_not_executed_again(outlast_app: AppFactory) -> None:
    executed: list[str] = []

    @workflow(name="aws-counted")
    async def counted(ctx: Context, value: str) -> str:
        executed.append(value)
        return await ctx.do(step, value)

    @workflow(name="aws-of-counted")
    async def parent(ctx: Context, value: str) -> str:
        found = await ctx.run(counted, counted.arguments(value), **TERMS)
        await ctx.sleep("1h")
        return found

    app = outlast_app(parent, counted)
    run = app.start(parent, {"value": "abc"})
    app.clock.skip("1h")
    assert (run.status, run.outcome, executed) == ("completed", "abc", ["abc"])


def test_a_child_that_has_ended_logs_nothing_again(outlast_app: AppFactory) -> None:
    @workflow(name="aws-logs")
    async def logs(ctx: Context, value: str) -> str:
        ctx.log("seen", value)
        return value

    @workflow(name="aws-of-logs")
    async def parent(ctx: Context, value: str) -> str:
        found = await ctx.run(logs, logs.arguments(value))
        await ctx.sleep("1h")
        return found

    app = outlast_app(parent, logs)
    run = app.start(parent, {"value": "abc"})
    app.clock.skip("1h")
    (below,) = app.do(app.runtime.operations.tree(run.id)).children
    logged = [event for event in app.events(below.run) if event.data().get("text") == "abc"]
    assert (run.status, run.outcome, len(logged)) == ("completed", "abc", 1)


@workflow(name="aws-calls-and-waits")
async def calls_and_waits(ctx: Context, value: str) -> str:
    found = await ctx.do(step, value)
    await ctx.sleep("5s")
    return found


@workflow(name="aws-only-waits")
async def only_waits(ctx: Context, value: str) -> str:
    await ctx.sleep("5s")
    return value


def test_a_child_calls_and_waits(outlast_app: AppFactory) -> None:
    @workflow(name="aws-of-both")
    async def parent(ctx: Context, value: str) -> str:
        return await ctx.run(calls_and_waits, calls_and_waits.arguments(value), **TERMS)

    app = outlast_app(parent, calls_and_waits)
    run = app.start(parent, {"value": "abc"})
    assert run.status == "waiting"
    app.clock.skip("5s")
    assert (run.status, run.outcome) == ("completed", "abc")


def test_a_child_only_waits(outlast_app: AppFactory) -> None:
    @workflow(name="aws-of-waits")
    async def parent(ctx: Context, value: str) -> str:
        return await ctx.do(step, await ctx.run(only_waits, only_waits.arguments(value)))

    app = outlast_app(parent, only_waits)
    run = app.start(parent, {"value": "abc"})
    app.clock.skip("5s")
    assert (run.status, run.outcome) == ("completed", "abc")


def test_calls_and_waits_after_a_child(outlast_app: AppFactory) -> None:
    @workflow(name="aws-after")
    async def parent(ctx: Context, value: str) -> str:
        found = await ctx.do(step, await ctx.run(calls_and_waits, calls_and_waits.arguments(value), **TERMS))
        await ctx.sleep("5s")
        return found

    app = outlast_app(parent, calls_and_waits)
    run = app.start(parent, {"value": "abc"})
    app.clock.skip("5s")
    assert run.status == "waiting"
    app.clock.skip("5s")
    assert (run.status, run.outcome) == ("completed", "abc")


def test_a_large_outcome_is_refused(outlast_app: AppFactory) -> None:
    @workflow(name="aws-large")
    async def large(ctx: Context) -> str:
        return "x" * (OUTCOME_BYTES_MAX + 1)

    run = outlast_app(large).start(large, {})
    assert run.attention == ["exception"]


def test_a_value_comes_back_as_it_went_in(outlast_app: AppFactory) -> None:
    @workflow(name="aws-upper")
    async def upper(ctx: Context, value: str) -> str:
        return (await ctx.do(step, value)).upper()

    @workflow(name="aws-of-upper")
    async def parent(ctx: Context, value: str) -> str:
        return await ctx.run(upper, upper.arguments(value), **TERMS)

    assert outlast_app(parent, upper).start(parent, {"value": "hello child"}).outcome == "HELLO CHILD"


def test_an_error_without_a_step_asks_a_person(outlast_app: AppFactory) -> None:
    @workflow(name="aws-raises")
    async def raises(ctx: Context) -> None:
        raise ValueError("wrong")

    @workflow(name="aws-of-raises")
    async def parent(ctx: Context) -> None:
        await ctx.run(raises, raises.arguments(), key="r", **TERMS)

    run = outlast_app(parent, raises).start(parent, {})
    assert (run.status, run.waiting_for) == ("waiting", ["child aws-raises r"])


def test_a_child_returns_none(outlast_app: AppFactory) -> None:
    @workflow(name="aws-none")
    async def none(ctx: Context) -> None:
        return None

    @workflow(name="aws-of-none")
    async def parent(ctx: Context) -> None:
        await ctx.run(none, none.arguments())

    run = outlast_app(parent, none).start(parent, {})
    assert (run.status, run.outcome) == ("completed", None)


# --- callbacks -------------------------------------------------------------------------------------------
@workflow(name="aws-signal")
async def returns_a_signal(ctx: Context, name: str) -> str:
    return (await ctx.receive(name, Answer)).value


@workflow(name="aws-timeout")
async def times_out(ctx: Context) -> str:
    await ctx.do(step, "between")
    answer = await ctx.receive("answer", Answer, timeout="5s")
    if answer is None:
        raise Fail("no answer")
    return answer.value


def test_a_signal_is_returned(outlast_app: AppFactory) -> None:
    run = outlast_app(returns_a_signal).start(returns_a_signal, {"name": "approval"})
    assert run.waiting_for == ["signal approval"]
    run.signal("approval", {"value": "abc"})
    assert (run.status, run.outcome) == ("completed", "abc")


def test_a_signal_that_does_not_come(outlast_app: AppFactory) -> None:
    app = outlast_app(times_out)
    run = app.start(times_out, {})
    app.clock.skip("5s")
    assert (run.status, run.now.reason) == ("failed", "no answer")


@workflow(name="aws-heartbeat")
async def listens_for_life(ctx: Context) -> str:
    await ctx.do(submit, "answer")
    for n in range(100):
        answer = ctx.receive("answer", Answer, round=n)
        match await ctx.first(answer, ctx.receive("alive", Alive, round=n), ctx.sleep("10s", round=n)):
            case 0, found:
                return found.value
            case 2, _:
                raise Fail("no sign of life")
    raise Fail("it has no end")


def test_no_sign_of_life(outlast_app: AppFactory) -> None:
    app = outlast_app(listens_for_life)
    run = app.start(listens_for_life, {})
    app.clock.skip("10s")
    assert (run.status, run.now.reason) == ("failed", "no sign of life")


def test_signs_of_life_put_the_deadline_off(outlast_app: AppFactory) -> None:
    app = outlast_app(listens_for_life)
    run = app.start(listens_for_life, {})
    app.clock.skip("8s")
    run.signal("alive", {})
    app.clock.skip("8s")
    assert run.status == "waiting"
    run.signal("answer", {"value": "abc"})
    assert (run.status, run.outcome) == ("completed", "abc")


@workflow(name="aws-payload-fails")
async def reads_a_failure(ctx: Context) -> str:
    await ctx.do(submit, "answer")
    await ctx.sleep("5s")
    answer = await ctx.receive("answer", Answer)
    if answer.failed:
        raise Fail(answer.failed)
    return answer.value


def test_a_failure_is_a_payload(outlast_app: AppFactory) -> None:
    app = outlast_app(reads_a_failure)
    run = app.start(reads_a_failure, {})
    run.signal("answer", {"failed": "not approved"})
    assert run.status == "waiting"
    app.clock.skip("5s")
    assert (run.status, run.now.reason) == ("failed", "not approved")


def test_a_failure_is_handled(outlast_app: AppFactory) -> None:
    @workflow(name="aws-recovers")
    async def recovers(ctx: Context) -> str:
        await ctx.do(submit, "answer")
        return "recovered" if (await ctx.receive("answer", Answer)).failed else "not reached"

    run = outlast_app(recovers).start(recovers, {})
    run.signal("answer", {"failed": "not approved"})
    assert (run.status, run.outcome) == ("completed", "recovered")


def test_a_signal_that_comes_during_a_sleep(outlast_app: AppFactory) -> None:
    app = outlast_app(reads_a_failure)
    run = app.start(reads_a_failure, {})
    run.signal("answer", {"value": "abc"})
    assert run.status == "waiting"
    app.clock.skip("5s")
    assert (run.status, run.outcome) == ("completed", "abc")


def test_a_deadline_begins_with_the_wait(outlast_app: AppFactory) -> None:
    @workflow(name="aws-late")
    async def late(ctx: Context) -> str:
        await ctx.sleep("6s")
        answer = await ctx.receive("answer", Answer, timeout="3s")
        if answer is None:
            raise Fail("no answer")
        return answer.value

    app = outlast_app(late)
    run, silent = app.start(late, {}), app.start(late, {}, key="silent")
    app.clock.skip("5s")
    run.signal("answer", {"value": "in time"})
    app.clock.skip("1s")
    assert (run.outcome, silent.status) == ("in time", "waiting")
    app.clock.skip("3s")
    assert silent.status == "failed"


def test_a_sleep_after_a_signal(outlast_app: AppFactory) -> None:
    @workflow(name="aws-then-sleeps")
    async def then_sleeps(ctx: Context) -> str:
        answer = await ctx.receive("answer", Answer)
        await ctx.sleep("2s")
        return answer.value or answer.failed

    app = outlast_app(then_sleeps)
    for n, payload in enumerate(({"value": "abc"}, {"failed": "abc"})):
        run = app.start(then_sleeps, {}, key=str(n))
        run.signal("answer", payload)
        assert run.status == "waiting"
        app.clock.skip("2s")
        assert (run.status, run.outcome) == ("completed", "abc")


def test_a_sleep_after_a_deadline(outlast_app: AppFactory) -> None:
    @workflow(name="aws-gives-up")
    async def gives_up(ctx: Context) -> str:
        said = "timed out" if await ctx.receive("answer", Answer, timeout="3s") is None else "answered"
        await ctx.sleep("2s")
        return said

    app = outlast_app(gives_up)
    run = app.start(gives_up, {})
    app.clock.skip("3s")
    assert run.status == "waiting"
    app.clock.skip("2s")
    assert (run.status, run.outcome) == ("completed", "timed out")


def test_a_deadline_is_handled(outlast_app: AppFactory) -> None:
    @workflow(name="aws-deadline-handled")
    async def handles(ctx: Context) -> str:
        await ctx.do(submit, "answer")
        return "answered" if await ctx.receive("answer", Answer, timeout="3s") else "timed-out-handled"

    app = outlast_app(handles)
    run = app.start(handles, {})
    app.clock.skip("3s")
    assert (run.status, run.outcome) == ("completed", "timed-out-handled")


def test_a_payload_is_typed(outlast_app: AppFactory) -> None:
    @workflow(name="aws-typed")
    async def typed(ctx: Context) -> dict[str, Any]:
        answer = await ctx.receive("answer", Stamped)
        return {"count": answer.count, "doubled": answer.count * 2, "status": answer.status}

    run = outlast_app(typed).start(typed, {})
    run.signal("answer", {"count": 21, "status": "approved", "at": "2026-01-02"})
    assert run.outcome == {"count": 21, "doubled": 42, "status": "approved"}


@pytest.mark.parametrize("sent", ["ab", "ba"])
@pytest.mark.parametrize("awaited", ["ab", "ba"])
def test_two_signals_in_any_order(outlast_app: AppFactory, sent: str, awaited: str) -> None:
    @workflow(name="aws-two-signals")
    async def two(ctx: Context, names: list[str]) -> dict[str, str]:
        return {name: (await ctx.receive(name, Answer)).value for name in names}

    run = outlast_app(two).start(two, {"names": list(awaited)})
    for name in sent:
        run.signal(name, {"value": f"of {name}"})
    assert (run.status, run.outcome) == ("completed", {"a": "of a", "b": "of b"})


# --- a call and its callback -------------------------------------------------------------------------------
@workflow(name="aws-submits")
async def submits(ctx: Context, name: str) -> str:
    await ctx.do(submit, name)
    return (await ctx.receive(name, Answer)).value


def test_a_call_and_its_answer(outlast_app: AppFactory) -> None:
    run = outlast_app(submits).start(submits, {"name": "approval"})
    assert run.waiting_for == ["signal approval"]
    run.signal("approval", {"value": "abc"})
    assert (run.status, run.outcome) == ("completed", "abc")


def test_a_signal_needs_a_name(outlast_app: AppFactory) -> None:
    run = outlast_app(submits).start(submits, {"name": ""})
    assert run.attention == ["exception"]


def test_a_call_whose_answer_does_not_come(outlast_app: AppFactory) -> None:
    app = outlast_app(times_out)
    run = app.start(times_out, {})
    app.clock.skip("5s")
    assert run.status == "failed"


def test_a_child_waits_for_its_answer(outlast_app: AppFactory) -> None:
    @workflow(name="aws-wrapper")
    async def wrapper(ctx: Context, name: str) -> str:
        return await ctx.run(submits, submits.arguments(name), key="wrapper", **TERMS)

    app = outlast_app(wrapper, submits)
    run = app.start(wrapper, {"name": "approval"})
    (below,) = app.do(app.runtime.operations.tree(run.id)).children
    app.do(app.runtime.operations.signal(below.run, "approval", {"value": "abc"}))
    app.settle()
    assert (run.status, run.outcome) == ("completed", "abc")


def test_two_calls_and_their_answers(outlast_app: AppFactory) -> None:
    @workflow(name="aws-twice")
    async def twice(ctx: Context) -> str:
        for name in ("first", "second"):
            await ctx.do(submit, name)
            answer = await ctx.receive(name, Answer)
        return answer.value

    run = outlast_app(twice).start(twice, {})
    for name in ("first", "second"):
        assert run.waiting_for == [f"signal {name}"]
        run.signal(name, {"value": name})
    assert (run.status, run.outcome) == ("completed", "second")


def test_a_sleep_and_a_call_before_it(outlast_app: AppFactory) -> None:
    @workflow(name="aws-before")
    async def before(ctx: Context, name: str) -> str:
        await ctx.sleep("1s")
        await ctx.do(step, "fixed")
        await ctx.do(submit, name)
        return (await ctx.receive(name, Answer)).value

    app = outlast_app(before)
    run = app.start(before, {"name": "approval"})
    app.clock.skip("1s")
    run.signal("approval", {"value": "abc"})
    assert (run.status, run.outcome) == ("completed", "abc")


def test_an_empty_payload(outlast_app: AppFactory) -> None:
    run = outlast_app(submits).start(submits, {"name": "approval"})
    run.signal("approval", {})
    assert (run.status, run.outcome) == ("completed", "")
