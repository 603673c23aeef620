"""Comparison of two runs: where they part, what is equal, and that no secret is shown."""

import json
import re
from collections.abc import Sequence
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from outlast import Allow, Context, Deny, Fail, Workflow, activity, lookup, role
from outlast.errors import InvalidInput, NotFound
from outlast.flow import PolicyRequest, Verdict
from outlast.insight import run_comparison
from outlast.insight.difference_words import parting_text, took_text
from outlast.insight.run_comparison import CHANGES_MAX, aligned, paired
from outlast.insight.tenant_rows import PAGE_ROWS_MAX
from outlast.models.comparison import RunComparison, RunDifference
from outlast.testing.virtual_runtime import App, AppFactory, AppRun

SECRET = "sk-abcdefghijklmnop"
pytestmark = pytest.mark.req("RUN-10")


class Order(BaseModel):
    item: str = "box"
    rounds: int = 1
    price: int = 10
    waits_s: int = 0
    ask: bool = False
    wait: bool = False
    fails: bool = False
    breaks: str = ""
    more: dict[str, Any] = {}
    extra: bool = False
    n: int = 0


class Word(BaseModel):
    text: str


orders = Workflow("compared", state=Order, outcome=lambda state: {"n": state.n, "item": state.item})


@lookup
async def stock(item: str, price: int) -> dict[str, int]:
    """Return the stock of an item."""
    return {"left": price, "shelf": 7}


@activity(key="compared-offer/{n}", no_undo="an offer stays")
async def offer(n: int, price: int, more: dict[str, Any]) -> dict[str, Any]:
    """Make an offer."""
    return {"offer": n, "at": price}


@activity(key="compared-gift/{item}", no_undo="a gift stays")
async def gift(item: str) -> str:
    """Send a gift."""
    return item


@activity(key="compared-deliver/{item}", once_per="run")
async def deliver(item: str) -> str:
    """Deliver an item."""
    return f"parcel of {item}"


@deliver.undo
async def take_back(response: str, item: str) -> None:
    """Take a delivery back."""


@orders.node(start=True, max_visits=1_000)
async def quote(ctx: Context[Order]) -> Literal["quote", "send", "close"]:
    state = ctx.state
    state.n += 1
    await ctx.do(stock, state.item, state.price)
    await ctx.do(offer, state.n, state.price, state.more)
    if state.extra and state.n == 1:
        await ctx.do(gift, state.item)
    if state.n < state.rounds:
        return "quote"
    return "close" if state.item == "nothing" else "send"


@orders.node
async def send(ctx: Context[Order]) -> Literal["close"]:
    state = ctx.state
    if state.waits_s:
        await ctx.sleep(f"{state.waits_s}s")
    if state.wait:
        state.item = (await ctx.receive("said", Word)).text
    if state.ask:
        await ctx.approval(deliver.plan(state.item), summary="send it", by=role("lead"), within="4d")
    await ctx.do(deliver, state.item)
    return "close"


@orders.node
async def close(ctx: Context[Order]) -> None:
    if ctx.state.breaks:
        check_lorry(ctx.state.breaks)
    if ctx.state.fails:
        raise Fail("no lorry")


def check_lorry(breaks: str) -> None:
    if breaks == "late":
        raise LookupError("the lorry is late")
    raise ValueError(f"no lorry for {breaks}")


@pytest.fixture(autouse=True)
def virtual_turns_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let only hours count as another time, because virtual time passes while a busy machine has work to do."""
    monkeypatch.setattr(run_comparison, "LONGER_MS", 3_600_000)


def compare(app: App, run: AppRun[Any], other: AppRun[Any], **page: Any) -> RunComparison:
    return app.do(app.runtime.operations.compare(run.id, other.id, **page))


def pair(app_of: AppFactory, one: dict[str, Any], two: dict[str, Any]) -> tuple[App, AppRun[Any], AppRun[Any]]:
    app = app_of(orders)
    return app, app.start(orders, one), app.start(orders, two)


def named(found: RunComparison) -> list[tuple[str, str, Sequence[str]]]:
    return [(each.kind, each.what, each.differs) for each in found.differences]


def of_kind(found: RunComparison, kind: str) -> RunDifference:
    (one,) = (each for each in found.differences if each.kind == kind)
    return one


def test_two_runs_of_one_input_are_equal_and_folded(outlast_app: AppFactory) -> None:
    app, run, other = pair(outlast_app, {"rounds": 3}, {"rounds": 3})
    found = compare(app, run, other)
    assert (found.first, found.total, found.differences, found.not_compared) == (None, 0, [], [])
    assert (found.equal_visits, found.equal_calls) == (5, 3 * 2 + 1), "three quotes, a delivery, the close"
    assert (found.run.run, found.other.run) == (run.id, other.id)
    assert (found.run.visits, found.run.calls, found.run.status) == (5, 7, "completed")


def test_runs_part_where_a_call_has_other_arguments(outlast_app: AppFactory) -> None:
    app, run, other = pair(outlast_app, {"rounds": 2}, {"rounds": 2, "price": 11})
    found = compare(app, run, other)
    assert named(found) == [
        ("input", "input", ["input"]),
        ("lookup", "stock", ["arguments", "answer"]), ("call", "offer", ["arguments", "answer"]),
        ("lookup", "stock", ["arguments", "answer"]), ("call", "offer", ["arguments", "answer"]),
    ]  # fmt: skip
    assert found.first == found.differences[1], "another input is a cause, not the place where they part"
    (change,) = found.differences[0].changes
    assert (change.path, change.run, change.other) == ("price", "10", "11")
    call = found.differences[2]
    assert call.run is not None and call.other is not None
    assert [(c.of, c.path, c.run, c.other) for c in call.changes] == [
        ("arguments", "price", "10", "11"), ("answer", "at", "10", "11"),
    ]  # fmt: skip
    assert (call.key, call.run.visit, call.other.visit, call.run.node) == ("compared-offer/1", 1, 1, "quote")
    step = app.do(app.runtime.operations.steps(run.id, step=call.run.step))
    assert step.steps[0].what == "offer", "a side leads to its step"
    of_lookup = found.differences[1].changes
    assert [(c.of, c.path) for c in of_lookup] == [("arguments", "digest"), ("answer", "left")]
    assert found.equal_visits == 2 and found.equal_calls == 1


def test_a_call_of_one_run_only_is_named_at_its_place(outlast_app: AppFactory) -> None:
    app, run, other = pair(outlast_app, {"extra": True}, {})
    found = compare(app, run, other)
    assert named(found) == [("input", "input", ["input"]), ("call", "gift", ["call"])]
    gift_only = found.differences[1]
    assert gift_only.run is not None and gift_only.other is None and gift_only.run.status == "done"
    assert gift_only.equal_calls == 2, "the lookup and the offer before it are equal"
    back = compare(app, other, run).differences[1]
    assert (back.run, back.other) == (None, gift_only.run)


def test_the_place_of_a_visit_to_another_node_is_found(outlast_app: AppFactory) -> None:
    app, run, other = pair(outlast_app, {"rounds": 2}, {"rounds": 4})
    found = compare(app, run, other)
    visits = [each for each in found.differences if each.kind == "visit"]
    assert [(v.what, v.differs, v.run, v.other and v.other.visit) for v in visits] == [
        ("quote", ["node"], None, 3), ("quote", ["node"], None, 4),
    ]  # fmt: skip
    assert visits[0].other is not None and visits[0].other.detail == "2 calls"
    assert visits[0].equal_visits == 2
    assert found.equal_visits == 4, "the delivery and the close are aligned behind the further rounds"
    assert of_kind(found, "end").changes[0].path == "n"


def test_two_nodes_in_one_place_are_one_difference(outlast_app: AppFactory) -> None:
    assert list(aligned("abd", "acd")) == [(0, 0), (1, 1), (2, 2)]
    assert list(aligned("aabd", "ad")) == [(0, 0), (1, None), (2, None), (3, 1)]
    assert list(aligned("ad", "axyd")) == [(0, 0), (None, 1), (None, 2), (1, 3)]
    assert list(aligned(["", "", "b"], "axb")) == [(0, 0), (1, 1), (2, 2)], "an unknown node is equal to each"
    assert list(aligned("", "ab")) == [(None, 0), (None, 1)]
    assert list(paired([], [])) == []
    app, run, other = pair(outlast_app, {}, {"item": "nothing"})
    found = compare(app, run, other)
    assert ("visit", "send", ["node"]) in named(found)


def test_time_and_cost_are_listed_but_runs_do_not_part_there(outlast_app: AppFactory) -> None:
    app = outlast_app(orders)
    run, other = app.start(orders, {"wait": True}), app.start(orders, {"wait": True})
    run.signal("said", {"text": "box"})
    app.clock.skip("3h")
    other.signal("said", {"text": "box"})
    found = compare(app, run, other)
    assert named(found) == [("visit", "send", ["time"])] and found.first is None
    (difference,) = found.differences
    assert difference.run is not None and difference.other is not None
    assert difference.run.ms is not None and (difference.other.ms or 0) >= 3_600_000 > difference.run.ms
    assert difference.equal_visits == 1 and found.equal_calls == 4, "the wait and the calls are equal"


def test_a_message_is_compared_but_not_shown(outlast_app: AppFactory) -> None:
    app = outlast_app(orders)
    run, other = app.start(orders, {"wait": True}), app.start(orders, {"wait": True})
    run.signal("said", {"text": "a-private-word"})
    other.signal("said", {"text": "another-one"})
    found = compare(app, run, other)
    wait = of_kind(found, "wait")
    assert (wait.what, wait.differs, wait.changes) == ("receive", ["message"], []) and found.first == wait
    assert wait.run is not None and wait.run.detail == "1 message" and wait.run.by
    assert "a-private-word" not in wait.model_dump_json()


def test_another_decision_is_shown_with_its_person_and_reason(outlast_app: AppFactory) -> None:
    app = outlast_app(orders)
    run, other = app.start(orders, {"ask": True}), app.start(orders, {"ask": True})
    run.approve("in order", by="ana")
    other.reject("too early", by="ben")
    found = compare(app, run, other)
    decision = found.first
    assert decision is not None and (decision.kind, decision.what, decision.differs) == (
        "approval", "deliver", ["decision"],
    )  # fmt: skip
    assert decision.run is not None and decision.other is not None
    assert (decision.run.status, decision.run.by, decision.run.detail) == ("approved", "ana", "in order")
    assert (decision.other.status, decision.other.by, decision.other.detail) == ("rejected", "ben", "too early")
    assert {change.path for change in decision.changes} == {"status", "by", "reason", "call"}


def test_a_refused_call_and_another_end(outlast_app: AppFactory) -> None:
    app, run, other = pair(outlast_app, {}, {"fails": True})
    found = compare(app, run, other)
    assert found.differences[0].kind == "input"
    undo = of_kind(found, "undo")
    assert (undo.run, undo.differs) == (None, ["call"]), "only the failed run undid its delivery"
    delivery = next(each for each in found.differences if each.what == "deliver")
    assert delivery.differs == ["answer"] and delivery.other is not None and delivery.other.status == "undone"
    end = found.differences[-1]
    assert end.kind == "end" and end.run is not None and end.other is not None
    assert (end.run.status, end.other.status, end.other.detail) == ("completed", "failed", "no lorry")


def test_a_verdict_is_a_decision_of_its_own(outlast_app: AppFactory) -> None:
    def rules(request: PolicyRequest) -> Verdict:
        return Deny("too_much", f"at most 10, {SECRET}") if request.arguments.get("price", 0) > 10 else Allow()

    flow = Workflow("compared-rules", state=Order, policy=rules)

    @flow.node(start=True)
    async def begin(ctx: Context[Order]) -> None:
        await ctx.do(offer, 1, ctx.state.price, {})

    app = outlast_app(flow)
    run, other = app.start(flow, {"price": 10}), app.start(flow, {"price": 11})
    found = compare(app, run, other)
    policy = of_kind(found, "policy")
    assert policy.other is not None and policy.other.status == "deny" and policy.run is None
    assert SECRET not in found.model_dump_json()


def test_secrets_are_redacted_by_form_and_by_the_names_on_the_path(outlast_app: AppFactory) -> None:
    one = {"more": {"credentials": {"user": {"deep": ["hunter2-one"]}}, "note": f"use {SECRET}", "token_count": 1}}
    two = {"more": {"credentials": {"user": {"deep": ["hunter2-two"]}}, "note": "use none", "token_count": 2}}
    app, run, other = pair(outlast_app, one, two)
    found = compare(app, run, other)
    text = found.model_dump_json()
    assert SECRET not in text and "hunter2" not in text
    changes = {each.path: (each.run, each.other) for each in found.differences[0].changes}
    assert changes["more.credentials.user.deep.0"] == ('"[redacted]"', '"[redacted]"'), "it differs, and says no more"
    assert changes["more.note"] == ('"use [redacted]"', '"use none"')
    assert changes["more.token_count"] == ("1", "2")


def test_a_long_value_is_shown_around_its_difference(outlast_app: AppFactory) -> None:
    text = "x" * 5_000
    one = {"more": {"prompt": f"{text}cats{text}", "rows": [{"i": i} for i in range(200)]}}
    two = {"more": {"prompt": f"{text}dogs{text}", "rows": [{"i": -i} for i in range(200)]}}
    app, run, other = pair(outlast_app, one, two)
    (given, *_) = compare(app, run, other).differences
    assert (len(given.changes), given.more_changes) == (CHANGES_MAX, 1 + 199 - CHANGES_MAX)
    prompt = given.changes[0]
    assert prompt.path == "more.prompt" and "cats" in (prompt.run or "") and "dogs" in (prompt.other or "")
    assert len(prompt.run or "") < 200 and (prompt.run or "").startswith("…")


def test_pages_of_differences_have_each_once(outlast_app: AppFactory) -> None:
    app, run, other = pair(outlast_app, {"rounds": 10}, {"rounds": 10, "price": 3})
    whole = compare(app, run, other)
    found: list[RunDifference] = []
    after = ""
    while True:
        page = compare(app, run, other, after=int(after or 0), limit=4)
        assert (page.first, page.total, page.equal_calls) == (whole.first, whole.total, whole.equal_calls)
        found += page.differences
        after = page.next_cursor
        if not after:
            break
    assert found == whole.differences and [each.n for each in found] == list(range(1, whole.total + 1))
    with pytest.raises(InvalidInput):
        compare(app, run, other, limit=PAGE_ROWS_MAX + 1)


def test_every_row_of_both_runs_is_in_its_place(outlast_app: AppFactory) -> None:
    app, run, other = pair(outlast_app, {"rounds": 3}, {"rounds": 3})
    found = compare(app, run, other, every=True)
    assert (found.first, found.total, found.rows) == (None, 0, 5 + 3 * 2 + 1) and not any(
        r.differs for r in found.differences
    )
    assert [each.kind for each in found.differences] == [*["visit", "lookup", "call"] * 3, "visit", "call", "visit"]
    assert (found.equal_visits, found.equal_calls) == (5, 7)
    sides = [each.run for each in found.differences if each.kind == "visit" and each.run is not None]
    assert [(each.node, each.nth) for each in sides][:3] == [("quote", 1), ("quote", 2), ("quote", 3)]


def test_the_rows_have_each_difference_of_the_short_form(outlast_app: AppFactory) -> None:
    app, run, other = pair(outlast_app, {"rounds": 2}, {"rounds": 3, "price": 11})
    short, whole = compare(app, run, other), compare(app, run, other, every=True, limit=PAGE_ROWS_MAX)
    differing = [each for each in whole.differences if each.differs]
    assert named(short) == [(each.kind, each.what, each.differs) for each in differing]
    assert (whole.total, short.total, short.rows) == (len(differing), len(differing), len(differing))
    assert whole.first is not None and short.first is not None and whole.first.key == short.first.key
    assert whole.differences[whole.first.n - 1] == whole.first
    pages = [compare(app, run, other, every=True, after=n, limit=4).differences for n in range(0, whole.rows, 4)]
    assert [each for page in pages for each in page] == whole.differences


def test_runs_of_two_workflows_are_refused_and_unknown_ones_not_found(outlast_app: AppFactory) -> None:
    flow = Workflow("compared-other", state=Order)

    @flow.node(start=True)
    async def begin(ctx: Context[Order]) -> None:
        ctx.state.n = 1

    app = outlast_app(orders, flow)
    run, other = app.start(orders, {}), app.start(flow, {})
    with pytest.raises(InvalidInput, match=r"is a run of compared, .* one of compared-other") as caught:
        compare(app, run, other)
    assert "outlast runs ls --workflow compared" in caught.value.fix
    for one, two in ((run.id, "nobody"), ("nobody", run.id)):
        with pytest.raises(NotFound, match="nobody"):
            app.do(app.runtime.operations.compare(one, two))


def test_two_versions_of_a_workflow_are_compared(outlast_app: AppFactory) -> None:
    def of_version(version: int) -> Workflow[Order]:
        flow = Workflow("compared-versions", version=version, state=Order)

        @flow.node(start=True)
        async def begin(ctx: Context[Order]) -> None:
            await ctx.do(offer, 1, 10 * version, {})

        return flow

    flows = [of_version(1), of_version(2)]
    app = outlast_app(*flows)
    operations = app.runtime.operations
    run, other = (app.do(operations.start_run(flow, {})).run for flow in flows)
    app.settle()
    found = app.do(operations.compare(run, other))
    assert (found.run.workflow_version, found.other.workflow_version) == (1, 2)
    assert found.first is not None and (found.first.kind, found.first.what) == ("call", "offer")


def test_a_purged_ledger_is_named_and_calls_are_not_compared(outlast_app: AppFactory) -> None:
    app = outlast_app(orders)
    run = app.start(orders, {"rounds": 2})
    app.clock.skip("8d")
    other = app.start(orders, {"rounds": 2, "price": 3})
    purged = app.do(app.store.purge_ledgers(app.do(app.store.now()).business - 1_000, 10))  # type: ignore[attr-defined]
    assert purged
    found = compare(app, run, other)
    assert named(found) == [("input", "input", ["input"])], "no call is only in the run that has its ledger"
    assert found.not_compared == [
        f"the ledger of {run.id} has been purged, so calls, lookups and verdicts are not compared"
    ]


def test_a_run_under_way_is_compared_as_far_as_it_is(outlast_app: AppFactory) -> None:
    app = outlast_app(orders)
    run, other = app.start(orders, {"ask": True}), app.start(orders, {"ask": True})
    assert compare(app, run, other).not_compared == ["neither run has ended, so their ends are not compared"]
    other.approve(by="ana")
    found = compare(app, run, other)
    assert [each.kind for each in found.differences] == ["approval", "call", "visit", "end"]
    assert json.loads(found.model_dump_json(by_alias=True))["other"]["status"] == "completed"


def test_a_fork_and_its_ancestor_part_behind_the_checkpoint(outlast_app: AppFactory) -> None:
    app = outlast_app(orders)
    run = app.start(orders, {"rounds": 3, "extra": True})
    forked = app.do(app.runtime.operations.fork_run(run.id, "3", approvers="lead"))
    app.settle()
    found = app.do(app.runtime.operations.compare(run.id, forked.fork))
    assert found.first is not None and (found.first.kind, found.first.key) == ("call", "compared-offer/2")
    assert (found.first.equal_visits, found.first.other) == (1, None), "the copied visit is equal"
    assert found.not_compared == [f"{forked.fork} is a fork: its input and its first 1 visit are those of its ancestor"]
    assert all(each.kind != "input" for each in found.differences)


def test_an_exception_is_where_a_run_parts_from_one_that_ended(outlast_app: AppFactory) -> None:
    app, run, other = pair(outlast_app, {"breaks": SECRET}, {})
    found = compare(app, run, other)
    first = found.first
    assert first is not None and (first.kind, first.what, first.differs) == ("error", "exception", ["call"])
    assert first.run is not None and first.other is None and first.run.node == "close"
    assert first.run.detail == "ValueError: no lorry for [redacted]" and first.run.step.startswith("attention/")
    assert parting_text(found).endswith(": exception, only in A: ValueError: no lorry for [redacted].")
    assert SECRET not in found.model_dump_json()
    other_item = app.start(orders, {"breaks": "box", "item": "bag"})
    assert re.fullmatch(
        r"They part at difference \d: lookup .+\. Difference \d: exception, only in A: ValueError: no lorry for box\.",
        parting_text(compare(app, other_item, other, limit=1)),
    )


def test_two_exceptions_differ_in_their_message_and_in_the_first_line_of_their_tracebacks(
    outlast_app: AppFactory,
) -> None:
    app, run, other = pair(outlast_app, {"breaks": "box"}, {"breaks": "late"})
    (error,) = [each for each in compare(app, run, other).differences if each.kind == "error"]
    assert error.differs == ["error"] and error.run is not None and error.other is not None
    assert (error.run.detail, error.other.detail) == ("ValueError: no lorry for box", "LookupError: the lorry is late")
    (line,) = error.changes
    assert line.of == "error" and line.path.startswith("line_") and line.run and line.other
    assert "in check_lorry" in line.run and "in check_lorry" in line.other and line.run != line.other
    again = app.start(orders, {"breaks": "box"})
    same = compare(app, run, again)
    assert not same.total and same.equal_calls == compare(app, run, run).equal_calls


def test_times_that_would_read_alike_are_in_milliseconds() -> None:
    assert [took_text(*pair) for pair in ((12_100, 12_400), (12_400, 12_400), (12_400, 40_000), (12_400, None))] == [
        "12,100 ms", "12s", "12s", "12s",
    ]  # fmt: skip
    assert (took_text(9), took_text(None, 9)) == ("9 ms", "")
