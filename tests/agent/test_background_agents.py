"""Agents in the background: each end is a message before the next request, once, and no run ends without them."""

import json
from typing import Any

import pytest
from pydantic import BaseModel

from outlast import Context, Fail, workflow
from outlast.agent import ModelRequest, ScriptedModel, SubAgent, agent_workflow
from outlast.testing import App
from tests.agent.agents import DONE, admissions, asks, open_ticket, read_log, results

pytestmark = pytest.mark.req("GATE-7", "RUN-13")


@workflow
async def slow_assay(ctx: Context, metal: str, minutes: int = 10) -> str:
    """Find the purity of a metal. It takes minutes."""
    await ctx.sleep(f"{minutes}m")
    if metal == "lead":
        raise Fail("no sample")
    return metal.upper() * (20_000 if metal == "gold" else 1)


@workflow
async def waits_for_a_word(ctx: Context) -> str:
    """Wait."""
    await ctx.sleep("30m")
    return "a word"


def news(run: Any) -> list[dict[str, Any]]:
    """Return the messages about ends, in order."""
    return [json.loads(m.text) for m in run.state.messages[1:] if m.role == "user"]


def started(script: Any, *agents: Any, **options: Any) -> tuple[App, Any, ScriptedModel]:
    DONE.clear()
    model = ScriptedModel(script)
    offered = agents or (SubAgent(slow_assay, background=True),)
    flow = agent_workflow("leader", model=model, agents=offered, tools=[open_ticket, read_log], **options)
    app = App((flow, *(each.workflow if isinstance(each, SubAgent) else each for each in offered)))
    return app, app.start(flow, {"objective": "go"}), model


def test_an_agent_goes_on_with_other_work_and_reads_the_result_at_a_later_step() -> None:
    script = [asks(("slow_assay", {"metal": "tin"})), asks(("open_ticket", {"title": "a"})), "I wait", "done"]
    app, run, model = started(script)
    assert DONE == [("ticket", "a", False)] and run.outcome is None
    assert [wait.split()[0] for wait in run.waiting_for] == ["child"]
    assert run.now.shown == "WAITING_FOR_TOOL"
    (row,) = [each for each in app.rows(run.id).effects if each.child_text]
    assert json.loads(results(run)[0])["started"] == row.external_id
    app.clock.skip("15m")
    assert run.outcome == "done", run.now
    assert news(run) == [{"agent": "slow_assay", "run": row.external_id, "started_in_step": 1, "result": "TIN"}]
    assert len(model.requests) == 4 and run.state.started == [] and not run.state.idle
    app.close()


def test_ends_come_in_their_order_and_each_once() -> None:
    calls = asks(*(("slow_assay", {"metal": m, "minutes": n}) for m, n in (("tin", 30), ("lead", 10), ("zinc", 20))))
    app, run, _ = started([calls, "I wait", "still", "and still", "done"])
    assert run.outcome is None
    for _ in range(4):
        app.clock.skip("9m")
    assert run.outcome == "done"
    assert [each.get("result", each.get("error", {}).get("code")) for each in news(run)] == ["failed", "ZINC", "TIN"]
    assert "no sample" in news(run)[0]["error"]["reason"]
    app.close()


def test_ends_that_came_together_are_one_step() -> None:
    calls = asks(*(("slow_assay", {"metal": m, "minutes": n}) for m, n in (("tin", 3), ("zinc", 2), ("iron", 1))))
    app, run, model = started([calls, "I wait", "done"])
    app.clock.skip("10m")
    assert sorted(each["result"] for each in news(run)) == ["IRON", "TIN", "ZINC"]
    assert run.outcome == "done" and len(model.requests) == 3
    app.close()


class Report(BaseModel):
    text: str


def test_a_typed_result_waits_for_the_agents_in_the_background() -> None:
    final = asks(("final_result", {"text": "all"}))
    app, run, _ = started([asks(("slow_assay", {"metal": "tin"})), final, final], result=Report)
    assert run.outcome is None
    app.clock.skip("15m")
    assert run.outcome == {"text": "all"}
    assert json.loads(results(run)[1])["error"]["code"] == "under_way"
    assert [each["result"] for each in news(run)] == ["TIN"]
    app.close()


def test_work_that_goes_on_is_not_started_again() -> None:
    again = asks(("slow_assay", {"metal": "tin"}))
    app, run, _ = started([again, again, "I wait", "done"])
    app.clock.skip("15m")
    assert run.outcome == "done"
    assert [each["code"] for each in admissions(app, run)] == ["", "under_way"]
    assert len([each for each in app.rows(run.id).effects if each.child_text]) == 1 and len(news(run)) == 1
    app.close()


def test_after_a_failure_the_work_may_be_started_again() -> None:
    again = asks(("slow_assay", {"metal": "lead"}))
    app, run, _ = started([again, "I wait", again, "I wait again", "done"])
    app.clock.skip("15m")
    app.clock.skip("15m")
    assert run.outcome == "done" and [each["error"]["code"] for each in news(run)] == ["failed", "failed"]
    assert len({each["run"] for each in news(run)}) == 2
    app.close()


def test_a_large_result_is_read_in_pages() -> None:
    def script(request: ModelRequest) -> Any:
        last = request.messages[-1]
        if len(request.messages) == 1:
            return asks(("slow_assay", {"metal": "gold"}))
        if last.role == "user":
            body = json.loads(last.text)["result"]
            return asks(("read_result", {"handle": body["handle"], "offset": 79_990}))
        return "I wait" if "started" in last.text else json.loads(last.text)["text"]

    app, run, _ = started(script)
    app.clock.skip("15m")
    assert run.outcome == "LDGOLDGOLD"
    assert news(run)[0]["result"]["characters"] == 80_000
    app.close()


def test_inline_and_background_agents_run_beside_each_other() -> None:
    script = [
        asks(("slow_assay", {"metal": "tin", "minutes": 60}), ("waits_for_a_word", {})),
        "I wait",
        "done",
    ]
    app, run, _ = started(script, SubAgent(slow_assay, background=True), waits_for_a_word)
    assert len(run.waiting_for) == 1
    app.clock.skip("31m")
    assert results(run)[1] == "a word" and run.outcome is None
    app.clock.skip("31m")
    assert run.outcome == "done" and [each["result"] for each in news(run)] == ["TIN"]
    app.close()


def test_a_cancelled_leader_cancels_its_agents_in_the_background() -> None:
    app, run, _ = started([asks(("slow_assay", {"metal": "tin"})), "I wait", "done"])
    child = run.state.started[0].run
    run.cancel()
    assert run.status == "cancelled" and app.do(app.runtime.get(child)).status == "cancelled"
    app.close()


def test_many_agents_at_once() -> None:
    """More than `ctx.first` takes."""
    names = [f"m{n}" for n in range(20)]
    calls = asks(*(("slow_assay", {"metal": name, "minutes": 5}) for name in names))

    def script(request: ModelRequest) -> Any:
        if len(request.messages) == 1:
            return calls
        read = [m for m in request.messages if m.role == "user"]
        return "done" if len(read) == 21 else f"{len(read) - 1} have ended"

    app, run, _ = started(script)
    for _ in range(5):
        app.clock.skip("6m")
    assert run.outcome == "done"
    assert sorted(each["result"] for each in news(run)) == sorted(name.upper() for name in names)
    app.close()
